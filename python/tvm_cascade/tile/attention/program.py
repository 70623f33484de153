"""The tile program: the step program over a tile of a matrix product, as data.

A tile program says what is computed, in which order and at which level (per register, per row, per accumulator); it
does not say how data moves or who computes it: that is a skeleton's (`tile.skeletons`). Of attention it is that of
T. Dao, FlashAttention-2 (2023). It prints as text:

    registers r = score, element = 0.125·r
    reduce    row_max_0: max over r, across lanes, then 0.125·p
    …
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.facts.extent import UNIT, Extent, Extents
from tvm_cascade.algebra.facts.weight import Offsets, offsets_of
from tvm_cascade.algebra.fold import Fold, Reference
from tvm_cascade.algebra.policy import LAZY_DISTANCE, Move, Policy, Range
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.algebra.scaled import can_scale, with_factors, with_scales
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.tir import dtype_of, loads_by, loads_of, substitute, uses
from tvm_cascade.steps.program import (
    Combine,
    Element,
    Reduce,
    Scale,
    Shift,
    Step,
    StepProgram,
    program_of,
    update_order,
)
from tvm_cascade.steps.verify import verify
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.printing import formula
from tvm_cascade.symbolic.rounding import FORMATS, NARROW_RANGE
from tvm_cascade.tile.attention.near_zero import NearZero, find_near_zero
from tvm_cascade.tile.attention.optimistic import Optimistic, find_optimistic, free_extreme
from tvm_cascade.tile.attention.shape import Product, Stream
from tvm_cascade.tile.attention.standing import Standing, find_standing
from tvm_cascade.tile.attention.steps import PARTIAL, Accumulate, Hoisted, RegisterElement, TileReduce
from tvm_cascade.tile.element import REGISTER, REGISTERS, SCORES, read_element
from tvm_cascade.tile.element import Element as ScoreElement
from tvm_cascade.tile.fragment import DTYPE, in_base_two
from tvm_cascade.tile.operand import COPY_ALIGNMENT, MATRIX_DTYPES, Operand, Unfit, dtypes_text, read_operand
from tvm_cascade.tile.product.lines import line_of
from tvm_cascade.transform.dead_tiles import (
    Absorbing,
    Relation,
    absorbed_where_it_fails,
    block_conditions,
    dead_positions,
)
from tvm_cascade.transform.elements import plan_elements

LARGEST_SCALED = 2.0e38
"""Elements up to this may be multiplied by log₂e in float32."""


@dataclass(frozen=True)
class TileProgram:
    """The program of one tile.

    Attributes
    ----------
    body : the steps of what has one value a row, refined for registers; afterwards the accumulations.
    row_inputs, position_inputs : symbols that stand for inputs, once a row or once a position, as TIR over the frame.
    conditions : symbols that are 1 where a condition holds and 0 elsewhere.
    across_lanes : components of rows that every lane holds whole.
    skip : integers, over the frame, none of which is negative at a position that any state would notice.
    of_blocks : conditions that are the same for blocks of rows and positions.
    needed : those of them that hold there.
    optimistic : how tiles are folded without moving the reference; None where it has to follow every tile.
    standing : which scales of weights stay where they are; None where there are none.
    near_zero : how scores are mapped where they are small; None where that is as where they are not.
    """

    stream: Stream
    element: ScoreElement
    body: StepProgram
    accumulations: tuple[Accumulate, ...]
    row_inputs: dict[sp.Symbol, ir.Expr]
    position_inputs: dict[sp.Symbol, ir.Expr]
    conditions: dict[sp.Symbol, ir.Expr]
    across_lanes: frozenset[sp.Symbol]
    skip: tuple[ir.Expr, ...] = ()
    optimistic: Optimistic | None = None
    near_zero: NearZero | None = None
    of_blocks: tuple[ir.Expr, ...] = ()
    needed: tuple[ir.Expr, ...] = ()
    standing: Standing | None = None

    @cached_property
    def offsets(self) -> Offsets:
        """Of components, references and results, by which sums are written."""
        return offsets_of(self.stream.fold)

    @property
    def loads(self) -> list[ir.TensorLoad]:
        """What is read beside the operands of products, element by element."""
        inputs = [*self.row_inputs.values(), *self.position_inputs.values(), *self.conditions.values()]
        element = [*self.element.leaves.values(), *(mask.condition for mask in self.element.masks)]
        stored = [output.value for output in self.stream.outputs]
        scales = [scale for score in self.stream.scores for scale in score.sum.scales]
        return [load for e in (*inputs, *element, *scales, *self.skip, *stored) for load in loads_of(e)]

    @cached_property
    def rows_along(self) -> dict[sp.Symbol, Operand]:
        """Inputs of positions that are rows of a tensor, whose parts come with tiles that are kept until the end."""
        found = dict[sp.Symbol, Operand]()
        along = line_of([self.stream.position], self.stream.group.frame.extents)
        for symbol, load in self.position_inputs.items() if self.stream.shares_tiles else ():
            if isinstance(load, ir.TensorLoad) and dtype_of(load) == DTYPE and not uses(load, [self.stream.row]):
                with suppress(Unfit):
                    operand = read_operand(load, None, along)
                    if operand.width * operand.stored_size % COPY_ALIGNMENT == 0:
                        found[symbol] = operand
        return found

    @property
    def uneven(self) -> bool:
        return bool(self.skip)

    @property
    def loads_bounds(self) -> bool:
        """Whether the tiles that rows visit are found by what is loaded for each row, or for each position."""
        of_either = (self.stream.row, self.stream.position)
        return any(loads_by(slack, var) for slack in self.skip for var in of_either)

    def __str__(self) -> str:
        stream, element = self.stream, self.element
        lines = list[str]()
        for name, score in zip(SCORES, stream.scores, strict=False):
            dtypes = dtypes_text(score.left.dtype, score.right.dtype)
            lines.append(f"{name!s:<9} {score.left} @ {score.right}ᵀ {dtypes}")
        lines += [f"registers {r} = {formula(of)}" for r, of in zip(REGISTERS, element.maps, strict=False)]
        lines += [str(self.near_zero)] if self.near_zero else []
        lines += map(str, element.masks)
        lines += [f"visit     tiles with {condition}" for condition in self.needed]
        lines += map(str, (*self.body.steps, *self.accumulations))
        lines += [str(way) for way in (self.optimistic, self.standing) if way]
        lines += map(str, self.body.finish)
        lines += [f"store     {o.buffer.name}[{', '.join(map(str, o.indices))}] = {o.value}" for o in stream.outputs]
        return "\n".join(lines)


def build_program(stream: Stream) -> TileProgram:
    """The tile program of a group of the stream shape.

    Unfit where its elements or shifts are not of a form that tiles in registers take.
    """
    atoms = list(stream.group.atoms.atoms.values())
    element = read_element(atoms, [score.sum for score in stream.scores])
    return _Refinement(_in_range(_without_factors(stream, element), element), element, stream.group).run()


def _without_factors(stream: Stream, element: ScoreElement) -> Stream:
    """The stream, with the numbers that multiply every element of a sum left to its result."""
    fold = stream.fold
    lifts = {c.symbol: c.lift.xreplace(element.values) for c in fold.components if can_scale(fold, c)}
    found = {symbol: lift.as_coeff_Mul()[0] for symbol, lift in lifts.items() if lift.has(*REGISTERS)}
    factors = {symbol: factor for symbol, factor in found.items() if factor != 1}
    return _of_fold(stream, with_factors(fold, factors)) if factors else stream


def _in_range(stream: Stream, element: ScoreElement) -> Stream:
    """The stream, with weights relative to the largest of their row where the dtype of values may not hold them."""
    fold = stream.fold
    weights = {
        product.component.symbol: product.weight
        for product in stream.products
        if MATRIX_DTYPES[product.value.dtype].implied
        and not _fits(product, product.value.dtype, stream, element)
        and can_scale(fold, product.component)
    }
    if not weights:
        return stream
    return _of_fold(stream, with_scales(fold, weights))


def _of_fold(stream: Stream, fold: Fold) -> Stream:
    """The stream by another fold of the same components."""
    by_symbol = {component.symbol: component for component in fold.components}
    products = tuple(dataclasses.replace(p, component=by_symbol[p.component.symbol]) for p in stream.products)
    return dataclasses.replace(stream, group=dataclasses.replace(stream.group, fold=fold), products=products)


def _fits(product: Product, dtype: str, stream: Stream, element: ScoreElement) -> bool:
    """Whether a dtype has the range of a product's weights for all data, or the program itself rounds them to it."""
    weight = product.weight.xreplace(element.values)
    weight = weight.xreplace(dict(zip(REGISTERS, element.maps, strict=False)))
    references = {reference.symbol for reference in stream.fold.references}
    if isinstance(weight, Round) and str(weight.args[1]) == dtype and not weight.free_symbols & references:
        return True
    conditions = [atom.symbol for atom in stream.group.atoms.atoms.values() if atom.indicator]
    return dtype not in NARROW_RANGE or is_bounded(weight, FORMATS[dtype].largest, stream.fold, conditions)


class _Refinement:
    """Lowers the step program to tiles: products to tensor cores, the rest to registers; `group` is as it was read."""

    def __init__(self, stream: Stream, element: ScoreElement, group: Group) -> None:
        self.stream, self.element, self.group = stream, element, group
        plan = plan_elements(stream.fold.components, [], stream.dims)
        self.program, self.lifts = program_of(stream.fold, plan.temporaries, plan.lifts), plan.lifts
        self.meaning = {temporary.symbol: temporary.expression for temporary in plan.temporaries}
        self.products = {product.component.symbol for product in stream.products}
        values = {product.symbol for product in stream.products}
        known = values | element.values.keys()
        atoms = [a for a in stream.group.atoms.atoms.values() if a.symbol not in known]
        inputs = {a.symbol: a.expression for a in atoms if not a.indicator} | element.leaves
        self.position_inputs = {s: e for s, e in inputs.items() if uses(e, [stream.position])}
        self.row_inputs = {s: e for s, e in inputs.items() if s not in self.position_inputs}
        self.conditions = {a.symbol: a.expression for a in atoms if a.indicator}
        self.moving: set[sp.Symbol] = {*REGISTERS, *self.position_inputs, *self.conditions}
        self.waiting: dict[sp.Symbol, sp.Expr] = {}
        self.steps: list[Step] = []
        self.across = self._across_lanes()
        self.safe = all(
            v.is_number and (not v.is_finite or abs(float(v)) < LARGEST_SCALED) for v in element.masked_values
        )
        verify(self.program, known | inputs.keys() | self.conditions.keys())

    def run(self) -> TileProgram:
        for step in self.program.steps:
            self._refine(step)
        accumulations = tuple(self._accumulate(product) for product in self._products_in_order())
        standing = find_standing(self.stream, self.steps, accumulations)
        self._reuse_registers()
        extreme, of_blocks = free_extreme(self.stream, self.steps, accumulations), block_conditions(self.group)
        needed = tuple(condition for condition in of_blocks if self._is_needed(condition, extreme))
        optimistic = find_optimistic(extreme, self.steps, accumulations)
        near_zero = find_near_zero(self.element.maps[0]) if len(self.element.maps) == 1 else None
        return TileProgram(
            self.stream, self.element, self._body(), accumulations, self.row_inputs, self.position_inputs,
            self.conditions, frozenset(self.across), self._skip(extreme), optimistic, near_zero,
            tuple(of_blocks), needed, standing,
        )  # fmt: skip

    def _refine(self, step: Step) -> None:
        """Appends a step as registers take it; elements wait for what reads them."""
        if isinstance(step, Element):
            self.waiting[step.symbol] = step.expression
        elif isinstance(step, (Reduce, Shift)) and step.component in self.products:
            return
        elif isinstance(step, Reduce):
            self.steps.append(self._reduction(step))
        elif not isinstance(step, Combine) or self.products.isdisjoint(step.components):
            self.steps.append(step)

    def _body(self) -> StepProgram:
        """The refined steps; of the components of products nothing is left but their results."""
        body = StepProgram(tuple(self.steps), self.program.finish, self.program.remembered - self.products)
        verify(body, self.moving | self.row_inputs.keys() | self.products)
        return body

    def _across_lanes(self) -> set[sp.Symbol]:
        """Components that are reduced across lanes: references read them, or their shift is not linear in them."""
        rows = self.stream.row_components
        symbols = {c.symbol for c in rows}
        read = {s for move in self.program.moves for s in move.value.free_symbols & symbols}
        whole = {c.symbol for c in rows if c.symbol in read or not (c.reducer is SUM and _is_linear(c.shift, symbols))}
        # What stays put can wait until the end, whatever ⊕ is.
        whole -= {c.symbol for c in rows if c.symbol not in read and not c.moves}
        while True:  # a shift that mixes components needs them alike
            mixed = {s for c in rows if c.moves for s in c.shift.free_symbols & symbols if c.symbol in whole}
            mixed |= {c.symbol for c in rows if c.moves and c.shift.free_symbols & symbols & whole}
            if mixed <= whole:
                return whole
            whole |= mixed

    def _accumulate(self, product: Product) -> Accumulate:
        lift = sp.expand_mul(self.lifts[product.component.symbol]).xreplace({product.symbol: sp.S.One})
        dtype = self._dtype_of(lift, product)
        if not _fits(product, dtype, self.stream, self.element):
            raise Unfit(f"{product.component.owner}: the weight {product.weight} may leave the range of {dtype}")
        weight = self._lowered(self._unrounded(lift, dtype))
        if not weight.is_Symbol or (weight == REGISTER and len(self.element.maps) == 1):
            weight = self._computed(sp.Symbol(f"weight_{product.component.symbol}", real=True), weight)
        shift = self.program.shifts[product.component.symbol]
        if shift.free_symbols & {c.symbol for c in self.stream.row_components}:
            raise Unfit(f"{product.component.owner}: moving its reference mixes products with values of rows")
        return Accumulate(product, weight, dtype, shift)

    def _dtype_of(self, weight: sp.Expr, product: Product) -> str:
        """What a weight is rounded to: as the program says, or implied by the operand that it meets."""
        kind = MATRIX_DTYPES[product.value.dtype]
        if kind.implied:
            return product.value.dtype
        whole = self.meaning.get(weight, weight)
        dtype = str(whole.args[1]) if isinstance(whole, Round) else DTYPE
        if dtype not in kind.partners:
            raise Unfit(
                f"{product.component.owner}: weights of {product.value} are {dtype}; the program has to round them "
                f"to {' or '.join(kind.partners)} itself"
            )
        return dtype

    def _unrounded(self, weight: sp.Expr, dtype: str) -> sp.Expr:
        """A weight without the rounding that its operand has in any case."""
        whole = self.meaning.get(weight, weight)
        return whole.args[0] if isinstance(whole, Round) and str(whole.args[1]) == dtype else weight

    def _skip(self, extreme: sp.Symbol | None) -> tuple[ir.Expr, ...]:
        stream = self.stream
        few = stream.few_rows is not None or stream.left.row is None
        dead = dead_positions(self.group, by_data=not (few or stream.paged or block_conditions(self.group)))
        if dead is None or not _by(extreme, dead.absorbed):
            return ()
        pair = [stream.row], [stream.position]
        slacks = (s for s in dead.slacks if not any(all(uses(load, v) for v in pair) for load in loads_of(s)))
        only = {var: tirx.const(0, dtype_of(var)) for var in self.stream.batch if self.stream.extent(var) == 1}
        return tuple(substitute(slack, only) for slack in slacks)

    def _is_needed(self, condition: ir.Expr, extreme: sp.Symbol | None) -> bool:
        absorbed = absorbed_where_it_fails(self.group, condition)
        return absorbed is not None and _by(extreme, absorbed)

    def _products_in_order(self) -> list[Product]:
        """Products whose shift reads others before those: shifts are applied one after the other."""
        by_symbol = {p.component.symbol: p for p in self.stream.products}
        order = update_order([p.component for p in self.stream.products], self.program.shifts)
        if any(len(together) > 1 for together in order):
            raise Unfit("the shifts of several products read each other")
        return [by_symbol[component.symbol] for (component,) in order]

    def _lowered(self, expression: sp.Expr) -> sp.Expr:
        """A lift over registers; the elements that it needs are computed first."""
        for symbol in [s for s in self.waiting if s in expression.free_symbols]:
            self._computed(symbol, self._lowered(self.waiting.pop(symbol)))
        expression = expression.xreplace(self.element.values).replace(self._is_exact_reciprocal, self._hoisted)
        return in_base_two(expression, lambda e: bool(e.free_symbols & self.moving), self._hoisted, self.safe)

    def _is_exact_reciprocal(self, expression: sp.Expr) -> bool:
        """Whether it is 1/c of a reference that is a power of two: to multiply by it loses what division does."""
        return expression.is_Pow and expression.exp == -1 and expression.base in self._powers

    @cached_property
    def _powers(self) -> set[sp.Symbol]:
        moved = [step for step in self.stream.fold.steps if isinstance(step, Reference)]
        return {symbol for c in moved if c.range is Range.POWER_OF_TWO for symbol in (c.symbol, c.moved)}

    def _computed(self, symbol: sp.Symbol, expression: sp.Expr) -> sp.Symbol:
        """A value per register, computed next; or before the first reduction that lifts to the very same."""
        self.moving.add(symbol)
        end = len(self.steps)
        reduced = [k for k, s in enumerate(self.steps) if isinstance(s, Reduce) and s.lift == expression != REGISTER]
        for k in reduced:
            self.steps[k] = dataclasses.replace(self.steps[k], lift=symbol)
        self.steps.insert(min(reduced, default=end), RegisterElement(symbol, expression))
        return symbol

    def _reduction(self, step: Reduce) -> TileReduce:
        """With max (a·r + b) = a·max r + b, for numbers a > 0 and b; for a < 0 with min."""
        lift, reducer, outer = self._lowered(step.lift), step.reducer, PARTIAL
        slope = lift.diff(REGISTER)
        is_line = reducer.plain in (MAX, MIN) and slope.is_number and slope != 0
        if is_line and (offset := sp.expand(lift - slope * REGISTER)).is_number:
            lift, outer, start = REGISTER, slope * PARTIAL + offset, reducer.neutral
            if slope < 0:
                swapped = {MAX: MIN, MIN: MAX}[reducer.plain]
                reducer = swapped.from_infinity if reducer.infinite else swapped
            if not reducer.infinite and step.component in self.stream.fold.finish.values():
                # As a result, the maximum of no elements is the dtype's own lowest number, not a multiple of that.
                outer = sp.Piecewise((start, sp.Eq(PARTIAL, reducer.neutral)), (outer, True))
        return TileReduce(step.component, reducer, lift, outer, step.component in self.across)

    def _hoisted(self, expression: sp.Expr) -> sp.Symbol:
        of_rows = [step for step in self.steps if isinstance(step, (Scale, Hoisted))]
        known = next((step.symbol for step in of_rows if step.expression == expression), None)
        if known is None:
            known = sp.Symbol(f"h_{len(of_rows)}", real=True)
            self.steps.append(Hoisted(known, expression))
        return known

    def _reuse_registers(self) -> None:
        """The last value per register takes the register's place, where nothing reads the register after it."""
        if len(self.element.maps) > 1:
            return
        last = max((k for k, step in enumerate(self.steps) if isinstance(step, RegisterElement)), default=0)
        step, later = self.steps[last], self.steps[last + 1 :]
        free = not any(isinstance(s, Reduce) and s.lift.has(REGISTER) for s in later)
        if isinstance(step, RegisterElement) and free:
            self.steps[last] = dataclasses.replace(step, in_place=True)


def _by(extreme: sp.Symbol | None, absorbed: Sequence[Absorbing]) -> bool:
    """Whether a row whose extremum is of a live position absorbs what is dead."""
    return all(c.left == extreme and c.relation is not Relation.VANISHES for c in absorbed)


def _is_linear(expression: sp.Expr, symbols: set[sp.Symbol]) -> bool:
    """Whether an expression is linear and homogeneous in symbols, so that it may be applied to parts of a sum."""
    read = sorted(expression.free_symbols & symbols, key=str)
    if not expression.is_polynomial(*read):
        return False
    return bool(read) and all(sum(m) == 1 for m in sp.Poly(expression, *read).monoms())


# Bounds on weights: whether they fit a narrow operand dtype for all data.


def is_bounded(expression: sp.Expr, largest: float, fold: Fold, conditions: Collection[sp.Symbol] = ()) -> bool:
    """Whether an expression's magnitude is at most `largest`.

    exp(x − c) at a running reference c is at most 1, or as large as one that moves lazily lets it be; x/c at a scale is
    at most 1.

    Parameters
    ----------
    conditions : symbols that are 0 or 1.
    """
    known: dict[sp.Basic, Extent] = dict.fromkeys(conditions, UNIT)
    for reference in fold.references:
        if reference.scale:
            scaled = (e for e in expression.atoms(sp.Mul) if 1 / reference.symbol in e.args)
            known |= {e: Extent(-size, size) for e in scaled for size in [abs(float(e.as_coeff_Mul()[0]))]}
        elif reference.policy is Policy.RUNNING:
            most = Extent(0.0, math.exp(LAZY_DISTANCE)) if reference.move is Move.LAZY else UNIT
            known |= {e: most for e in expression.atoms(sp.exp) if reference.symbol in e.free_symbols}
    return Extents(known).of(expression).size <= largest
