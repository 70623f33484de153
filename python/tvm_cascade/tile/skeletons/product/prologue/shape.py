"""Reads the shape of a product with a prologue: sums of products, and folds of the left operand's own rows beside them.

    c[m, n] = Σ_k e(A[m, k], g[k], s[m])·B[n, k]        t[m] = ⊕_k f(A[m, k], g[k], s[m])
    out[m, n] = map of c[m, n], t[m] and of inputs

A row statistic that the fold defers to its finish, as that of an RMS normalisation, is one of the t: the left operand
is read once, for both. An element e that is no plain load is computed in registers, from tensors of k and of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Component
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, loads_of
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.fragment import DTYPE
from tvm_cascade.tile.operand import PACKED_DTYPES, Unfit, plain_value
from tvm_cascade.tile.product.fold import ProductFold, Sum, check_summed, read_fold
from tvm_cascade.tile.product.matrix import MatrixProduct
from tvm_cascade.tile.skeletons.product.shape import DEPTH_BYTES, MOST_SUMS, SUMMED_IN, for_tensor_cores

_SUMMED = (SUM, MAX, MIN)
"""Reducers of statistics that lanes exchange by themselves."""


_OF_ANY_RANGE = ("bfloat16",)
"""Dtypes of 16 bits with the range of float32: an element is rounded to them as well before its factor as after."""


@dataclass(frozen=True)
class PrologueProduct:
    """A group that has the shape.

    Attributes
    ----------
    product : its sums of products, as if the left operand were a plain tensor.
    element : what is multiplied, over the leaves; rounded to the operand's dtype.
    statistics : folds of the left operand's rows: states, and what an element adds, over the leaves.
    loaded : the leaf that stands for an element of the left operand as it is loaded.
    along, per_row : leaves that run along what is summed over alone, and those that have one value a row.
    """

    product: MatrixProduct
    element: sp.Expr
    statistics: dict[Component, sp.Expr]
    loaded: sp.Symbol
    along: dict[sp.Symbol, ir.Expr]
    per_row: dict[sp.Symbol, ir.Expr]

    def __str__(self) -> str:
        """What is multiplied, and what rows are folded into, in formulas over the tensors' names."""
        leaves = {self.loaded: self.product.left.load, **self.along, **self.per_row}
        names = {symbol: sp.Symbol(_name(source)) for symbol, source in leaves.items()}
        beside = [f"{c.symbol} {c.reducer}= {lift.xreplace(names)}" for c, lift in self.statistics.items()]
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


def read_prologue(program: Program, group: Group) -> PrologueProduct:
    """The shape of a group; see `Skeleton.read`."""
    fold = read_fold(program, _with_columns_in_common(group))
    if references := fold.group.fold.references:
        moving = ", ".join(str(reference.tracks) for reference in references)
        raise Unfit(f"{fold.name} move with {moving}, which is known at the end of a row alone")
    sides = {component: side for component, lift in fold.lifts.items() if (side := _sides(lift, fold)) is not None}
    if not 1 <= len(sides) <= MOST_SUMS or any(component.reducer is not SUM for component in sides):
        raise Unfit(f"{fold.name} hold {len(sides)} sums of products; the shape has one to {MOST_SUMS}")
    _, left, _ = next(iter(sides.values()))
    if any(other != left for _, other, _ in sides.values()):
        raise Unfit(f"{fold.name} are products that have no left operand in common")
    load, loaded = _loaded(left, fold)
    check_summed(fold.tensors, (DTYPE,), SUMMED_IN)
    sums = tuple(
        Sum(component.symbol, fold.tensor_of(component), fold.axis, fold.rows, factor, (), load, right)
        for component, (factor, _, right) in sides.items()
    )
    product = for_tensor_cores(fold, sums, fold.outputs)
    statistics = {component: lift for component, lift in fold.lifts.items() if component not in sides}
    dtype = product.left.dtype
    if left != loaded and statistics and not isinstance(left, Round) and dtype not in _OF_ANY_RANGE:
        name = _name(fold.leaves.sources[loaded])
        raise Unfit(f"{name} before its factor may be beyond {dtype}, which it is rounded to")
    _check_left(product)
    # It is rounded to the operand's dtype anyhow.
    element = left.args[0] if isinstance(left, Round) and str(left.args[1]) == dtype else left
    along, per_row = _sorted_leaves(product, [element, *statistics.values()], loaded)
    for component in statistics:
        if not any(component.reducer is known for known in _SUMMED):
            told = f"{component.owner} is folded by {component.reducer}"
            raise Unfit(f"{told}; rows with statistics by sums and extremes")
    if element == loaded and not statistics:
        raise Unfit(f"{product.left.load} is multiplied as it is, with no statistic of its rows")
    return PrologueProduct(product, element, statistics, loaded, along, per_row)


def _name(source: ir.Expr) -> str:
    load = plain_value(source)
    return str(source if load is None else load)


def _with_columns_in_common(group: Group) -> Group:
    """A group of several products as one whose products have their columns in common."""
    products = [member for member in group.members if find_factors(member.stage) is not None]
    joint = group.among.joint() if len(products) > 1 else None
    return joint if joint is not None and len(joint.members) == len(group.members) else group


def _sides(lift: sp.Expr, fold: ProductFold) -> tuple[sp.Expr, sp.Expr, ir.TensorLoad] | None:
    """(factor, left, right) of a product; None where no plain right one alone runs along the outputs' columns."""
    columns = [output.indices[-1] for output in fold.outputs if output.indices]
    factor, factors = lift.as_coeff_mul()
    right = [f for f in factors if among_any(columns, fold.leaves.variables(f))]
    load = fold.leaves.load(right[0]) if len(right) == 1 and len(factors) > 1 else None
    return None if load is None else (factor, sp.Mul(*(f for f in factors if f != right[0])), load)


def among_any(some: Iterable[ir.Expr], variables: Sequence[tirx.Var]) -> bool:
    return any(among(var, variables) for var in some)


def _loaded(left: sp.Expr, fold: ProductFold) -> tuple[ir.TensorLoad, sp.Symbol]:
    """The load that is the left operand: the only one that runs along rows and along what is summed over."""
    found = []
    for symbol in sorted(left.free_symbols & fold.leaves.sources.keys(), key=str):
        load, variables = fold.leaves.load(symbol), fold.leaves.variables(symbol)
        rows = [var for var in variables if not among(var, fold.axis)]
        if load is not None and rows and among_any(fold.axis, variables):
            found.append((load, symbol))
    if len(found) != 1:
        told = ", ".join(str(load) for load, _ in found) or "no tensor"
        raise Unfit(f"the left operand of {fold.name} is computed from {told}; expected one tensor")
    return found[0]


def _sorted_leaves(
    product: MatrixProduct, forms: Iterable[sp.Expr], loaded: sp.Symbol
) -> tuple[dict[sp.Symbol, ir.Expr], dict[sp.Symbol, ir.Expr]]:
    """The leaves that run along what is summed over alone, and those that have one value a row, of some formulas."""
    fold, leaves = product.fold, product.fold.leaves
    along, per_row = dict[sp.Symbol, ir.Expr](), dict[sp.Symbol, ir.Expr]()
    used = set[sp.Symbol]().union(*(form.free_symbols for form in forms))
    for symbol in sorted((used & leaves.sources.keys()) - {loaded}, key=str):
        source, variables = leaves.sources[symbol], leaves.variables(symbol)
        fold.check_inputs(loads_of(source))
        rows = [var for var in variables if not among(var, fold.axis)]
        if rows and among_any(fold.axis, variables):
            raise Unfit(f"{source} is a second tensor besides {product.left.load} that runs along rows and their sum")
        if among_any(product.right.line.parts, variables):
            raise Unfit(f"{source} runs along the columns of the result")
        (per_row if rows else along)[symbol] = source
    return along, per_row


def _check_left(product: MatrixProduct) -> None:
    """Whether registers can take the left operand step by step, with nothing outside of it."""
    left, inner = product.left, product.inner
    name = left.operand.buffer.name
    if left.operand.dtype not in PACKED_DTYPES or left.operand.size != 2:
        raise Unfit(f"{name} is {left.operand.dtype}; rows with statistics are of float16 or bfloat16")
    if left.across or not left.bulk:
        raise Unfit(f"{left.load}: {inner.var.name} is not contiguous, or rows are no multiple of 16 bytes")
    depth = DEPTH_BYTES // left.operand.size
    if product.outer or len(inner.parts) > 1 or not isinstance(inner.extent, int) or inner.extent % depth:
        extents = " × ".join(map(str, inner.extents))
        raise Unfit(f"{name} is summed over {extents}; rows with statistics are one axis of a multiple of {depth}")
