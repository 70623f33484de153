"""Lines of a cache that a register tile asks for ahead of time.

    for k: for r: acc[r, :] += a[k, r] · panel[k, :]   ->   for k: (prefetch panel[k + 16, :]; for r: …)

A step over k takes some twelve cycles, in which a second-level cache sends a line or two; hardware follows a panel, but
begins anew with each. A tile that goes on in memory is asked for before it is summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import tvm
from tvm import ir, tirx

from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute, uses

AHEAD = 16
"""Terms: some 200 cycles, in which a line comes from a second-level cache (8 measured 1 to 2 % slower, 4 some more)."""

LINE, MOST = 64, 8
"""Bytes of a line of every cache, and lines of an operand at one term, at most."""


def panels_ahead(
    value: ir.Expr, bound: dict[tirx.Var, ir.Expr], tile: Sequence[tirx.For], term: tirx.Var
) -> list[tirx.Stmt]:
    """Requests for what a sum reads at a later term, but for rows along which the terms lie: hardware follows these.

    Parameters
    ----------
    value : a term, whose variables are bound.
    tile : the loops of a register tile.
    """
    asked = list[tirx.Stmt]()
    for load in loads_of(value):
        at = [substitute(index, bound) for index in load.indices]
        if uses(at, [term]) and not uses(at[-1], [term]):
            requests = lines(load.source, [substitute(index, {term: term + AHEAD}) for index in at], tile)
            asked += requests if len(requests) <= MOST else []
    return asked


def lines(buffer: tirx.Var, at: Sequence[ir.Expr], tile: Sequence[tirx.For], written: bool = False) -> list[tirx.Stmt]:
    """Requests for the lines that a register tile has of a buffer, whose loops in the last index are neighbours."""
    beside = [loop for loop in tile if uses(at[-1], [loop.loop_var])]
    apart = [loop for loop in tile if loop not in beside and uses(at, [loop.loop_var])]
    shape = [int(loop.extent) for loop in beside]
    step = max(1, LINE // tvm.DataType(dtype_of(buffer)).itemsize)
    first = [tuple(map(int, np.unravel_index(k, shape))) for k in range(0, math.prod(shape), step)] if shape else [()]
    variables = [loop.loop_var for loop in (*apart, *beside)]
    asked = list[tirx.Stmt]()
    for place, last in product(product(*(range(int(loop.extent)) for loop in apart)), first):
        numbers = {var: tirx.const(k, dtype_of(var)) for var, k in zip(variables, (*place, *last), strict=True)}
        cell = tirx.BufferLoad(buffer, [substitute(index, numbers) for index in at])
        request = tirx.call_intrin("void", "tirx.prefetch", tirx.address_of(cell), int(written), 3, 1)
        asked.append(tirx.Evaluate(request))
    return asked
