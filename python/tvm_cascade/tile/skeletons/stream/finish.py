"""Results from final states: what has a value per row once, what has more at every register, and maps of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import function_name
from tvm_cascade.analysis.extract import Member
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import dtype_of, is_float, loads_of, same, substitute, uses, variables_of
from tvm_cascade.tile.attention.shape import Product
from tvm_cascade.tile.emit import put, registers
from tvm_cascade.tile.fragment import DTYPE, Symbols, TilePrinter, placed
from tvm_cascade.tile.hopper.stores import are_neighbours
from tvm_cascade.tile.launch.dependent import read_four_late, read_late
from tvm_cascade.tile.merge.places import FOUR
from tvm_cascade.tile.output import Output, member_at
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.transform.finish import or_its_start
from tvm_cascade.transform.tiling import no_positions


class FinalRows(Protocol):
    """Rows whose state is whole, by their numbers in a thread."""

    @property
    def values(self) -> Mapping[sp.Symbol, Any]:
        """Registers of everything that has a value per row."""

    def set(self, symbol: sp.Symbol, row: int, value: ir.Expr) -> None:
        """Stores a row's value in its register."""

    def row_symbols(self, row: int) -> Symbols:
        """Everything that has a value per row."""


LoadedColumns = Sequence[tuple[ir.TensorLoad, Any]]
"""Loads of kernels before, with the registers that hold four neighbouring columns of each."""


class Finish:
    """Computes the results with a value per row, and writes what is stored of them."""

    def __init__(self, tiling: Tiling, rows: FinalRows, numbers: Sequence[int]) -> None:
        self.tiling, self.stream, self.rows, self.numbers = tiling, tiling.stream, rows, numbers
        self.products = products = {p.component.symbol for p in self.stream.products}
        self.finish: dict[sp.Symbol, sp.Expr] = {}
        wide: set[sp.Symbol] = set(products)
        for result, expression in self.stream.fold.finish.items():
            if not expression.free_symbols & wide:
                self._set(result, expression, self.stream.group.member_of(result))
                continue
            wide.add(result)
            self.finish[result] = self._hoisted(expression.xreplace(self.finish), products)
        self._apart: dict[tirx.Var, RowValues] = {}
        self._of_rows: dict[tuple[tirx.Var, int], Any] = {}

    def _set(self, symbol: sp.Symbol, expression: sp.Expr, member: Member | None = None) -> None:
        for r in self.numbers:
            value = self._write(expression, self.rows.row_symbols(r))
            self.rows.set(symbol, r, value if member is None else self._or_start(member, value))

    def _write(self, expression: sp.Expr, symbols: Symbols) -> ir.Expr:
        return TilePrinter(symbols, DTYPE, {}, self.tiling.program.offsets)(expression)

    def _or_start(self, member: Member, value: ir.Expr) -> ir.Expr:
        return or_its_start(member, value, no_positions(self.stream.extent(self.stream.position)))

    def _hoisted(self, expression: sp.Expr, products: set[sp.Symbol]) -> sp.Expr:
        for power in sorted(expression.atoms(sp.Pow), key=str):
            if power.exp == -1 and not power.free_symbols & products:
                symbol = sp.Symbol(f"inverse_{len(self.rows.values)}", real=True)
                self._set(symbol, power)
                expression = expression.xreplace({power: symbol})
        return expression

    def value(
        self,
        output: Output,
        row: int,
        places: Mapping[tirx.Var, ir.Expr],
        column: ir.Expr | None,
        of_products: Mapping[sp.Symbol, ir.Expr],
        number: int = 0,
        loaded_columns: LoadedColumns = (),
    ) -> ir.Expr:
        """What is stored of a row.

        Parameters
        ----------
        column : of the output's free axis; None where it has none.
        number : of the column among those that `start_columns` has loaded.
        """
        product, apart = self.stream.product_along(output), self._row_values(output)
        at = {**places, product.free: column} if product is not None and column is not None else dict(places)
        known = {var: self._of_rows[var, row][0] for var, _ in apart.parts}
        here = [(load, four[number]) for load, four in loaded_columns]

        def loaded(load: ir.TensorLoad) -> ir.Expr:
            return next((value for other, value in here if same(load, other)), load)

        value = tvm_ffi.structural_map(apart.value, (ir.TensorLoad, loaded)) if here else apart.value
        return self._written(substitute(value, known), row, at, of_products)

    def start_columns(
        self, output: Output, product: Product, places: Mapping[tirx.Var, ir.Expr], first: ir.Expr
    ) -> LoadedColumns:
        """Loads what four neighbouring columns of an output, from a multiple of four on, read of kernels before."""
        free, found = product.free, list[tuple[ir.TensorLoad, Any]]()
        late = [load for load in loads_of(self._row_values(output).value) if among(load.source, self.tiling.late)]
        for load in (one for one in late if are_neighbours(one.source, one.indices, free, FOUR)):
            if any(same(load, other) for other, _ in found):
                continue
            own = self.tiling.buffers[load.source]
            indices = [placed(index, {**places, free: first}, self.tiling.buffers) for index in load.indices]
            four = registers("four", FOUR)
            read_four_late(own.ptr_to(indices), four)
            found.append((load, four))
        return found

    def start_row(self, output: Output, row: int, places: Mapping[tirx.Var, ir.Expr]) -> None:
        """Computes what of an output's values is the same along a row, for all that follows in the scope."""
        for var, part in self._row_values(output).parts:
            known = {other: array[0] for (other, of), array in self._of_rows.items() if of == row}
            value = self._written(substitute(part, known), row, places, {})
            self._of_rows[var, row] = registers(var.name, 1, dtype_of(part))
            put(self._of_rows[var, row], 0, value)

    def _row_values(self, output: Output) -> RowValues:
        if output.buffer not in self._apart:
            product, found = self.stream.product_along(output), RowValues((), output.value)
            if product is not None:
                found = with_rows_apart(output.value, product.free, self._is_wide)
            self._apart[output.buffer] = found
        return self._apart[output.buffer]

    def _is_wide(self, load: ir.TensorLoad) -> bool:
        member = member_at(self.stream.group, load)
        return member is not None and (member.result in self.finish or member.result in self.products)

    def _written(
        self, value: ir.Expr, row: int, at: Mapping[tirx.Var, ir.Expr], of_products: Mapping[sp.Symbol, ir.Expr]
    ) -> ir.Expr:
        """A value over the frame with what the rows' states give for results, at some places."""
        symbols = self.rows.row_symbols(row)
        if of_products:
            symbols = Symbols(of_products, symbols)

        def result(load: ir.TensorLoad) -> ir.Expr:
            member = member_at(self.stream.group, load)
            if member is None:
                return load
            value = self._write(self.finish.get(member.result, member.result), symbols)
            return self._or_start(member, value) if member.result in self.finish else value

        whole = placed(tvm_ffi.structural_map(value, (ir.TensorLoad, result)), at, self.tiling.buffers)
        late = [self.tiling.buffers[buffer] for buffer in self.tiling.late]
        return read_late(whole, late) if late else whole


# What of an output's value is the same all along a row, taken out of it: computed once a row, every operation once.
#
#     out[i, f] = exp(m[i] − max(m[i], c))·a[i, f] + …
#           →     t₀ = m[i];  t₁ = max(t₀, c);  t₂ = exp(t₀ − t₁);  out[i, f] = t₂·a[i, f] + …
#
# Where states that other kernels left are merged into a row's own, most of the formula is of that kind.


_OPERATIONS = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Max, prim.Min, prim.Cast, ir.Call, ir.TensorLoad)


@dataclass(frozen=True)
class RowValues:
    """A value over a row and a free axis.

    Attributes
    ----------
    parts : variables, and what they stand for; in order, as each may read those before it.
    value : in terms of them.
    """

    parts: tuple[tuple[tirx.Var, ir.Expr], ...]
    value: ir.Expr


def with_rows_apart(value: ir.Expr, free: tirx.Var, is_wide: Callable[[ir.TensorLoad], bool]) -> RowValues:
    """A value with what is the same along a free axis taken out of it, where that holds a special function.

    Cheaper parts are left in place: compilers see to them.

    Parameters
    ----------
    is_wide : whether a load is of a result that has a value for every point of the free axis.
    """
    parts: list[tuple[tirx.Var, ir.Expr]] = []

    def apart(node: ir.Expr) -> ir.Expr:
        dtype = dtype_of(node)
        if not is_float(dtype) or uses(node, [free]) or any(map(is_wide, loads_of(node))):
            return node
        known = next((var for var, part in parts if same(part, node)), None)
        if known is None:
            known = tirx.Var(f"of_row_{len(parts)}", dtype)
            parts.append((known, node))
        return known

    taken = tvm_ffi.structural_map(value, [(kind, apart) for kind in _OPERATIONS])
    if not any(isinstance(part, ir.Call) and function_name(part) for _, part in parts):
        return RowValues((), value)
    return RowValues(tuple(_read(parts, taken)), taken)


def _read(parts: list[tuple[tirx.Var, ir.Expr]], value: ir.Expr) -> list[tuple[tirx.Var, ir.Expr]]:
    needed, kept = list(variables_of(value)), list[tuple[tirx.Var, ir.Expr]]()
    for var, part in reversed(parts):
        if among(var, needed):
            needed += variables_of(part)
            kept.insert(0, (var, part))
    return kept
