"""Reads the stream shape: a matrix product, or two, folded along its columns, with products as components.

    score[i, l] = Σ_d A[i, d]·B[l, d]
    T = ⊕ over l of lift(score[i, l], …)              a row component, one value a row
    T[f] = Σ over l of w(score[i, l], …)·V[l, f]      a product component, with V as V[l, f] or V[f, l] in memory

Nothing here goes by name: the shape is read off the index maps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import Extent, dtype_of, loads_of, more_than_one, same, uses, variables_of
from tvm_cascade.analysis.tir import product as product_of
from tvm_cascade.tile.attention.packed import Digit, PackedRows, digits_of, pack
from tvm_cascade.tile.element import SCORES
from tvm_cascade.tile.operand import (
    Operand,
    Unfit,
    check_matrix_input,
    check_partners,
    is_copied,
    is_widened,
    plain_value,
    read_operand,
    widened_to,
    with_digits,
)
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.product.fold import ProductFold, Sum, read_fold
from tvm_cascade.tile.product.lines import Line, line_of, runs, runs_along
from tvm_cascade.tile.product.matrix import stored
from tvm_cascade.transform.elements import Dims, with_factors_apart

FULL_ROWS = 64
"""Rows of one variable from which on it is not packed with others: those of an instruction of the tensor cores."""

ENOUGH_ROWS, ENOUGH_TILES, TILE_ROWS = 256, 128, 128
"""The same where all rows of one variable are fewer tiles than processors: sequences that share their keys, say."""


@dataclass(frozen=True)
class Product:
    """A component that is a matrix product: Σ over l of weight(i, l)·value[l, f].

    Attributes
    ----------
    symbol : of the value V in the component's lift.
    value : the operand V, with rows along l or along f.
    free : the frame's variable f.
    width : how many f there are.
    is_transposed : the tensor has l in its contiguous dimension.
    tile : the score whose right operand V is, of several scores: one copy serves both; None where V is another.
    """

    component: Component
    symbol: sp.Symbol
    value: Operand
    free: tirx.Var
    width: int
    is_transposed: bool
    tile: int | None = None

    @property
    def weight(self) -> sp.Expr:
        return self.component.lift.xreplace({self.symbol: sp.S.One})


@dataclass(frozen=True)
class Score:
    """A product of two matrices that is folded.

    Attributes
    ----------
    sum : A·B, whose number and scales multiply every element of it.
    left, right : the operands A and B.
    """

    sum: Sum
    left: Operand
    right: Operand

    @property
    def depth(self) -> int:
        return self.left.width


@dataclass(frozen=True)
class Stream:
    """A group that has the stream shape; its fold is restricted to what the outputs read.

    Attributes
    ----------
    row, position : variables of rows and of the cascade axis.
    batch : the other variables that rows are indexed by, in order.
    scores : the products that are folded, of the same rows and positions; most kernels take one.
    products : the components that are matrix products.
    tiled : the outputs that bulk copies store, by their buffers.
    """

    program: Program
    group: Group
    dims: Dims
    row: tirx.Var
    position: tirx.Var
    batch: tuple[tirx.Var, ...]
    scores: tuple[Score, ...]
    products: tuple[Product, ...]
    outputs: tuple[Output, ...]
    tiled: dict[tirx.Var, Operand]

    @property
    def fold(self) -> Fold:
        return self.group.fold

    def extent(self, var: tirx.Var) -> Extent:
        return self.group.frame.extents[var]

    @property
    def score(self) -> Sum:
        return self.scores[0].sum

    @property
    def left(self) -> Operand:
        return self.scores[0].left

    @property
    def right(self) -> Operand:
        return self.scores[0].right

    @property
    def depth(self) -> int:
        return self.scores[0].depth

    @property
    def lefts(self) -> tuple[Operand, ...]:
        """The left operands, each tile once."""
        return distinct_tiles([score.left for score in self.scores])

    @property
    def left_numbers(self) -> tuple[int, ...]:
        """Which of `lefts` each score has."""
        own = (score.left for score in self.scores)
        return tuple(next(k for k, one in enumerate(self.lefts) if same_tile(left, one)) for left in own)

    @property
    def rights(self) -> tuple[Operand, ...]:
        return tuple(score.right for score in self.scores)

    @property
    def shares_tiles(self) -> bool:
        """Whether one copy of a tile serves a score and a product."""
        return any(product.tile is not None for product in self.products)

    @property
    def few_rows(self) -> int | None:
        """How many rows share the right operands, where they are fewer than the longest of variables has to have."""
        count = self.extent(self.row)
        is_full = self.left.row is not None or self.is_tiled
        return count if isinstance(count, int) and (not is_full or count < FULL_ROWS) else None

    @property
    def is_tiled(self) -> bool:
        """Whether rows of several variables come in tiles as those of one do, and there are enough tiles of them."""
        count, places = self.extent(self.row), product_of(self.extent(var) for var in self.batch)
        if not isinstance(count, int) or not isinstance(places, int) or not self.left.boxes_rows(TILE_ROWS):
            return False
        return count // TILE_ROWS * places >= ENOUGH_TILES // 2

    @property
    def summed(self) -> int:
        """The depths of all scores together."""
        return sum(score.depth for score in self.scores)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return *self.lefts, *self.rights, *(product.value for product in self.products if product.tile is None)

    def product_along(self, output: Output) -> Product | None:
        return product_along(output, self.products)

    @property
    def paged(self) -> bool:
        return any(operand.pages is not None for operand in self.operands)

    @property
    def widened(self) -> bool:
        """Whether elements of an operand are converted on the way to the tensor cores."""
        return any(operand.widened is not None for operand in self.operands)

    @property
    def row_components(self) -> tuple[Component, ...]:
        products = {product.component.symbol for product in self.products}
        return tuple(c for c in self.fold.components if c.symbol not in products)


def read_stream(program: Program, group: Group) -> Stream:
    """The stream shape of a group; see `Skeleton.read`."""
    fold = read_fold(program, group)
    group, outputs = fold.group, fold.outputs
    if any(component.parts for component in group.fold.components):
        raise Unfit("a reduction of tuples keeps its tuples in order")
    if len(fold.axis) != 1:
        raise Unfit("the cascade axis is more than one loop")
    sums, (position,) = _sums(fold), fold.axis
    score = sums[0]
    # In g(score[i, l])·v[l, f] the tensor has to stand by itself.
    group = with_factors_apart(group, lambda atom: _product_with_tensor(atom.expression, score) or ())
    rows = [v for v in score.rows if not v.same_as(position)]
    row, packed, digits = _row_variable(sums, rows, group), None, None
    if isinstance(row, PackedRows):
        if len(sums) > 1:
            raise Unfit(f"{len(sums)} inner reductions feed the fold, and rows of several variables take one")
        packed, row, rows = row, row.row, [*row.batch, row.row]
        group, outputs = packed.of_group(group), tuple(map(packed.of_output, outputs))
        digits, sums = packed.apart(score.left), (packed.of_sum(score),)
    dims = Dims(group)
    products = tuple(p for c in group.fold.components if (p := _product(c, group, dims, rows)) is not None)
    extents = {**fold.extents, **group.frame.extents}
    line, along = line_of([row], extents), line_of([position], extents)
    scores = list[Score]()
    for own in sums:
        deep = line_of(own.axis, extents)
        left = read_operand(own.left, None if packed else line, deep)
        if packed is not None and digits is not None:
            left = with_digits(left, digits, [line_of([var], dict(packed.digits)) for var, _ in packed.digits], deep)
        scores.append(Score(own, left, widened_to(read_operand(own.right, along, deep), left)))
    if len(scores) > 1 and any(one.right.pages is not None for one in scores):
        raise Unfit(f"{len(scores)} inner reductions feed the fold, and operands in pages take one")
    products = tuple(_multiplied(product, scores) for product in products)
    for one in scores:
        _check_operands(one, products, position)
    _check_read_once(products, scores, group)
    tiled = {} if packed else _tiled(outputs, products, line, extents)
    batch = tuple(v for v in rows if not v.same_as(row))
    return Stream(program, group, dims, row, position, batch, tuple(scores), products, outputs, tiled)


def _sums(fold: ProductFold) -> tuple[Sum, ...]:
    """The products that are folded, with scales that are the same all along their sums."""
    if not 1 <= len(fold.producers) <= len(SCORES):
        raise Unfit(f"{len(fold.producers)} inner reductions feed the fold; the shape has one or {len(SCORES)}")
    found = list[Sum]()
    for producer in fold.producers:
        if len(producer.stage.reduce) != 1:
            raise Unfit(f"{producer.stage.buffer.name} is no sum over one loop")
        score = fold.produced(producer)
        if any(uses(scale, score.axis) for scale in score.scales):
            raise Unfit(f"{score.tensor.name} sums {producer.element}, which is no product of two tensors")
        if found and {*score.rows} != {*found[0].rows}:
            raise Unfit(f"{score.tensor.name} and {found[0].tensor.name} do not have the same rows")
        found.append(score)
    return tuple(found)


def check_one_score(stream: Stream) -> None:
    """Checks that one product is folded; Unfit where it is not."""
    if len(stream.scores) > 1:
        raise Unfit(f"{len(stream.scores)} inner reductions feed the fold; these kernels take one")


def product_along(output: Output, products: tuple[Product, ...]) -> Product | None:
    return next((p for p in products if output.runs_along(p.free)), None)


def _tiled(
    outputs: tuple[Output, ...], products: tuple[Product, ...], rows: Line, extents: dict[tirx.Var, Extent]
) -> dict[tirx.Var, Operand]:
    """The outputs with elements of half width in rows along a free axis, as bulk copies store them."""
    tiled = {}
    for output in outputs:
        product = product_along(output, products)
        if product is not None and is_copied(output.buffer, product.width):
            found = stored(output, rows, line_of([product.free], extents))
            if found is None:
                raise Unfit(f"{output.buffer.name} is not stored in rows along {rows.var.name}")
            tiled[output.buffer] = found
    return tiled


def _product_with_tensor(expression: ir.Expr, score: Sum) -> tuple[ir.Expr, ir.Expr] | None:
    """(rest, tensor) of a product in which one factor alone runs along a variable that no score has."""
    if not isinstance(expression, ir.prim.Mul):
        return None

    def is_free(factor: ir.Expr) -> bool:
        return any(not among(v, score.rows) for v in variables_of(factor))

    for rest, tensor in ((expression.a, expression.b), (expression.b, expression.a)):
        if is_free(tensor) and not is_free(rest) and plain_value(tensor) is not None:
            return rest, tensor
    return None


def _multiplied(product: Product, scores: Sequence[Score]) -> Product:
    """A product of values as they are multiplied: those along the axis with weights that the program rounds alike."""
    if product.is_transposed:
        return product
    own = (k for k, score in enumerate(scores) if len(scores) > 1 and same_tile(product.value, score.right))
    return dataclasses.replace(product, value=widened_to(product.value, scores[0].left), tile=next(own, None))


def same_tile(one: Operand, other: Operand) -> bool:
    """Whether rows of two operands are of one tensor, at the same places, so that one copy of a tile serves both."""
    if not one.buffer.same_as(other.buffer) or one.row != other.row or len(one.shape) != len(other.shape):
        return False
    alike = zip(one.shape, other.shape, strict=True)
    places = ((one.indices[d], other.indices[d]) for d in range(len(other.indices) - 1))
    return all(same(a, b) for a, b in alike) and all(same(a, b) for a, b in places)


def distinct_tiles(operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """Operands without those whose tiles are those of one before."""
    found = list[Operand]()
    for operand in operands:
        if not any(same_tile(operand, other) for other in found):
            found.append(operand)
    return tuple(found)


def _product(component: Component, group: Group, dims: Dims, rows: list[tirx.Var]) -> Product | None:
    """The component as a matrix product; None where it has one value a row."""
    free = [v for v in dims.of(component.lift) if not any(v.same_as(r) for r in rows)]
    if not free:
        return None
    name, position = str(component.owner), group.frame.axis[0]
    factors = [f for f in sp.Mul.make_args(component.lift) if any(v.same_as(free[0]) for v in dims.of(f))]
    if len(free) > 1 or len(factors) != 1 or component.reducer is not SUM:
        raise Unfit(f"{name} is no product of row values and one tensor along one free axis")
    atom = next((a for a in group.atoms.atoms.values() if a.symbol == factors[0]), None)
    load = None if atom is None else plain_value(atom.expression)
    if atom is None or load is None:
        raise Unfit(f"{name}: {factors[0]} is no plain tensor")
    width = group.frame.extents[free[0]]
    if not isinstance(width, int):
        raise Unfit(f"{load}: {free[0].name} has a symbolic extent")
    is_transposed = runs_along(load.indices[-1], position)
    lines = [line_of([var], group.frame.extents) for var in (free[0], position)]
    value = read_operand(load, *(lines if is_transposed else reversed(lines)))
    return Product(component, atom.symbol, value, free[0], width, is_transposed)


def _shared_indices(group: Group, rights: Sequence[ir.TensorLoad], rows: list[tirx.Var]) -> list[ir.Expr]:
    """The indices of every operand but left ones: what runs along an axis that neither rows nor positions have."""
    known = [*rows, *group.frame.axis]
    free = [v for v in group.frame.extents if not any(v.same_as(other) for other in known)]
    atoms = [a.expression for a in group.atoms.atoms.values() if uses(a.expression, free)]
    return [index for load in (*rights, *(load for atom in atoms for load in loads_of(atom))) for index in load.indices]


def _row_variable(sums: Sequence[Sum], rows: list[tirx.Var], group: Group) -> tirx.Var | PackedRows:
    """The longest variable that left operands alone run along; several, or parts of some, where that is short.

    Also where tiles are converted, which kernels of packed rows do.
    """
    extents, shared = group.frame.extents, _shared_indices(group, [score.right for score in sums], rows)
    own = [v for v in rows if all(runs(score.left, v) for score in sums)]
    alone = [v for v in own if not any(uses(index, [v]) for index in shared) and more_than_one(extents[v])]

    def length(var: tirx.Var) -> float:
        extent = extents[var]
        return extent if isinstance(extent, int) else float("inf")

    longest = max(alone, key=length, default=None)
    digits = digits_of(own, extents, shared)
    if (longest is None or length(longest) < float("inf")) and _is_converted(group, sums[0]):
        return pack(digits, rows, extents)
    if longest is not None and length(longest) >= (FULL_ROWS if len(digits) == 1 else ENOUGH_ROWS):
        return longest
    if longest is not None and length(longest) >= FULL_ROWS and not _fill_tiles(digits, longest, group):
        others = [length(v) for v in rows if not v.same_as(longest)]
        if math.prod(others) * math.ceil(length(longest) / TILE_ROWS) >= ENOUGH_TILES:
            return longest
    if longest is not None and len(digits) == 1 and digits[0].quotient is None:
        return longest
    return pack(digits, rows, extents)


def _fill_tiles(digits: list[Digit], longest: tirx.Var, group: Group) -> bool:
    """Whether packed rows fill tiles that the longest variable alone does not, and none of them is masked."""
    inner = math.prod(digit.extent for digit in digits[1:])
    masked = any(atom.indicator for atom in group.atoms.atoms.values())
    is_outermost = digits[0].variable.same_as(longest) and digits[0].quotient is None
    return is_outermost and digits[0].extent < TILE_ROWS and TILE_ROWS % inner == 0 and not masked


def _is_converted(group: Group, score: Sum) -> bool:
    """Whether tiles of the right operand, or of any other tensor, are converted to the left one's dtype."""
    others = (load for atom in group.atoms.atoms.values() for load in loads_of(atom.expression))
    return any(is_widened(dtype_of(load.source), dtype_of(score.left.source)) for load in (score.right, *others))


def _check_operands(score: Score, products: tuple[Product, ...], position: tirx.Var) -> None:
    for operand in (score.left, score.right, *(product.value for product in products)):
        check_matrix_input(operand)
    check_partners(score.left, score.right)
    for product in products:
        if product.value.size == 1 and not product.is_transposed:
            raise Unfit(
                f"{product.value}: {product.free.name} is contiguous; the tensor cores multiply {product.value.dtype} "
                f"where {position.name} is"
            )
    if score.left.width != score.right.width:
        raise Unfit(f"{score.left} and {score.right} have rows of different length")


def _check_read_once(products: Sequence[Product], scores: Sequence[Score], group: Group) -> None:
    inputs = [load for a in group.atoms.atoms.values() for load in loads_of(a.expression)]
    for product in products:
        count = sum(load.source.same_as(product.value.buffer) for load in inputs)
        if count > 1 and not any(product.value.buffer.same_as(score.right.buffer) for score in scores):
            raise Unfit(f"{product.value.buffer.name} is read in two ways")
