"""Reads the stream shape: a matrix product folded along its columns, with products as components.

    score[i, l] = Σ_d A[i, d]·B[l, d]
    T = ⊕ over l of lift(score[i, l], …)              a row component, one value a row
    T[f] = Σ over l of w(score[i, l], …)·V[l, f]      a product component, with V as V[l, f] or V[f, l] in memory

Nothing here goes by name: the shape is read off the index maps.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.expression import AtomTable
from tvm_cascade.analysis.extent import Extent, more_than_one
from tvm_cascade.analysis.extent import product as product_of
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute, uses, variables_of
from tvm_cascade.tile.attention.packed import Digit, PackedRows, digits_of, pack
from tvm_cascade.tile.operand import (
    Line,
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
from tvm_cascade.tile.output import Output, read_outputs, stored_operand
from tvm_cascade.transform.dims import Dims
from tvm_cascade.transform.factors import with_factors_apart
from tvm_cascade.transform.producers import Producer, find_producers

FULL_ROWS = 64
"""Rows of one variable from which on it is not packed with others: those of an instruction of the tensor cores."""

ENOUGH_ROWS, ENOUGH_TILES, TILE_ROWS = 256, 128, 128
"""The same where all rows of one variable are fewer tiles than processors: sequences that share their keys, say."""


@dataclass(frozen=True)
class Product:
    """A component that is a matrix product: Σ over l of weight(i, l)·value[l, f].

    Attributes
    ----------
    component : of the fold.
    symbol : of the value V in the component's lift.
    value : the operand V, with rows along l or along f.
    free : the frame's variable f.
    width : how many f there are.
    is_transposed : the tensor has l in its contiguous dimension.
    """

    component: Component
    symbol: sp.Symbol
    value: Operand
    free: tirx.Var
    width: int
    is_transposed: bool


@dataclass(frozen=True)
class Stream:
    """A group that has the stream shape; its fold is restricted to what the outputs read.

    Attributes
    ----------
    row, position, inner : variables of rows, of the cascade axis, and of the score's own reduction.
    batch : the other variables that rows are indexed by, in order.
    left, right : the operands A and B.
    left_load : the load that A is.
    score : the buffer of A·B; the number `factor` and the inputs `scales` multiply every element of it.
    products : the components that are matrix products.
    tiled : the outputs that bulk copies store, by their buffers.
    """

    program: Program
    group: Group
    dims: Dims
    row: tirx.Var
    position: tirx.Var
    inner: tirx.Var
    batch: tuple[tirx.Var, ...]
    left: Operand
    left_load: ir.TensorLoad
    right: Operand
    score: tirx.Var
    factor: sp.Expr
    scales: tuple[ir.Expr, ...]
    products: tuple[Product, ...]
    outputs: tuple[Output, ...]
    tiled: dict[tirx.Var, Operand]

    @property
    def fold(self) -> Fold:
        """What is computed."""
        return self.group.fold

    def extent(self, var: tirx.Var) -> Extent:
        """Extent of a variable of the frame."""
        return lookup(self.group.frame.extents, var)

    @property
    def depth(self) -> int:
        """The inner extent of the score product."""
        return self.left.width

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
    def operands(self) -> tuple[Operand, ...]:
        """What the tensor cores multiply."""
        return self.left, self.right, *(product.value for product in self.products)

    @property
    def paged(self) -> bool:
        """Whether a table finds the rows of an operand."""
        return any(operand.pages is not None for operand in self.operands)

    @property
    def widened(self) -> bool:
        """Whether elements of an operand are converted on the way to the tensor cores."""
        return any(operand.widened is not None for operand in self.operands)

    @property
    def row_components(self) -> tuple[Component, ...]:
        """The components with one value a row."""
        products = {product.component.symbol for product in self.products}
        return tuple(c for c in self.fold.components if c.symbol not in products)


def read_stream(program: Program, group: Group) -> Stream:
    """The stream shape of a group.

    Raises
    ------
    Unfit
        Where the group does not have it, or the function has more to do than the group and maps of its results.
    """
    outputs, results = read_outputs(program, group)
    group = dataclasses.replace(group, fold=group.fold.restricted_to(results))
    if any(component.parts for component in group.fold.components):
        raise Unfit("a reduction of tuples keeps its tuples in order")
    if len(group.frame.axis) != 1:
        raise Unfit("the cascade axis is more than one loop")
    producers = find_producers(program, group, set())
    if len(producers) != 1:
        raise Unfit(f"{len(producers)} inner reductions feed the fold; the shape has one")
    producer, position = producers[0], group.frame.axis[0]
    group = _with_tensors_apart(group, producer)
    factors = _factors_of(producer)
    left, right = sorted(factors.loads, key=lambda load: uses_variable(load, position))
    rows = [v for v in producer.variables.values() if not v.same_as(position)]
    row = _row_variable(left, right, rows, group)
    packed, scales = None, factors.scales
    if isinstance(row, PackedRows):
        packed, row, rows = row, row.row, [*row.batch, row.row]
        group, outputs = packed.of_group(group), tuple(map(packed.of_output, outputs))
        digits = packed.apart(left)
        left, right = packed.of_load(left), packed.of_load(right)
        scales = tuple(map(packed.of, scales))
    dims = Dims(group)
    products = tuple(p for c in group.fold.components if (p := _product(c, group, dims, rows)) is not None)
    inner = producer.stage.reduce[0]
    extents = {**group.frame.extents, inner: producer.stage.extents[inner]}
    lines = [(var, lookup(extents, var)) for var in (row, position, inner)]
    operands = read_operand(left, None if packed else lines[0], lines[2]), read_operand(right, lines[1], lines[2])
    if packed is not None:
        operands = with_digits(operands[0], digits, packed.digits, lines[2]), operands[1]
    operands = operands[0], widened_to(operands[1], operands[0])
    products = tuple(_widened(product, operands[0]) for product in products)
    _check_operands(operands, products, position, group)
    tiled = {} if packed else _tiled(outputs, products, lines[0])
    return Stream(
        program, group, dims, row, position, inner, tuple(v for v in rows if not v.same_as(row)), operands[0], left,
        operands[1], producer.stage.buffer, factors.number, scales, products, outputs, tiled,
    )  # fmt: skip


def product_along(output: Output, products: tuple[Product, ...]) -> Product | None:
    """The product along whose free axis an output runs."""
    return next((p for p in products if output.runs_along(p.free)), None)


def _tiled(outputs: tuple[Output, ...], products: tuple[Product, ...], row: Line) -> dict[tirx.Var, Operand]:
    """The outputs with elements of half width in rows along a free axis, as bulk copies store them."""
    tiled = {}
    for output in outputs:
        product = product_along(output, products)
        if product is not None and is_copied(output.buffer, product.width):
            tiled[output.buffer] = stored_operand(output, row, (product.free, product.width))
    return tiled


def uses_variable(load: ir.TensorLoad, var: tirx.Var) -> bool:
    """Whether any index of a load runs along a variable."""
    return any(uses(index, [var]) for index in load.indices)


def _with_tensors_apart(group: Group, producer: Producer) -> Group:
    """The group with every element that is a product with one plain tensor as a product of two elements.

    In g(score[i, l])·v[l, f] the tensor has to stand by itself.
    """
    return with_factors_apart(group, lambda atom: _product_with_tensor(atom.expression, producer) or ())


def _product_with_tensor(expression: ir.Expr, producer: Producer) -> tuple[ir.Expr, ir.Expr] | None:
    """(rest, tensor) of a product in which one factor alone runs along a variable that no score has."""
    if not isinstance(expression, ir.prim.Mul):
        return None

    def is_free(factor: ir.Expr) -> bool:
        return any(not any(v.same_as(o) for o in producer.variables.values()) for v in variables_of(factor))

    for rest, tensor in ((expression.a, expression.b), (expression.b, expression.a)):
        if is_free(tensor) and not is_free(rest) and plain_value(tensor) is not None:
            return rest, tensor
    return None


def _widened(product: Product, left: Operand) -> Product:
    """A product of values as they are multiplied: those along the axis with weights that the program rounds alike."""
    if product.is_transposed:
        return product
    return dataclasses.replace(product, value=widened_to(product.value, left))


@dataclass(frozen=True)
class _Factors:
    """What a producer sums, over the frame's variables: number·scales·loads[0]·loads[1], only loads along its sum."""

    number: sp.Expr
    scales: tuple[ir.Expr, ...]
    loads: tuple[ir.TensorLoad, ir.TensorLoad]


def _factors_of(producer: Producer) -> _Factors:
    name = producer.stage.buffer.name
    if producer.stage.reducer is not SUM or len(producer.stage.reduce) != 1:
        raise Unfit(f"{name} is no sum over one loop")
    table = AtomTable(())
    number, factors = table.form(producer.element).as_coeff_mul()
    loads, scales = [], []
    for factor in factors:
        source = table.sources.get(factor, table.sources.get(1 / factor))
        if source is None:
            raise Unfit(f"{name}: the factor {factor} is no number")
        own = substitute(source, dict(producer.variables))
        load = plain_value(own) if factor in table.sources else None
        if not uses(own, [producer.stage.reduce[0]]):
            scales.append(own if factor in table.sources else tirx.const(1.0, dtype_of(own)) / own)
        elif load is not None:
            loads.append(load)
    if len(loads) != 2 or len(loads) + len(scales) != len(factors):
        raise Unfit(f"{name} sums {producer.element}, which is no product of two tensors")
    if not number.is_number:
        raise Unfit(f"{name}: the factor {number} is no number")
    return _Factors(number, tuple(scales), (loads[0], loads[1]))


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
    width = lookup(group.frame.extents, free[0])
    if not isinstance(width, int):
        raise Unfit(f"{load}: {free[0].name} has a symbolic extent")
    is_transposed = isinstance(load.indices[-1], ir.Var) and load.indices[-1].same_as(position)
    lines = (free[0], width), (position, lookup(group.frame.extents, position))
    value = read_operand(load, *(lines if is_transposed else reversed(lines)))
    return Product(component, atom.symbol, value, free[0], width, is_transposed)


def _shared_indices(group: Group, right: ir.TensorLoad, rows: list[tirx.Var]) -> list[ir.Expr]:
    """The indices of every operand but the left one: what runs along an axis that neither rows nor positions have."""
    known = [*rows, *group.frame.axis]
    free = [v for v in group.frame.extents if not any(v.same_as(other) for other in known)]
    atoms = [a.expression for a in group.atoms.atoms.values() if uses(a.expression, free)]
    return [index for load in (right, *(load for atom in atoms for load in loads_of(atom))) for index in load.indices]


def _row_variable(
    left: ir.TensorLoad, right: ir.TensorLoad, rows: list[tirx.Var], group: Group
) -> tirx.Var | PackedRows:
    """The longest variable that the left operand alone runs along; several, or parts of some, where that is short.

    Also where tiles are converted, which kernels of packed rows do.
    """
    extents, shared = group.frame.extents, _shared_indices(group, right, rows)
    alone = [v for v in rows if uses_variable(left, v) and not any(uses(index, [v]) for index in shared)]
    alone = [v for v in alone if more_than_one(lookup(extents, v))]

    def length(var: tirx.Var) -> float:
        extent = lookup(extents, var)
        return extent if isinstance(extent, int) else float("inf")

    longest = max(alone, key=length, default=None)
    digits = digits_of([v for v in rows if uses_variable(left, v)], extents, shared)
    if (longest is None or length(longest) < float("inf")) and _is_converted(group, left, right):
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


def _is_converted(group: Group, left: ir.TensorLoad, right: ir.TensorLoad) -> bool:
    """Whether tiles of the right operand, or of any other tensor, are converted to the left one's dtype."""
    others = (load for atom in group.atoms.atoms.values() for load in loads_of(atom.expression))
    return any(is_widened(dtype_of(load.source), dtype_of(left.source)) for load in (right, *others))


def _check_operands(
    operands: tuple[Operand, Operand], products: tuple[Product, ...], position: tirx.Var, group: Group
) -> None:
    every = [*operands, *(product.value for product in products)]
    for operand in every:
        check_matrix_input(operand)
    check_partners(*operands)
    for product in products:
        if product.value.size == 1 and not product.is_transposed:
            raise Unfit(
                f"{product.value}: {product.free.name} is contiguous; the tensor cores multiply {product.value.dtype} "
                f"where {position.name} is"
            )
    if operands[0].width != operands[1].width:
        raise Unfit(f"{operands[0]} and {operands[1]} have rows of different length")
    inputs = [load for a in group.atoms.atoms.values() for load in loads_of(a.expression)]
    for product in products:
        count = sum(load.source.same_as(product.value.buffer) for load in inputs)
        if count > 1 and not product.value.buffer.same_as(operands[1].buffer):
            raise Unfit(f"{product.value.buffer.name} is read in two ways")
