"""Cuts a function into functions: each holds some of its nests, and buffers that pass between them are parameters.

    main(A, C):  B = f(A);  C = g(B)      →      main_0(A, B): B = f(A)      main_1(B, C): C = g(B)

The parts share the buffers of the whole, so that the order of the parts and the buffers' names tell what passes where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.order import Buffers, access_of, among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import DETECT_ACCESS, statements_of
from tvm_cascade.analysis.tir import DATA_PARALLEL, Extent, as_index, dtype_of, variables_of

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
    numbers = [param for param in program.params if not tirx.is_buffer_var(param) and _reads_number(body, param)]
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
    body = nests[0] if len(nests) == 1 else tirx.SeqStmt(list(nests))
    root = s_tir.SBlock([], [], [], "root", body, None, list(buffers))
    made = tirx.PrimFunc(list(params), s_tir.SBlockRealize([], True, root), func.ret_type, func.attrs)
    return tvm.get_global_func("script.Complete")(made, [], True)


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
    variables = [tirx.Var(f"v{d}", dtype) for d, dtype in enumerate(dtypes)]
    loops = [tirx.Var(f"i{d}", dtype) for d, dtype in enumerate(dtypes)]
    zeros = [tirx.const(0, dtype) for dtype in dtypes]
    lengths = [as_index(extent, dtype) for extent, dtype in zip(extents, dtypes, strict=True)]
    domains = [ir.Range(zero, length) for zero, length in zip(zeros, lengths, strict=True)]
    iters = [tirx.IterVar(domain, var, DATA_PARALLEL) for domain, var in zip(domains, variables, strict=True)]
    notes = {DETECT_ACCESS: tirx.IntImm("int32", 3)}
    block = s_tir.SBlock(
        iters, [], [], name, tirx.BufferStore(buffer, value(variables), list(variables)), annotations=notes
    )
    nest: tirx.Stmt = s_tir.SBlockRealize(list(loops), True, block)
    for loop, zero, length in reversed(list(zip(loops, zeros, lengths, strict=True))):
        nest = tirx.For(loop, zero, length, tirx.ForKind.SERIAL, nest)
    return nest


def undefined(func: tirx.PrimFunc) -> list[tirx.Var]:
    """The shape variables of a function that none of its parameters gives, neither as a number nor as an extent."""
    given: list[tirx.Var] = []
    for param in func.params:
        given += [e for e in param.ty.shape if isinstance(e, ir.Var)] if tirx.is_buffer_var(param) else [param]
    bound: list[tirx.Var] = []
    binds = [
        (tirx.For, lambda loop: bound.append(loop.loop_var)),
        (tirx.IterVar, lambda iv: bound.append(iv.var)),
        (tirx.Bind, lambda bind: bound.append(bind.var)),
    ]
    tvm_ffi.structural_walk(func.body, binds)
    shapes = [e for param in func.params if tirx.is_buffer_var(param) for e in param.ty.shape]
    used = [var for extent in shapes for var in variables_of(extent)]
    tvm_ffi.structural_walk(func.body, (ir.Var, lambda var: None if tirx.is_buffer_var(var) else used.append(var)))
    return [var for var in used if not among(var, given) and not among(var, bound)]


def distinct(buffers: Iterable[tirx.Var]) -> list[tirx.Var]:
    """Each buffer once, in order."""
    found: list[tirx.Var] = []
    for buffer in buffers:
        if not among(buffer, found):
            found.append(buffer)
    return found


def _reads_number(nests: Sequence[tirx.Stmt], number: tirx.Var) -> bool:
    return any(any(var.same_as(number) for var in _variables(nest)) for nest in nests)


def _variables(nest: tirx.Stmt) -> list[tirx.Var]:
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(nest, (ir.Var, found.append))
    return found
