"""Estimates of a CPU's designs of a function with symbolic extents, for the lengths up to given ones.

A bucket ends at a power of two, and lengths are taken to lie anywhere between its half and its end. Fused, whole tiles
are computed, and whole vectors of rows where products are inside. Unfused, products are in register tiles as those of
known lengths are, and nothing divides a length along which anything else is reduced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache, cached_property

from tvm import ir

from tvm_cascade.analysis.extract import Group, find_cascades
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.analysis.program import Program, Stage, is_static
from tvm_cascade.analysis.sizes import at_sizes
from tvm_cascade.devices.device import Cpu
from tvm_cascade.driver.space import Sizes
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.cost import alone_ns, estimate, tiling_of
from tvm_cascade.transform.fuse_function import read_function

_MEAN = 0.75
"""Of the lengths between the half of one and itself."""

_UNKNOWN = 1.35
"""Time of a loop whose lanes or sums are of a symbolic extent over that of a known one (measured: 1.1 to 1.4 in
products, 1.0 to 1.4 in reductions of rows, 1.1 to 1.3 in maps, 1.0 to 2.4 in fused loops, most in short rows)."""


class LengthCosts:
    """What groups of a function with symbolic extents cost at lengths.

    Parameters
    ----------
    program, groups : as they were read, with symbolic extents.
    """

    def __init__(self, program: Program, groups: Sequence[Group], options: FuseOptions, cpu: Cpu) -> None:
        self._program, self._groups, self._options, self._cpu = program, groups, options, cpu
        self._read, self._whole_ns = cache(self._read_at), cache(self._estimated_ns)
        self.fused_ns, self.unfused_ns = cache(self._fused_ns), cache(self._unfused_ns)

    def _fused_ns(self, sizes: tuple[tuple[str, int], ...], tile: int | None) -> float:
        """Time of all loops in tiles of so many positions, or of those by shape; 0 where it is not known."""
        return sum(self._loop_ns(group, sizes, tile) for group in self._groups)

    def _loop_ns(self, group: Group, sizes: tuple[tuple[str, int], ...], tile: int | None) -> float:
        extent = group.frame.extents[group.frame.axis[-1]]
        tile = tile or self._tiles[group.names]
        long = {name: max(size, self._least_rows if self._multiplies else 1) for name, size in sizes}
        end = long[extent.name] if isinstance(extent, ir.Var) and extent.name in long else 0
        if end:
            long[str(extent)] = max(end, tile)
        whole = self._whole_ns(group.names, tuple(long.items()), tile) * (_UNKNOWN if end else 1.0)
        return whole if end <= tile else whole * (_MEAN * end + tile / 2) / end

    def _estimated_ns(self, names: tuple[str, ...], sizes: tuple[tuple[str, int], ...], tile: int) -> float:
        """Time of a loop at sizes that its tiles divide; 0 where the function has none there."""
        program, known = self._read(sizes)
        if program is None or names not in known:
            return 0.0
        options = dataclasses.replace(self._options, tile=tile)
        return estimate(program, known[names], options, self._cpu).ns_after

    def _unfused_ns(self, sizes: tuple[tuple[str, int], ...]) -> float:
        """Time of all stages in nests of their own; 0 where it is not known."""
        # An odd length: nothing divides it.
        program = _static(self._program, {name: int(_MEAN * size) | 1 for name, size in sizes})
        if program is None:
            return 0.0
        stages = {stage.name: stage for stage in program.stages}
        found = [passes_of(self._program, group) for group in self._groups]
        own = {stage.name: stage for passes in found for stage in (*passes.inside, *passes.after)}

        def stage_ns(name: str, symbolic: Stage) -> float:
            inner = (*symbolic.spatial[1:], *symbolic.reduce)
            known = all(isinstance(symbolic.extents[axis], int) for axis in inner)
            alone = alone_ns(program, stages[name], self._cpu, self._options.vector_math)
            return alone if known else alone * _UNKNOWN

        return sum(stage_ns(*one) for one in own.items())

    @cached_property
    def _tiles(self) -> dict[tuple[str, ...], int]:
        """The tiles by shape, of loops of symbolic length."""
        return {one.names: tiling_of(self._program, one, self._options, self._cpu).tile for one in self._groups}

    @cached_property
    def _multiplies(self) -> bool:
        """Whether a product is inside, whose rows are padded to whole vectors."""
        stages = [stage for group in self._groups for stage in passes_of(self._program, group).inside]
        return any(len(stage.spatial) > 1 and len(stage.spatial) + len(stage.reduce) > 2 for stage in stages)

    @property
    def _least_rows(self) -> int:
        return 2 * self._cpu.lanes("float32")

    def _read_at(self, sizes: tuple[tuple[str, int], ...]) -> tuple[Program | None, dict[tuple[str, ...], Group]]:
        """The program at sizes, and its groups by the names of their results."""
        program = _static(self._program, dict(sizes))
        if program is None:
            return None, {}
        found = find_cascades(program, self._options.rescalable_casts, None, self._options.reference)
        groups = [candidate.group for candidate in found if candidate.group is not None]
        return program, {group.names: group for group in groups}


def _static(program: Program, sizes: Sizes) -> Program | None:
    """The program at sizes; None where these leave an extent open."""
    read = read_function(at_sizes(program.func, sizes))
    return read if isinstance(read, Program) and is_static(read) else None
