"""Packed rows: several index variables as the digits of one row number, so that few rows of each fill a tile.

    queries i below 4, heads h below 64, keys of head h // 8        row = (h mod 8)·4 + i below 32, one for each h // 8

A variable is a digit where the right operands do not run along it, and so is the remainder of one that they read by its
quotient alone. Every expression over the frame is rewritten in the row and in what is left of such a variable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import Atom
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import Extent, dtype_of, more_than_one, same, simplify_index, substitute, uses
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.product.fold import Sum


@dataclass(frozen=True)
class Digit:
    """A variable of the frame that rows run along.

    Attributes
    ----------
    extent : of it, or of the remainder that is the digit.
    quotient : what is left of it outside of the row: variable = quotient·extent + digit; None where the digit is all.
    """

    variable: tirx.Var
    extent: int
    quotient: tirx.Var | None = None


def digits_of(rows: Sequence[tirx.Var], extents: Mapping[tirx.Var, Extent], others: Sequence[ir.Expr]) -> list[Digit]:
    found = []
    for var in rows:
        extent = dict(extents)[var]
        if not isinstance(extent, int) or not more_than_one(extent):
            continue
        group = extent if not any(uses(index, [var]) for index in others) else _divisor(var, others)
        if group == extent:
            found.append(Digit(var, extent))
        elif group > 1 and extent % group == 0:
            found.append(Digit(var, group, tirx.Var(f"{var.name}_group", var.ty)))
    return found


def _divisor(var: tirx.Var, others: Sequence[ir.Expr]) -> int:
    """c where all expressions read a variable as ⌊v/c⌋ alone; 1 for any other."""
    found: list[int] = []
    rest = tirx.Var("rest", var.ty)

    def replace(node: ir.Expr) -> ir.Expr:
        if isinstance(node.a, ir.Var) and node.a.same_as(var) and isinstance(node.b, prim.IntImm):
            found.append(int(node.b))
            return rest
        return node

    without = [tvm_ffi.structural_map(index, (prim.FloorDiv, replace)) for index in others]
    alike = len(set(found)) == 1 and not any(uses(index, [var]) for index in without)
    return found[0] if alike else 1


@dataclass(frozen=True)
class PackedRows:
    """The frame's variables in terms of a packed row.

    Attributes
    ----------
    row : the variable of the packed rows.
    batch : the frame's other row variables, with the quotients in place of those that were taken apart.
    values : what has become of each variable that is no more.
    extents : of all variables of the new frame.
    digits : a variable for each digit of the row, and how far it runs; the innermost first.
    of_digits : each variable that is no more by those of its digits.
    """

    row: tirx.Var
    count: int
    batch: tuple[tirx.Var, ...]
    values: dict[tirx.Var, ir.Expr]
    extents: dict[tirx.Var, Extent]
    digits: tuple[tuple[tirx.Var, int], ...]
    of_digits: dict[tirx.Var, ir.Expr]

    def of(self, expression: ir.Expr) -> ir.Expr:
        if not uses(expression, list(self.values)):
            return expression
        placed = substitute(expression, self.values)
        if dtype_of(placed).startswith("int"):
            return simplify_index(placed, self.extents)
        return _with_plain_indices(placed, self.extents)

    def of_load(self, load: ir.TensorLoad) -> ir.TensorLoad:
        return tirx.BufferLoad(load.source, [self.of(index) for index in load.indices])

    def of_sum(self, one: Sum) -> Sum:
        left, right, scales = self.of_load(one.left), self.of_load(one.right), tuple(map(self.of, one.scales))
        kept = [v for v in one.rows if not among(v, [*self.values, *self.batch])]
        rows = (*self.batch, self.row, *kept)
        return dataclasses.replace(one, rows=rows, scales=scales, left=left, right=right)

    def apart(self, load: ir.TensorLoad) -> ir.TensorLoad:
        """A load over the old frame by digits in place of rows."""
        extents = {**self.extents, **dict(self.digits)}
        indices = [simplify_index(substitute(index, self.of_digits), extents) for index in load.indices]
        return tirx.BufferLoad(load.source, indices)

    def of_group(self, group: Group) -> Group:
        """A group over the new frame; its fold and the symbols of its atoms are what they were."""
        members = tuple(
            dataclasses.replace(m, element=self.of(m.element), dims=tuple(map(self.of, m.dims))) for m in group.members
        )
        table = group.atoms.copy()
        atoms = {form: _with(atom, self.of(atom.expression)) for form, atom in table.atoms.items()}
        frame = dataclasses.replace(group.frame, extents=self.extents)
        return dataclasses.replace(group, members=members, frame=frame, atoms=dataclasses.replace(table, atoms=atoms))

    def of_output(self, output: Output) -> Output:
        return dataclasses.replace(output, indices=tuple(map(self.of, output.indices)), value=self.of(output.value))


def pack(digits: Sequence[Digit], rows: Sequence[tirx.Var], extents: Mapping[tirx.Var, Extent]) -> PackedRows:
    ty = digits[0].variable.ty if digits else ir.PrimType("int32")
    row, count = tirx.Var("packed_row" if digits else "only_row", ty), 1
    values: dict[tirx.Var, ir.Expr] = {}
    of_digits: dict[tirx.Var, ir.Expr] = {}
    own_digits: list[tuple[tirx.Var, int]] = []
    kept: dict[tirx.Var, Extent] = {row: 1}
    for digit in reversed(digits):
        own = tirx.floormod(tirx.floordiv(row, _number(count, row)), _number(digit.extent, row))
        own = own.astype(dtype_of(digit.variable))
        alone: ir.Expr = tirx.Var(f"{digit.variable.name}_digit", digit.variable.ty)
        own_digits.append((alone, digit.extent))
        if digit.quotient is not None:
            own, alone = (digit.quotient * digit.extent + part for part in (own, alone))
            kept[digit.quotient] = int(dict(extents)[digit.variable]) // digit.extent
        values[digit.variable], of_digits[digit.variable] = own, alone
        count *= digit.extent
    kept[row] = count
    quotients = {digit.variable: digit.quotient for digit in digits}
    batch = []
    for var in rows:
        taken = any(var.same_as(other) for other in quotients)
        left = quotients[var] if taken else var
        batch += [] if left is None else [left]
    others = {v: e for v, e in extents.items() if not any(v.same_as(taken) for taken in quotients)}
    bounds = {**others, **kept}
    plain = {var: simplify_index(value, bounds) for var, value in values.items()}
    return PackedRows(row, count, tuple(batch), plain, bounds, tuple(own_digits), of_digits)


def _number(value: int, like: tirx.Var) -> ir.Expr:
    return tirx.const(value, dtype_of(like))


def _with_plain_indices(expression: ir.Expr, extents: dict[tirx.Var, Extent]) -> ir.Expr:

    def plain(load: ir.TensorLoad) -> ir.Expr:
        return tirx.BufferLoad(load.source, [simplify_index(index, extents) for index in load.indices])

    return tvm_ffi.structural_map(expression, (ir.TensorLoad, plain))


def _with(atom: Atom, expression: ir.Expr) -> Atom:
    return atom if same(atom.expression, expression) else dataclasses.replace(atom, expression=expression)
