"""Tuples whose parts are reductions by themselves, as a nest for each part.

    for k: s = s + x[k];  q = q + x[k]·x[k]      →  for k: s = s + x[k];    for k: q = q + x[k]·x[k]

TVM's vectoriser takes no block of several stores, so that a tuple stays a loop of scalars: one step an element, in
which its parts run side by side. Where no part reads another one, each is a plain reduction. n parts of w lanes each
take n/w steps an element, which is less where every w is more than n; they read the data n times, which is less time
than a chain of scalar additions takes, from memory too. Parts that choose together, such as an extremum and its
position, stay together.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from tvm_cascade.analysis.reducers import split_reduction
from tvm_cascade.analysis.statements import realized_block, renewed, replaced, statements_of, with_block, with_nests
from tvm_cascade.analysis.tir import reads_buffer, rebuilt
from tvm_cascade.analysis.tuple_block import stores_at_once
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.nests import nests_in, plan_nest, read_nests
from tvm_cascade.schedule.row_lanes import reduction_lanes


def tuples_apart(func: tirx.PrimFunc, cpu: Cpu) -> tirx.PrimFunc:
    """The function with tuples taken apart where that takes fewer steps; the same object where none are.

    Parameters
    ----------
    func : plain nests, not scheduled.
    cpu : whose vectors the parts would run in.
    """
    names = {nest.block.name_hint for nest in read_nests(func)}
    before, after = statements_of(func), list[tirx.Stmt]()
    for nest in before:
        parts = _parts(nest, names)
        after += parts if parts and _in_fewer_steps(parts, cpu) else [nest]
    if len(after) == len(before):
        return func
    return with_nests(func, after, func.body.block.alloc_buffers)


def _in_fewer_steps(parts: list[tirx.Stmt], cpu: Cpu) -> bool:
    nests = [nest for part in parts for nest in nests_in(part)]
    return all(reduction_lanes(plan_nest(nest), nest.block, cpu) > len(parts) for nest in nests)


def _parts(nest: tirx.Stmt, names: set[str]) -> list[tirx.Stmt]:
    """A nest for each part, under names that no block has yet; none where the nest is no tuple of such parts."""
    realize = realized_block(nest)
    if realize is None or realize.block.init is None:
        return []
    block = realize.block
    stores, starts = stores_at_once(block.body), stores_at_once(block.init)
    if stores is None or starts is None or not 1 < len(stores) == len(starts):
        return []
    found = []
    for store in stores:
        others = [other.buffer for other in stores if not other.buffer.same_as(store.buffer)]
        init = next((start for start in starts if start.buffer.same_as(store.buffer)), None)
        if len(others) < len(stores) - 1 or init is None or split_reduction(store) is None:
            return []
        if any(reads_buffer(store.value, other) for other in others):
            return []
        found.append(renewed(with_block(nest, block, _part(block, store, init, names))))
    return found


def _part(block: s_tir.SBlock, store: tirx.BufferStore, init: tirx.BufferStore, names: set[str]) -> s_tir.SBlock:
    """The block of one part."""
    return rebuilt(replaced(block, store, init), name_hint=_fresh(f"{block.name_hint}_{store.buffer.name}", names))


def _fresh(name: str, names: set[str]) -> str:
    """The name, lengthened until it is none of those; it becomes one of them."""
    while name in names:
        name += "_"
    names.add(name)
    return name
