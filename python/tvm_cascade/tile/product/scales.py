"""Scales of blocks along what a product sums over: factors that are the same for so many neighbouring positions.

    Σ_k q[i, k]·s[i, k // 128]·w[j, k]·t[j, k // 128]   =   Σ_b s[i, b]·t[j, b] · Σ_{k in b} q[i, k]·w[j, k]

Nothing goes by name: a factor is a scale where it does not depend on the place within a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute, uses
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.transform.printer import cast


def same_in_blocks(expression: ir.Expr, line: Line, length: int) -> bool:
    """Whether an expression is the same at all places of each block of so many, blocks starting at multiples."""
    block, place = tirx.Var("block", "int32"), tirx.Var("place", "int32")
    analyzer = sym.Analyzer()
    analyzer.bind(place, ir.Range(0, length))
    analyzer.bind(block, ir.Range(0, 1 << 20))
    at = {var: cast(value, dtype_of(var)) for var, value in line.places(block * length + place).items()}
    indices = [index for load in loads_of(expression) for index in load.indices]
    outside = not uses(_without_loads(expression), list(at))
    return outside and not any(uses(analyzer.simplify(substitute(index, at)), [place]) for index in indices)


def _without_loads(expression: ir.Expr) -> ir.Expr:
    return tvm_ffi.structural_map(expression, (ir.TensorLoad, lambda load: tirx.const(0, dtype_of(load))))


@dataclass(frozen=True)
class Scales:
    """What the products of each block are multiplied by.

    Attributes
    ----------
    down, across : factors of rows and of columns, over the variables of the frame.
    """

    down: tuple[ir.Expr, ...]
    across: tuple[ir.Expr, ...]

    def same_along(self, line: Line, length: int) -> bool:
        """Whether all factors are the same in blocks of so many along what is summed over."""
        return all(same_in_blocks(factor, line, length) for factor in (*self.down, *self.across))


def scales_of(factors: tuple[ir.Expr, ...], name: str, rows: Line, columns: Line) -> Scales | None:
    """The further factors of a sum of some name, by the line that they run along; None where there is none.

    Raises
    ------
    Unfit
        Where a factor runs along both, or along what neither has.
    """
    down, across = list[ir.Expr](), list[ir.Expr]()
    for factor in factors:
        along = [uses(factor, [line.var, *line.parts]) for line in (rows, columns)]
        if all(along):
            raise Unfit(f"{name}: {factor} runs along rows and columns")
        (across if along[1] else down).append(factor)
    return Scales(tuple(down), tuple(across)) if factors else None
