"""The state of a fold in buffers, and symbols as loads from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar

import sympy as sp
import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.algebra.facts.weight import Offsets, offsets_of
from tvm_cascade.algebra.fold import Component, Reference
from tvm_cascade.algebra.reducer import EXTREMES, Reducer, first, second
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.index_sets import stay_within
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.tir import Extent, analyzer_of, as_index, dtype_of, in_turn, is_float, substitute, zero_of
from tvm_cascade.steps.program import Step, StepProgram
from tvm_cascade.transform.elements import Dims
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.printer import Printer, cast, eager_selects
from tvm_cascade.transform.tiling import INSIDE, LANE, SEGMENT, STRIP, TILE, Tiling

_WIDENED = dict.fromkeys(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), "float32")
_NARROW = ("bool", "int8", "uint8", "int16", "uint16")


def accumulator_dtype(dtype: str) -> str:
    """The dtype in which a result is accumulated: float32 for all floats that are narrower."""
    return _WIDENED.get(dtype, dtype)


def kept_dtype(dtype: str) -> str:
    """The dtype in which a temporary holds values of a dtype: TVM keeps none of bfloat16 and float8."""
    return accumulator_dtype(dtype) if dtype.startswith(("bfloat16", "float8")) else dtype


def counting_dtype(dtype: str) -> str:
    """The dtype of position counts for values of a dtype: integers of less than 32 bits may overflow."""
    return "int32" if dtype in _NARROW else accumulator_dtype(dtype)


@dataclass(frozen=True)
class Slot:
    """A buffer for one symbol.

    Attributes
    ----------
    axes : what indexes it, in order: rows and free axes, and markers. One indexed by the tile lives for that alone.
    apart : by segment, its buffer and the indices before those of rows, where segments are in buffers of their own.
    """

    buffer: tirx.Var
    axes: tuple[tirx.Var | str, ...]
    apart: tuple[tuple[tirx.Var, tuple[ir.Expr, ...]], ...] = ()


@dataclass
class Slots:
    """All buffers of one fused loop. `homes` are buffers of the program that may hold a key's value from the start.

    Shapes have the dtype of the loops (`index_dtype`): TVM cannot change the layout of a buffer where the two differ.
    """

    group: Group
    tiling: Tiling
    dims: Dims
    index_dtype: str = "int32"
    buffers: list[tirx.Var] = field(default_factory=list)
    table: dict[object, Slot] = field(default_factory=dict)
    homes: dict[object, Slot] = field(default_factory=dict)

    @cached_property
    def offsets(self) -> Offsets:
        """Of the fold's results, components and references."""
        length = self.tiling.length
        return offsets_of(self.group.fold, length if isinstance(length, int) else None)

    def extent(self, axis: tirx.Var | str) -> Extent:
        """The extent of a frame variable, or of what a marker stands for."""
        if isinstance(axis, ir.Var):
            return self.group.frame.extents[axis]
        by = self.tiling
        return {SEGMENT: by.segments, TILE: by.tiles, INSIDE: by.tile, LANE: by.lanes, STRIP: by.tile // by.lanes}[axis]

    def allocate(self, key: object, name: str, axes: Sequence[tirx.Var | str], dtype: str, lanes: int = 0) -> Slot:
        """A buffer for a key, of so many lanes, if any, in the last dimension; or the home that it was given."""
        if key not in self.homes:
            own = tuple(axis for axis in axes if axis is not SEGMENT or self.tiling.segmented)
            extents = [*map(self.extent, own), *([lanes] if lanes else [])] or [1]
            shape = [as_index(extent, self.index_dtype) for extent in extents]
            self.buffers.append(tirx.decl_buffer(shape, dtype, name=name, layout=None))
            self.table[key] = Slot(self.buffers[-1], (*own, LANE) if lanes else own)
        else:
            self.table[key] = self.homes[key]
        return self.table[key]

    def indices(self, slot: Slot, at: Values) -> list[ir.Expr]:
        """The indices of a slot at a point of a block's domain."""
        indices = [value_at(at, axis) if isinstance(axis, ir.Var) else at[axis] for axis in slot.axes]
        return indices or [tirx.const(0, "int32")] * len(slot.buffer.ty.shape)

    def read(self, key: object, at: Values) -> ir.Expr:
        """The value of a key's slot; of one whose segments are apart, that of the segment."""
        slot = self.table[key]
        if not slot.apart:
            return load(slot.buffer, self.indices(slot, at))
        rows = self.indices(slot, at)
        places = [(buffer, [*first, *(rows if slot.axes or not first else ())]) for buffer, first in slot.apart]
        return chosen(at[SEGMENT], [load(*place) for place in places])

    def iters(self, dims: tuple[tirx.Var, ...]) -> list[Iter]:
        return [Iter(v, v.name, self.extent(v)) for v in dims]


def chosen(number: ir.Expr, values: Sequence[ir.Expr]) -> ir.Expr:
    if isinstance(number, ir.prim.IntImm):
        return values[int(number)]
    found = values[-1]
    for k, value in reversed(list(enumerate(values[:-1]))):
        found = tirx.Select(tirx.EQ(number, as_index(k, str(number.ty.dtype))), value, found)
    return found


def label_of(step: Component | Reference) -> str:
    """A component is called after its result; further ones are numbered."""
    name = str(step.symbol)
    return name.removesuffix("_0") if isinstance(step, Component) and name == f"{step.owner}_0" else name


def value_at(at: Values, var: tirx.Var) -> ir.Expr:
    """A frame variable's value at a point; 0 where the block does not run over it (its extent is 1)."""
    return at.get(var, zero_of(var))


def placed(dims: Sequence[ir.Expr], at: Values) -> list[ir.Expr]:
    """Indices over frame variables at a point of a block's domain."""
    return [value_at(at, dim) if isinstance(dim, ir.Var) else dim for dim in dims]


class Scope(Mapping[sp.Symbol, ir.Expr]):
    """Symbols as TIR at one point of a block's domain: atoms from the inputs, everything else from its slot."""

    def __init__(self, slots: Slots, at: Values, overrides: Mapping[sp.Symbol, ir.Expr] | None = None) -> None:
        self.slots, self.at, self.overrides = slots, at, dict(overrides or {})
        self._atoms = {atom.symbol: atom for atom in slots.group.atoms.atoms.values()}

    def __contains__(self, symbol: object) -> bool:
        return symbol in self.overrides or symbol in self.slots.table or symbol in self._atoms

    def __getitem__(self, symbol: sp.Symbol) -> ir.Expr:
        if symbol in self.overrides:
            return self.overrides[symbol]
        if symbol in self.slots.table:
            return self.slots.read(symbol, self.at)
        return self.inputs(self._atoms[symbol].expression)

    def __iter__(self) -> Iterator[sp.Symbol]:
        return iter({*self.overrides, *self._atoms})

    def __len__(self) -> int:
        return len(list(iter(self)))

    def inputs(self, expression: ir.Expr) -> ir.Expr:
        """An expression over the frame at this point; producers are read from their tile."""
        placed = substitute(expression, self.frame_values())

        def from_tile(access: ir.TensorLoad) -> ir.Expr:
            slot = self.slots.table.get(access.source)
            return access if slot is None else load(slot.buffer, self.slots.indices(slot, self.at))

        placed = tvm_ffi.structural_map(placed, (ir.TensorLoad, from_tile))
        return eager_selects(placed, self._in_bounds)

    def frame_values(self) -> dict[tirx.Var, ir.Expr]:
        """Every frame variable's value at this point."""
        frame = self.slots.group.frame
        values = {v: value_at(self.at, v) for v in frame.extents}
        if INSIDE in self.at:
            positions = zip(frame.axis, self.slots.tiling.position(self.at), strict=True)
            values |= {v: cast(position, dtype_of(v)) for v, position in positions}
        return values

    def _in_bounds(self, access: ir.TensorLoad) -> bool:
        """Whether a load is in range all over the block's domain; then a selection may evaluate it either way."""
        if self.slots.tiling.ragged:
            return False
        frame = self.slots.group.frame.extents  # a producer's own reduction is in none
        known = {
            v: key for key, v in self.at.items() if isinstance(v, ir.Var) and (isinstance(key, str) or key in frame)
        }
        extents = {v: self.slots.extent(key) for v, key in known.items()}
        return stay_within(access.indices, access.source.ty.shape, analyzer_of(extents))

    def printer(self, dtype: str) -> Printer:
        """Writes SymPy expressions at this point."""
        indicators = {a.symbol: self.inputs(a.expression) for a in self._atoms.values() if a.indicator}
        return Printer(self, dtype, indicators, self.slots.offsets)


@dataclass(frozen=True)
class Cell:
    """The storage of a tuple's component at a point of a block's domain."""

    buffer: tirx.Var
    indices: Sequence[ir.Expr]

    @property
    def dtype(self) -> str:
        return dtype_of(self.buffer)

    def read(self) -> ir.Expr:
        return load(self.buffer, self.indices)


def combined(
    reducers: Mapping[sp.Symbol, Reducer],
    cells: Mapping[sp.Symbol, Cell],
    values: Mapping[sp.Symbol, ir.Expr],
    constants: Mapping[sp.Symbol, sp.Expr],
    keep: Callable[[ir.Expr, ir.Expr], ir.Expr],
) -> list[tirx.Stmt]:
    """cells = cells ∘ values.

    Parameters
    ----------
    reducers : of each part, with the tuple's own.
    values : of the second argument, by part.
    constants : forms of the second argument, taken where there is no value: comparisons with them decide themselves.
    keep : of the new and the old value, what is stored.
    """
    whole = next(iter(reducers.values())).whole
    assert whole is not None
    parts = {reducer.part: symbol for symbol, reducer in reducers.items()}
    fixed = {second(k): constants[s] for k, s in parts.items() if s not in values}
    bindings = {first(k): cells[s].read() for k, s in parts.items()}
    bindings |= {second(k): values[s] for k, s in parts.items() if s in values}
    new: dict[int, ir.Expr] = {}
    for k, s in parts.items():
        written = Printer(bindings, cells[s].dtype, {})(whole.combined[k].xreplace(fixed))
        new[k] = keep(written, cells[s].read())
    last_first = sorted(parts, reverse=True)
    order, mutual = in_turn({k: [o for o in parts if o != k and k in whole.reads(o)] for k in last_first})
    statements: list[tirx.Stmt] = []
    for k in reversed(mutual):
        bound = tirx.Var(f"{parts[k]}_new", cells[parts[k]].dtype)
        statements.append(tirx.Bind(bound, new[k]))
        new[k] = bound
    cells_in_order = [(k, cells[parts[k]]) for k in (*order, *reversed(mutual))]
    return statements + [store(cell.buffer, new[k], cell.indices) for k, cell in cells_in_order]


class Emitter:
    """Writes nests over the buffers of a fold's symbols, step by step of its program.

    Attributes
    ----------
    rules : what emits a step of a kind; of kinds that have none, nothing is.
    """

    rules: ClassVar[Mapping[type, Callable[..., None]]] = {}

    def __init__(self, slots: Slots, nests: NestBuilder, program: StepProgram) -> None:
        self.slots, self.nests, self.program, self.group = slots, nests, program, slots.group
        self.components = {component.symbol: component for component in slots.group.fold.components}
        self.statements: list[tirx.Stmt] = []

    def emit(self, step: Step) -> None:
        if (rule := type(self).rules.get(type(step))) is not None:
            rule(self, step)

    def known(self, at: Values, dtype: str) -> dict[sp.Symbol, ir.Expr]:
        """Symbols that are in no slot, in a dtype."""
        return {}

    def write(
        self, expression: sp.Expr, at: Values, dtype: str, known: Mapping[sp.Symbol, ir.Expr] | None = None
    ) -> ir.Expr:
        """An expression at a point of a block's domain."""
        scope = Scope(self.slots, at, self.known(at, dtype) if known is None else known)
        return scope.printer(dtype)(expression)

    def reduced(
        self,
        name: str,
        role: str,
        iters: Sequence[Iter],
        slot: Slot,
        reducer: Reducer,
        value: Callable[[Values], ir.Expr],
    ) -> tirx.Stmt:
        """A nest that reduces values into a slot, from ⊕'s identity on."""
        cell, identity = (slot.buffer, partial(self.slots.indices, slot)), identity_of(reducer, dtype_of(slot.buffer))
        return self.nests.reduction(name, role, iters, cell, combiner_of(reducer), identity, value)

    def combined(
        self,
        name: str,
        role: str,
        iters: Sequence[Iter],
        slots: Mapping[sp.Symbol, Slot],
        lifts: Mapping[sp.Symbol, sp.Expr],
        keep: Callable[[ir.Expr, ir.Expr, Values], ir.Expr] = lambda new, _old, _at: new,
        known: Callable[[Values], Mapping[sp.Symbol, ir.Expr]] | None = None,
    ) -> tirx.Stmt:
        """A nest that combines tuples of lifts into slots of components, one position after another.

        Parameters
        ----------
        keep : of the new and the old value, what is stored at a point of the block's domain.
        """

        def cells(at: Values) -> dict[sp.Symbol, Cell]:
            return {symbol: Cell(slot.buffer, self.slots.indices(slot, at)) for symbol, slot in slots.items()}

        def values(at: Values) -> dict[sp.Symbol, ir.Expr]:
            varying = [s for s in slots if lifts[s].free_symbols - EXTREMES.keys()]
            own = None if known is None else known(at)
            return {s: self.write(lifts[s], at, dtype_of(slots[s].buffer), own) for s in varying}

        def body(at: Values) -> list[tirx.Stmt]:
            return combined(reducers, cells(at), values(at), lifts, lambda new, old: keep(new, old, at))

        def init(at: Values) -> list[tirx.Stmt]:
            started = ((cell, identity_of(reducers[symbol], cell.dtype)) for symbol, cell in cells(at).items())
            return [store(cell.buffer, identity, cell.indices) for cell, identity in started]

        reducers = {symbol: self.components[symbol].reducer for symbol in slots}
        return self.nests.nest(name, role, iters, body, init)


def widest_float(dtypes: Iterable[str]) -> str:
    """The widest of the floats among the dtypes; float32 where there is none."""
    floats = [dtype for dtype in dtypes if is_float(dtype)]
    return max(floats, key=lambda dtype: tvm.DataType(dtype).bits, default="float32")


def component_dtype(group: Group, component: Component) -> str:
    """The dtype that a component is accumulated in; an extremum that is a result is exact in the result's own."""
    member = group.member_of(component.owner)
    own = dtype_of(member.stage.buffer)
    is_result = group.fold.finish.get(component.owner) == component.symbol
    if own == "bool" and not component.reducer.logical:  # what a truth value compares
        own = widest_float(dtype_of(other.stage.buffer) for other in group.members)
    exact = component.reducer.ordered and is_result and own != "bfloat16"  # which TVM cannot keep in a temporary
    return own if exact else accumulator_dtype(own)


def reference_dtype(group: Group) -> str:
    """The dtype of references: float64 where a component is accumulated in it."""
    dtypes = {component_dtype(group, component) for component in group.fold.components}
    return "float64" if "float64" in dtypes else "float32"
