"""Scales of blocks along what a product sums over: factors that are the same for so many neighbouring positions.

    Σ_k q[i, k]·s[i, k // 128]·w[j, k]·t[j, k // 128]   =   Σ_b s[i, b]·t[j, b] · Σ_{k in b} q[i, k]·w[j, k]

Nothing goes by name: a factor is a scale where it does not depend on the place within a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp
import tvm_ffi
from tvm import ir, sym, tirx

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.expression import AtomTable
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute, uses
from tvm_cascade.tile.fragment import DTYPE, TilePrinter
from tvm_cascade.tile.operand import Unfit, plain_value
from tvm_cascade.tile.product.lines import Line, line_of
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


@dataclass(frozen=True)
class ScaledSum:
    """A sum of products of two tensors and of further factors.

    Attributes
    ----------
    loads : of both tensors.
    number : that all products are multiplied by.
    factors : the further ones.
    """

    loads: tuple[ir.TensorLoad, ir.TensorLoad]
    number: sp.Expr
    factors: tuple[ir.Expr, ...]


def read_scaled_sum(program: Program, group: Group) -> ScaledSum | None:
    """The only sum of a group, where it has more factors than the two tensors with the most of its variables."""
    fold = group.fold
    if len(fold.components) != 1 or fold.references or fold.components[0].reducer is not SUM:
        return None
    table = AtomTable(())
    forms = {atom.symbol: table.form(atom.expression) for atom in group.atoms.atoms.values()}
    number, factors = fold.components[0].lift.xreplace(forms).as_coeff_mul()
    axis = line_of(group.frame.axis, [lookup(group.frame.extents, var) for var in group.frame.axis])
    loads = {f: load for f in factors if (load := _operand(table.sources.get(f), axis)) is not None}
    if len(factors) < 3 or len(loads) != 2:
        return None
    one, other = loads.values()
    printer = TilePrinter({symbol: cast(source, DTYPE) for symbol, source in table.sources.items()}, DTYPE, {})
    scales = tuple(printer(f) for f in factors if f not in loads)
    found = next((load for scale in scales for load in loads_of(scale) if program.writer(load.source)), None)
    if found is not None:
        raise Unfit(f"{found.source.name} is computed by an inner reduction")
    return ScaledSum((one, other), number, scales)


def _operand(source: ir.Expr | None, axis: Line) -> ir.TensorLoad | None:
    """The load that a factor is, where neighbours along what is summed over differ."""
    load = None if source is None else plain_value(source)
    return None if load is None or same_in_blocks(load, axis, 2) else load


def scales_of(found: ScaledSum, group: Group, rows: Line, columns: Line) -> Scales:
    """The further factors of a sum, by the line that they run along.

    Raises
    ------
    Unfit
        Where a factor runs along both, or along what neither has.
    """
    down, across = list[ir.Expr](), list[ir.Expr]()
    for factor in found.factors:
        along = [uses(factor, [line.var, *line.parts]) for line in (rows, columns)]
        if all(along):
            raise Unfit(f"{', '.join(group.names)}: {factor} runs along rows and columns")
        (across if along[1] else down).append(factor)
    return Scales(tuple(down), tuple(across))
