"""Masks over the registers of a tile, merged where they give one value, and as bit fields where possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from tvm import ir, tirx

from tvm_cascade.tile.attention.bits import Bounds, KeptBits, LoadedBits, boolean_load
from tvm_cascade.tile.attention.rows import RowFold
from tvm_cascade.tile.element import Mask
from tvm_cascade.tile.emit import in_register
from tvm_cascade.tile.fragment import ROWS
from tvm_cascade.tile.live import conjuncts, loads_by, mask_slacks, solved_for
from tvm_cascade.transform.printer import cast


@dataclass(frozen=True)
class Pass:
    """A pass over all registers.

    Attributes
    ----------
    masks : all of one value.
    bounds : (±1, g) for each integer ±l + g(row) that is not negative where they keep a position.
    loads : of booleans that keep a position.
    """

    masks: tuple[Mask, ...]
    bounds: tuple[tuple[int, ir.Expr], ...] = ()
    loads: tuple[ir.TensorLoad, ...] = ()

    @property
    def as_bits(self) -> bool:
        """Whether bounds and loads say all."""
        return bool(self.bounds or self.loads)


def passes_of(masks: tuple[Mask, ...], position: tirx.Var, columns: int) -> list[Pass]:
    """The passes that apply masks in their order."""
    found: list[Pass] = []
    for mask in chain.from_iterable(map(_parts, masks)):
        one, last = _pass_of(mask, position, columns), found[-1] if found else None
        if last is not None and last.as_bits and one.as_bits and last.masks[0].value == mask.value:
            found[-1] = Pass((*last.masks, mask), last.bounds + one.bounds, last.loads + one.loads)
        else:
            found.append(one)
    return found


def _parts(mask: Mask) -> list[Mask]:
    """A mask that keeps where several conditions hold, as one for each."""
    return [replace(mask, condition=c) for c in conjuncts(mask.condition)] if mask.keeps else [mask]


def _pass_of(mask: Mask, position: tirx.Var, columns: int) -> Pass:
    load = boolean_load(mask.condition, position) if mask.keeps and LoadedBits.fits(columns) else None
    if load is not None:
        return Pass((mask,), loads=(load,))
    slacks = mask_slacks(mask) or ()
    bounds = tuple(solved for slack in slacks if (solved := solved_for(slack, position)) is not None)
    return Pass((mask,), bounds if len(bounds) == len(slacks) else ())


class Masking:
    """Applies passes to the registers of a warp group.

    Parameters
    ----------
    rows : whose registers they are.
    lane : of the thread.
    """

    def __init__(self, passes: list[Pass], rows: RowFold, lane: ir.Expr) -> None:
        self.passes, self.rows, self.lane = passes, rows, lane
        self.bits = {k: KeptBits(rows.columns, f"kept_{k}") for k, one in enumerate(passes) if one.as_bits}
        self.loaded = {
            (k, n): LoadedBits(rows.columns, f"loaded_{k}")
            for k, one in enumerate(passes)
            for n in range(len(one.loads))
        }
        self.limits = {k: [self._limits(one, r) for r in ROWS] for k, one in enumerate(passes) if one.as_bits}

    def prepare(self, tile: ir.Expr) -> None:
        """Prefetches what a tile's masks read from memory, before its scores are computed."""
        for (k, n), loaded in self.loaded.items():
            loaded.read(partial(self._address, self.passes[k].loads[n], tile), self.lane)

    def apply(self, tile: ir.Expr) -> None:
        """Masks the registers of a tile."""
        for k, one in enumerate(self.passes):
            if one.as_bits:
                self.bits[k].keep_all()
                self.bits[k].within(partial(self._bounds, k, tile))
                for n in range(len(one.loads)):
                    self.bits[k].intersect(self.loaded[k, n])
            self.rows.mask(tile, one.masks[0], self.bits.get(k))

    def _address(self, load: ir.TensorLoad, tile: ir.Expr, row: int, offset: ir.Expr) -> ir.Expr:
        """Of four booleans; past the end of the axis of its last four, which nothing reads."""
        last = load.source.ty.shape[-1] - 4
        return self.rows.address(load, row, tirx.min(tile * self.rows.columns + offset, cast(last, "int32")))

    def _bounds(self, k: int, tile: ir.Expr, row: int) -> Bounds:
        base = tile * self.rows.columns + self.rows.place.lane_column
        placed = [
            (sign, cast(self.rows.row_input(g, row) if limit is None else limit, "int32"))
            for (sign, g), limit in zip(self.passes[k].bounds, self.limits[k][row], strict=True)
        ]
        return Bounds(
            least=tuple(-g - base for sign, g in placed if sign > 0),
            most=tuple(g - base for sign, g in placed if sign < 0),
        )

    def _limits(self, one: Pass, row: int) -> list[ir.Expr | None]:
        """Of each bound, what is loaded for a row, before its first tile; None where that is nothing."""
        position = self.rows.program.stream.row
        return [
            in_register("limit", self.rows.row_input(g, row)) if loads_by(g, position) else None for _, g in one.bounds
        ]
