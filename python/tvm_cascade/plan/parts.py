"""Cuts a function into functions: each holds some of its nests, and buffers that pass between them are parameters.

    main(A, C):  B = f(A);  C = g(B)      →      main_0(A, B): B = f(A)      main_1(B, C): C = g(B)

The parts share the buffers of the whole, so that the order of the parts and the buffers' names tell what passes where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.order import Buffers, access_of, among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import completed, in_loops, new_block, sequence, statements_of
from tvm_cascade.analysis.tir import DATA_PARALLEL, Extent, domain_of, dtype_of, within

Position = int
"""Of a nest among the statements of a function's root block."""


def parts_of(program: Program, cuts: Sequence[Sequence[Position]]) -> list[tirx.PrimFunc]:
    """The functions of several sets of a program's nests, each in its order.

    A map may be in several sets: each computes it for itself. The parameters of a part are what it reads, those of the
    program before what other parts compute for it, and then what it writes.
    """
    accesses = [_access(program, cut) for cut in cuts]
    return [_part(program, sorted(set(cut)), k, accesses) for k, cut in enumerate(cuts)]


def _part(
    program: Program, inside: Sequence[Position], place: int, accesses: Sequence[tuple[Buffers, Buffers]]
) -> tirx.PrimFunc:
    read, written = accesses[place]
    touched = distinct([*read, *written])
    foreign = [
        buffer
        for k, (reads, writes) in enumerate(accesses)
        for buffer in reads
        if k != place and not among(buffer, writes)
    ]
    body = [statements_of(program.root)[k] for k in inside]
    read_there = {var for nest in body for var in within(nest, ir.Var)}
    numbers = [param for param in program.params if not tirx.is_buffer_var(param) and param in read_there]
    passed = [param for param in program.params if among(param, touched)]
    passed += [
        buffer
        for buffer in touched
        if not program.is_param(buffer) and (not among(buffer, written) or among(buffer, foreign))
    ]
    own = [buffer for buffer in touched if not among(buffer, passed)]
    given = [buffer for buffer in passed if not among(buffer, written)]
    results = [buffer for buffer in passed if among(buffer, written)]
    return with_nests(program.func, [*given, *numbers, *results], body, own)


def _access(program: Program, positions: Iterable[Position]) -> tuple[Buffers, Buffers]:
    """(what nests read, what they write)."""
    found = [access_of(program.nests[k]) for k in sorted(set(positions))]
    reads = distinct(buffer for access in found for buffer in access.reads)
    writes = distinct(buffer for access in found for buffer in access.writes)
    return tuple(reads), tuple(writes)


def with_nests(
    func: tirx.PrimFunc, params: Sequence[tirx.Var], nests: Sequence[tirx.Stmt], buffers: Sequence[tirx.Var]
) -> tirx.PrimFunc:
    """A function of some nests, with the attributes of another.

    Parameters
    ----------
    params : of the function.
    buffers : its temporaries.
    """
    root = s_tir.SBlock([], [], [], "root", sequence(nests), None, list(buffers))
    return completed(tirx.PrimFunc(list(params), s_tir.SBlockRealize([], True, root), func.ret_type, func.attrs))


def map_nest(
    name: str, buffer: tirx.Var, extents: Sequence[Extent], value: Callable[[Sequence[tirx.Var]], ir.Expr]
) -> tirx.Stmt:
    """A nest that stores a value at every point of a buffer.

    Parameters
    ----------
    name : of its block.
    extents : of the buffer's dimensions.
    value : of a point, from its variables.
    """
    dtypes = [dtype_of(extent) for extent in buffer.ty.shape]
    variables, loops = ([tirx.Var(f"{letter}{d}", dtype) for d, dtype in enumerate(dtypes)] for letter in "vi")
    pairs = zip(variables, extents, strict=True)
    iters = [tirx.IterVar(domain_of(var, extent), var, DATA_PARALLEL) for var, extent in pairs]
    block = new_block(name, tirx.BufferStore(buffer, value(variables), variables), iters)
    return in_loops(dict(zip(loops, extents, strict=True)), s_tir.SBlockRealize(loops, True, block))


def distinct(buffers: Iterable[tirx.Var]) -> list[tirx.Var]:
    """Each buffer once, in order."""
    return list(dict.fromkeys(buffers))
