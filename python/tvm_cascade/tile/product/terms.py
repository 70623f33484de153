"""Reads sums of products of two tensors: operands, and the lines that rows, columns and the sum run along.

    c[m, n] = Σ_k A[m, k]·B[n, k]        out[m, n] = map of c[m, n] and of inputs

Several sums have their left operand in common.

m, n and k may be several variables each, where the tensors have them in neighbouring dimensions. What multiplies them,
tensor cores or threads, is of no concern here. Nothing goes by name: all is read off the index maps.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.expression import AtomTable
from tvm_cascade.analysis.extent import more_than_one
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, loads_of, same, uses
from tvm_cascade.tile.fragment import NEIGHBOURS
from tvm_cascade.tile.operand import Unfit, plain_value
from tvm_cascade.tile.output import Output, columns_beyond, member_at, read_outputs
from tvm_cascade.tile.product.lines import Line, View, in_order, line_of

PRODUCT = sp.Symbol("product", real=True)
"""Of two elements."""


@dataclass(frozen=True)
class Terms:
    """A sum of products of two tensors, or several that have the left one in common.

    Attributes
    ----------
    group : with its fold restricted to what the outputs read.
    loads : of the operands, the left one and those on the right, which run along the contiguous dimension of outputs.
    views : of the operands' tensors.
    choices : what rows and columns may be, that the left and the right operand alone run along: all of their variables
        as one line first, where the tensor allows it, and the longest of them.
    inner : what products are summed over, as one line that both operands have.
    lifts : an element of each sum over the symbol of its product.
    product : that symbol.
    """

    program: Program
    group: Group
    outputs: tuple[Output, ...]
    loads: tuple[ir.TensorLoad, ...]
    views: tuple[View, ...]
    choices: tuple[tuple[Line, Line], ...]
    inner: Line
    lifts: tuple[sp.Expr, ...]
    product: sp.Symbol

    @property
    def lift(self) -> sp.Expr:
        """An element of the only sum."""
        (lift,) = self.lifts
        return lift

    @property
    def outer(self) -> tuple[tirx.Var, ...]:
        """The other variables that products are summed over."""
        return tuple(v for v in self.group.frame.axis if not _among(v, self.inner.parts))

    def check_columns(self, columns: Line) -> None:
        """Raises Unfit where outputs have an element for several neighbours along anything else than the columns."""
        for output in self.outputs:
            if output.columns is not None and not columns.parts[-1].same_as(output.columns):
                raise Unfit(f"{output.buffer.name} reads neighbours along {output.columns.name}, which is no column")

    def batch(self, rows: Line, columns: Line) -> tuple[tirx.Var, ...]:
        """The variables that both operands have, or none, or beside rows and columns."""
        packed = [*rows.parts, *columns.parts, *self.group.frame.axis]
        return tuple(v for v in self.group.frame.extents if not _among(v, packed))


def _among(var: tirx.Var, others: Sequence[tirx.Var]) -> bool:
    return any(var.same_as(other) for other in others)


def read_terms(program: Program, group: Group, dtypes: Sequence[str], who: str, most: int = 1) -> Terms:
    """The sums of products that a group is.

    Parameters
    ----------
    dtypes : that it may be summed in.
    who : sums in them, in words.
    most : sums that it may be.

    Raises
    ------
    Unfit
        Where it is none, or the function has more to do than the group and maps of its results.
    """
    outputs, results = read_outputs(program, group, parts=True, together=len(NEIGHBOURS))
    group = dataclasses.replace(group, fold=group.fold.restricted_to(results))
    lifts, loads = _factors(group, outputs, most)
    return terms_of(program, group, outputs, loads, lifts, dtypes, who)


def terms_of(
    program: Program,
    group: Group,
    outputs: tuple[Output, ...],
    loads: tuple[ir.TensorLoad, ...],
    lifts: tuple[sp.Expr, ...],
    dtypes: Sequence[str],
    who: str,
) -> Terms:
    """The sums of products whose operands and lifts are known; see `read_terms`.

    Raises
    ------
    Unfit
        Where their tensors have no lines for rows, for columns and for the sum.
    """
    found = [dtype for member in group.members if (dtype := dtype_of(member.stage.buffer)) not in dtypes]
    if found:
        raise Unfit(f"{', '.join(group.names)} is summed in {found[0]}, {who}")
    _check_reads(program, group, loads, outputs)
    left, right = loads[:2]
    spatial = [v for v in group.frame.extents if not _among(v, group.frame.axis)]
    own = [_own(one, other, spatial, group) for one, other in ((left, right), (right, left))]
    views = tuple(_view(load) for load in loads)
    rows, columns = (_options(view, variables, group) for view, variables in zip(views[:2], own, strict=True))
    inner = _inner(views, [load.source.name for load in loads], group)
    choices = tuple(itertools.product(rows, columns))
    return Terms(program, group, outputs, loads, views, choices, inner, lifts, PRODUCT)


def _view(load: ir.TensorLoad) -> View:
    return View(tuple(load.source.ty.shape), tuple(load.indices))


def _check_reads(program: Program, group: Group, loads: Sequence[ir.TensorLoad], outputs: Sequence[Output]) -> None:
    """Operands are inputs, and outputs read sums at their own places."""
    for load in loads:
        if program.writer(load.source) is not None:
            raise Unfit(f"{load.source.name} is computed by an inner reduction")
    for one, load in ((output, load) for output in outputs for load in loads_of(output.value)):
        member = member_at(group, load)
        if member is not None and columns_beyond(member, load) not in range(one.every):
            raise Unfit(f"{load} reads a result at another place than its own")


def _factors(
    group: Group, outputs: Sequence[Output], most: int
) -> tuple[tuple[sp.Expr, ...], tuple[ir.TensorLoad, ...]]:
    """The lift of each sum over the symbol of its product, and the loads of the left operand and those on the right."""
    fold, name = group.fold, ", ".join(group.names)
    count = len(fold.components)
    if not 1 <= count <= most or fold.references or any(c.reducer is not SUM for c in fold.components):
        raise Unfit(f"{name} is no one sum" if most == 1 else f"{name} is none of one sum to {most}")
    table = AtomTable(())
    forms = {atom.symbol: table.form(atom.expression) for atom in group.atoms.atoms.values()}
    lifts, pairs = list[sp.Expr](), list[tuple[ir.TensorLoad, ir.TensorLoad]]()
    for component in fold.components:
        factor, symbols = component.lift.xreplace(forms).as_coeff_mul()
        loads = [plain_value(table.sources[s]) for s in symbols if s in table.sources]
        if len(symbols) != 2 or len(loads) != 2 or loads[0] is None or loads[1] is None:
            raise Unfit(f"{name} sums {group.members[len(lifts)].element}, which is no product of two tensors")
        lifts.append(factor * PRODUCT)
        pairs.append(ordered((loads[0], loads[1]), outputs))
    left = pairs[0][0]
    if not all(same(left, one) for one, _ in pairs):
        raise Unfit(f"{name} are products that have no left operand in common")
    return tuple(lifts), (left, *(right for _, right in pairs))


def _uses(load: ir.TensorLoad, var: tirx.Var) -> bool:
    return any(uses(index, [var]) for index in load.indices)


def ordered(
    loads: tuple[ir.TensorLoad, ir.TensorLoad], outputs: Sequence[Output]
) -> tuple[ir.TensorLoad, ir.TensorLoad]:
    """The loads so that the second runs along the contiguous dimension of the outputs."""
    one, other = loads
    for output in (output for output in outputs if output.indices):
        index = output.shifted[0][-1] if output.columns is None else output.columns
        if isinstance(index, ir.Var) and _uses(one, index) != _uses(other, index):
            return (other, one) if _uses(one, index) else (one, other)
    return one, other


def _own(one: ir.TensorLoad, other: ir.TensorLoad, spatial: Sequence[tirx.Var], group: Group) -> list[tirx.Var]:
    """The variables that one operand has and the other has not; those of one value only where there are no others."""
    alone = [v for v in spatial if _uses(one, v) and not _uses(other, v)]
    long = [v for v in alone if more_than_one(lookup(group.frame.extents, v))]
    if not alone:
        raise Unfit(f"no axis of {one.source.name} is missing in {other.source.name}: there is no matrix product")
    return long or alone[-1:]


def _options(view: View, variables: Sequence[tirx.Var], group: Group) -> list[Line]:
    """The line of all variables, where the tensor allows it, and that of the contiguous one, or else of the longest."""
    ordered = in_order(view, variables)
    line = line_of(ordered, [lookup(group.frame.extents, v) for v in ordered])

    def length(var: tirx.Var) -> float:
        extent = lookup(group.frame.extents, var)
        return extent if isinstance(extent, int) else float("inf")

    contiguous = [v for v in ordered if view.dimension(v) == len(view.indices) - 1]
    single = contiguous[0] if contiguous else max(ordered, key=length)
    alone = line_of([single], [lookup(group.frame.extents, single)])
    return [line, alone] if len(ordered) > 1 and view.along(line) is not None else [alone]


def _inner(views: Sequence[View], names: Sequence[str], group: Group) -> Line:
    """What is summed over as one line where both tensors allow it, else the innermost variable that both have plain."""
    axis, extents = group.frame.axis, group.frame.extents
    axis = tuple(v for v in axis if more_than_one(lookup(extents, v))) or axis[-1:]
    whole = line_of(in_order(views[0], axis), [lookup(extents, v) for v in in_order(views[0], axis)])
    if len(whole.parts) == len(axis) and all(view.along(whole) is not None for view in views):
        return whole
    for var in reversed(in_order(views[0], axis)):
        line = line_of([var], [lookup(extents, var)])
        if all(view.along(line) is not None for view in views):
            return line
    raise Unfit(f"{' and '.join(names)} have no dimension that runs along {axis[-1].name} alone")
