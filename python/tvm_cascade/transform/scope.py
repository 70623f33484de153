"""The state of a fold in buffers, and symbols as loads from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import sympy as sp
import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.algebra.facts.weight import Offsets, offsets_of
from tvm_cascade.algebra.fold import Component, Reference
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.tir import Extent, as_index, dtype_of, is_float, substitute, zero_of
from tvm_cascade.transform.elements import Dims
from tvm_cascade.transform.nest import Iter, Values, load
from tvm_cascade.transform.printer import Printer, eager_selects
from tvm_cascade.transform.tiling import INSIDE, SEGMENT, TILE, Tiling
from tvm_cascade.transform.tuples import Cell

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
    dims : rows and free axes that index it.
    per_tile : it lives for one tile only, and is indexed by the tile first.
    inside : it has a value per position of the tile.
    per_segment : it has a value per segment.
    apart : by segment, its buffer and the indices before those of rows, where segments are in buffers of their own.
    """

    buffer: tirx.Var
    dims: tuple[tirx.Var, ...]
    per_tile: bool = False
    inside: bool = False
    per_segment: bool = True
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

    def extent(self, var: tirx.Var) -> Extent:
        return self.group.frame.extents[var]

    def allocate(
        self, key: object, name: str, dims: tuple[tirx.Var, ...], dtype: str, extra: tuple[int, ...] = (), **kind: bool
    ) -> Slot:
        """A buffer [segment?, tile?, dims…, inside?, extra…] for a key: a new one, or the home it was given."""
        if key in self.homes:
            self.table[key] = self.homes[key]
            return self.table[key]
        per_segment = kind.get("per_segment", True) and self.tiling.segmented
        shape: list[Extent] = [self.tiling.segments] if per_segment else []
        shape += [self.tiling.tiles] if kind.get("per_tile") else []
        shape += [self.extent(v) for v in dims]
        shape += [self.tiling.tile] if kind.get("inside") else []
        shape += list(extra)
        buffer = tirx.decl_buffer([as_index(e, self.index_dtype) for e in shape or [1]], dtype, name=name, layout=None)
        self.buffers.append(buffer)
        self.table[key] = Slot(buffer, dims, kind.get("per_tile", False), kind.get("inside", False), per_segment)
        return self.table[key]

    def indices(self, slot: Slot, at: Values) -> list[ir.Expr]:
        """The indices of a slot at a point of a block's domain."""
        indices: list[ir.Expr] = [at[SEGMENT]] if slot.per_segment else []
        indices += [at[TILE]] if slot.per_tile else []
        indices += [value_at(at, v) for v in slot.dims]
        indices += [at[INSIDE]] if slot.inside else []
        return indices or [tirx.const(0, "int32")] * len(slot.buffer.ty.shape)

    def read(self, key: object, at: Values) -> ir.Expr:
        """The value of a key's slot; of one whose segments are apart, that of the segment."""
        slot = self.table[key]
        if not slot.apart:
            return load(slot.buffer, self.indices(slot, at))
        rows = self.indices(replace(slot, per_segment=False), at)
        places = [(buffer, [*first, *(rows if slot.dims or not first else ())]) for buffer, first in slot.apart]
        return chosen(at[SEGMENT], [load(*place) for place in places])

    def cells(self, keys: Mapping[sp.Symbol, object], at: Values) -> dict[sp.Symbol, Cell]:
        """The cells of some symbols' keys at a point of a block's domain."""
        slots = {symbol: self.table[key] for symbol, key in keys.items()}
        return {symbol: Cell(slot.buffer, self.indices(slot, at)) for symbol, slot in slots.items()}

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
        return eager_selects(placed, lambda access: self._in_bounds(access))

    def frame_values(self) -> dict[tirx.Var, ir.Expr]:
        """Every frame variable's value at this point."""
        frame = self.slots.group.frame
        values = {v: value_at(self.at, v) for v in frame.extents}
        if INSIDE in self.at:
            positions = zip(frame.axis, self.slots.tiling.position(self.at), strict=True)
            values |= {v: cast_index(position, v) for v, position in positions}
        return values

    def _in_bounds(self, access: ir.TensorLoad) -> bool:
        """Whether a load is in range all over the block's domain; then a selection may evaluate it either way."""
        if self.slots.tiling.ragged:
            return False
        analyzer = tvm.sym.Analyzer()
        for key, value in self.at.items():
            if isinstance(value, ir.Var) and self._is_known(key):
                analyzer.bind(value, ir.Range(0, self.domain(key)))
        shape = access.source.ty.shape
        return all(
            analyzer.can_prove(i >= 0) and analyzer.can_prove(i < n) for i, n in zip(access.indices, shape, strict=True)
        )

    def _is_known(self, key: object) -> bool:
        """Whether the extent of an iterator is known here: that of a producer's own reduction is not."""
        return not isinstance(key, ir.Var) or key in self.slots.group.frame.extents

    def domain(self, key: object) -> Extent:
        tiling = self.slots.tiling
        table: dict[str, Extent] = {SEGMENT: tiling.segments, TILE: tiling.tiles, INSIDE: tiling.tile}
        if key in ("lane", "strip"):
            return tiling.lanes if key == "lane" else tiling.tile // tiling.lanes
        return table[key] if isinstance(key, str) else self.slots.extent(key)

    def printer(self, dtype: str) -> Printer:
        """Writes SymPy expressions at this point."""
        indicators = {a.symbol: self.inputs(a.expression) for a in self._atoms.values() if a.indicator}
        return Printer(self, dtype, indicators, self.slots.offsets)


def cast_index(expression: ir.Expr, like: tirx.Var) -> ir.Expr:
    return expression if dtype_of(expression) == dtype_of(like) else expression.astype(dtype_of(like))


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
