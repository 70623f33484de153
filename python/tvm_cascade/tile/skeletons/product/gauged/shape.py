"""Reads the shape of a gauged product: sums of products, and folds of the left operand's own rows beside them.

    c[m, n] = Σ_k e(A[m, k], g[k], s[m])·B[n, k]        t[m] = ⊕_k f(A[m, k], g[k], s[m])
    out[m, n] = map of c[m, n], t[m] and of inputs

A row statistic that the fold defers to its finish, as that of an RMS normalisation, is one of the t: the left operand
is read once, for both. An element e that is no plain load is computed in registers, from tensors of k and of rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Component
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.analysis.expression import AtomTable, widens
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, loads_of, variables_of
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.rounding import FORMATS
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.operand import PACKED_DTYPES, Unfit, plain_value
from tvm_cascade.tile.output import Output, read_outputs
from tvm_cascade.tile.product.terms import PRODUCT, terms_of
from tvm_cascade.tile.skeletons.product.shape import DEPTH_BYTES, MOST_SUMS, SUMMED_IN, MatrixProduct, product_of

_SUMMED = (SUM, MAX, MIN)
"""Reducers of statistics that lanes exchange by themselves."""


_OF_ANY_RANGE = ("bfloat16",)
"""Dtypes of 16 bits with the range of float32: an element is rounded to them as well before its gauge as after."""


@dataclass(frozen=True)
class Statistic:
    """A fold of the rows of the left operand.

    Attributes
    ----------
    component : its state.
    lift : of an element, over the leaves.
    """

    component: Component
    lift: sp.Expr


@dataclass(frozen=True)
class GaugedProduct:
    """A group that has the shape.

    Attributes
    ----------
    product : its sums of products, as if the left operand were a plain tensor.
    sums : the states of the sums, in their order.
    element : what is multiplied, over the leaves; rounded to the operand's dtype.
    statistics : folds of the left operand's rows.
    loaded : the leaf that stands for an element of the left operand as it is loaded.
    along, per_row : leaves that run along what is summed over alone, and those that have one value a row.
    """

    product: MatrixProduct
    sums: tuple[sp.Symbol, ...]
    element: sp.Expr
    statistics: tuple[Statistic, ...]
    loaded: sp.Symbol
    along: dict[sp.Symbol, ir.Expr]
    per_row: dict[sp.Symbol, ir.Expr]

    def __str__(self) -> str:
        """What is multiplied, and what rows are folded into, in formulas over the tensors' names."""
        leaves = {self.loaded: self.product.left.load, **self.along, **self.per_row}
        names = {symbol: sp.Symbol(_name(source)) for symbol, source in leaves.items()}
        beside = [f"{s.component.symbol} {s.component.reducer}= {s.lift.xreplace(names)}" for s in self.statistics]
        rights = ", ".join(str(right.load) for right in self.product.rights)
        return "\n".join([f"({self.element.xreplace(names)}) times {rights}", *beside])

    @property
    def is_lifted(self) -> bool:
        """Whether an element is multiplied otherwise than as it is loaded."""
        return self.element != self.loaded

    @property
    def scale(self) -> sp.Symbol | None:
        """The leaf that every element is multiplied by, where that is all of its lift, and words hold two of it."""
        factor = self.element / self.loaded
        load = plain_value(self.along[factor]) if factor in self.along else None
        return factor if load is not None and in_words(load, self.product) else None

    @property
    def steps(self) -> int:
        """Tiles along what is summed over."""
        extent = self.product.inner.extent
        assert isinstance(extent, int)
        return extent * self.product.left.operand.size // DEPTH_BYTES


def in_words(load: ir.TensorLoad, product: MatrixProduct) -> bool:
    """Whether neighbours along the sum are in one word of a tensor of 16 bits of the left operand's dtype."""
    inner, shape = product.inner.var, load.source.ty.shape
    if not load.indices or dtype_of(load.source) != product.left.operand.dtype:
        return False
    last, width = load.indices[-1], shape[-1]
    even = isinstance(width, ir.prim.IntImm) and int(width) % 2 == 0
    return even and isinstance(last, ir.Var) and last.same_as(inner)


def read_gauged(program: Program, group: Group) -> GaugedProduct:
    """The shape of a group.

    Raises
    ------
    Unfit
        Where the group does not have it, or the function has more to do than the group and maps of its results.
    """
    group = _with_columns_in_common(group)
    outputs, results = read_outputs(program, group)
    group = dataclasses.replace(group, fold=group.fold.restricted_to(results))
    if group.fold.references:
        moving = ", ".join(str(reference.tracks) for reference in group.fold.references)
        raise Unfit(f"{', '.join(group.names)} move with {moving}, which is known at the end of a row alone")
    table = _Leaves(())
    forms = {atom.symbol: table.form(atom.expression) for atom in group.atoms.atoms.values()}
    lifts = {component: component.lift.xreplace(forms) for component in group.fold.components}
    sides = {component: _sides(lift, table, outputs) for component, lift in lifts.items()}
    products = [component for component in lifts if sides[component] is not None]
    if not 1 <= len(products) <= MOST_SUMS or any(component.reducer is not SUM for component in products):
        raise Unfit(f"{', '.join(group.names)} hold {len(products)} sums of products; the shape has one to {MOST_SUMS}")
    found = [side for component in products if (side := sides[component]) is not None]
    left = found[0].left
    if any(side.left != left for side in found):
        raise Unfit(f"{', '.join(group.names)} are products that have no left operand in common")
    load, loaded = _loaded(left, table, group)
    loads = (load, *(side.right for side in found))
    scales = tuple(side.factor * PRODUCT for side in found)
    product = product_of(terms_of(program, group, outputs, loads, scales, (SUM_DTYPE,), SUMMED_IN))
    statistics = tuple(Statistic(c, lift) for c, lift in lifts.items() if c not in products)
    dtype = product.left.operand.dtype
    if left != loaded and statistics and not isinstance(left, Round) and dtype not in _OF_ANY_RANGE:
        raise Unfit(f"{_name(table.sources[loaded])} before its gauge may be beyond {dtype}, which it is rounded to")
    element = _without_round(left, dtype)
    return _checked(program, group, product, [c.symbol for c in products], element, statistics, loaded, table)


class _Leaves(AtomTable):
    """Leaves that are tensors: what is rounded is a formula as well."""

    def form(self, expression: ir.Expr) -> sp.Expr:
        """See `AtomTable.form`."""
        if isinstance(expression, ir.prim.Cast) and dtype_of(expression) in FORMATS and not widens(expression):
            return Round(self.form(expression.value), sp.Symbol(dtype_of(expression)))
        return super().form(expression)


def _name(source: ir.Expr) -> str:
    load = plain_value(source)
    return str(source if load is None else load)


def _with_columns_in_common(group: Group) -> Group:
    """A group of several products as one whose products have their columns in common."""
    products = [member for member in group.members if find_factors(member.stage) is not None]
    joint = group.among.joint() if len(products) > 1 else None
    return joint if joint is not None and len(joint.members) == len(group.members) else group


SUM_DTYPE = "float32"
"""Of sums of products, and of statistics."""


@dataclass(frozen=True)
class _Sides:
    """A lift as factor·left·right."""

    factor: sp.Expr
    left: sp.Expr
    right: ir.TensorLoad


def _sides(lift: sp.Expr, table: AtomTable, outputs: Sequence[Output]) -> _Sides | None:
    """The product that a lift is: its right operand runs along the contiguous dimension of the outputs; else None."""
    columns = [output.indices[-1] for output in outputs if output.indices and isinstance(output.indices[-1], ir.Var)]
    factor, factors = lift.as_coeff_mul()
    right = [f for f in factors if among_any(columns, _variables(f, table))]
    if len(right) != 1 or right[0] not in table.sources or len(factors) < 2:
        return None
    load = plain_value(table.sources[right[0]])
    return None if load is None else _Sides(factor, sp.Mul(*(f for f in factors if f != right[0])), load)


def among_any(some: Iterable[ir.Expr], variables: Sequence[tirx.Var]) -> bool:
    """Whether any of some variables is among others."""
    return any(among(var, variables) for var in some)


def _variables(form: sp.Expr, table: AtomTable) -> list[tirx.Var]:
    """The index variables that a form over leaves runs along."""
    sources = [table.sources[symbol] for symbol in form.free_symbols if symbol in table.sources]
    return [
        var for source in sources for load in loads_of(source) for index in load.indices for var in variables_of(index)
    ]


def _loaded(left: sp.Expr, table: AtomTable, group: Group) -> tuple[ir.TensorLoad, sp.Symbol]:
    """The load that is the left operand: the only one that runs along rows and along what is summed over."""
    found = []
    for symbol in sorted(left.free_symbols & table.sources.keys(), key=str):
        load, variables = plain_value(table.sources[symbol]), _variables(symbol, table)
        rows = [var for var in variables if not among(var, group.frame.axis)]
        if load is not None and rows and among_any(group.frame.axis, variables):
            found.append((load, symbol))
    if len(found) != 1:
        told = ", ".join(str(load) for load, _ in found) or "no tensor"
        raise Unfit(f"the left operand of {', '.join(group.names)} is computed from {told}; expected one tensor")
    return found[0]


def _without_round(element: sp.Expr, dtype: str) -> sp.Expr:
    """The element before it is rounded to the operand's dtype, which happens anyhow."""
    return element.args[0] if isinstance(element, Round) and str(element.args[1]) == dtype else element


def _checked(
    program: Program,
    group: Group,
    product: MatrixProduct,
    sums: Sequence[sp.Symbol],
    element: sp.Expr,
    statistics: tuple[Statistic, ...],
    loaded: sp.Symbol,
    table: AtomTable,
) -> GaugedProduct:
    """The shape, with the leaves sorted by what they run along."""
    _check_left(product)
    along: dict[sp.Symbol, ir.Expr] = {}
    per_row: dict[sp.Symbol, ir.Expr] = {}
    used = set().union(element.free_symbols, *(statistic.lift.free_symbols for statistic in statistics))
    for symbol in sorted((used & table.sources.keys()) - {loaded}, key=str):
        source, variables = table.sources[symbol], _variables(symbol, table)
        for load in loads_of(source):
            if program.writer(load.source) is not None:
                raise Unfit(f"{load.source.name} is computed by an inner reduction")
        rows = [var for var in variables if not among(var, group.frame.axis)]
        if rows and among_any(group.frame.axis, variables):
            raise Unfit(f"{source} is a second tensor beside {product.left.load} that runs along rows and their sum")
        if among_any(product.right.line.parts, variables):
            raise Unfit(f"{source} runs along the columns of the result")
        (per_row if rows else along)[symbol] = source
    for statistic in statistics:
        reducer = statistic.component.reducer
        if not any(reducer is known for known in _SUMMED):
            raise Unfit(
                f"{statistic.component.owner} is folded by {reducer}; rows beside products by sums and extremes"
            )
    found = GaugedProduct(product, tuple(sums), element, statistics, loaded, along, per_row)
    if not found.is_lifted and not statistics:
        raise Unfit(f"{product.left.load} is multiplied as it is, with no statistic of its rows")
    return found


def _check_left(product: MatrixProduct) -> None:
    """Whether registers can take the left operand step by step, with nothing outside of it."""
    left, inner = product.left, product.inner
    name = left.operand.buffer.name
    if left.operand.dtype not in PACKED_DTYPES or left.operand.size != 2:
        raise Unfit(f"{name} is {left.operand.dtype}; rows beside products are of float16 or bfloat16")
    if left.across or not left.bulk:
        raise Unfit(f"{left.load}: {inner.var.name} is not contiguous, or rows are no multiple of 16 bytes")
    depth = DEPTH_BYTES // left.operand.size
    if product.outer or len(inner.parts) > 1 or not isinstance(inner.extent, int) or inner.extent % depth:
        extents = " × ".join(map(str, inner.extents))
        raise Unfit(f"{name} is summed over {extents}; rows beside products are one axis of a multiple of {depth}")
