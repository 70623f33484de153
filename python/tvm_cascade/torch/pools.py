"""Pools: a reduction over windows of the last axes, which may reach beyond the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from tvm_cascade.torch.site import Site, accumulator, of_each_axis, type_name


@dataclass(frozen=True)
class Windows:
    """The windows along one axis.

    Attributes
    ----------
    extent : of the data.
    count : how many windows there are.
    size, stride, padding : of the windows, in positions.
    """

    extent: Any
    count: Any
    size: int
    stride: int
    padding: int

    def first(self, k: Any) -> Any:
        """The first position of a window; negative in the padding."""
        return k * self.stride - self.padding

    def inside(self, position: Any) -> list[Any]:
        """What has to be true of a position that may be out of the data."""
        known = [isinstance(one, (int, tirx.IntImm)) for one in (self.extent, self.count)]
        last = int(self.first(int(self.count) - 1)) + self.size - 1 if all(known) else math.inf
        low = [position >= 0] if self.padding else []
        return low if all(known) and last < int(self.extent) else [*low, position < self.extent]

    def positions(self, k: Any, padded: bool) -> Any:
        """How many positions of a window are in the data, or in the data and its padding."""
        if not self.inside(k):
            return self.size
        more = self.padding if padded else 0
        first = self.first(k)
        return tirx.min(first + self.size, self.extent + more) - tirx.max(first, -more)


def windows_of(site: Site, shape: Sequence[Any], axes: int) -> list[Windows]:
    """The windows of a pool along each of its last axes, for data of a shape."""
    size = site["kernel_size"]
    given = [of_each_axis(one, axes) for one in (size, site["stride"] or size, site["padding"])]
    counts = site.node.meta["val"].shape[-axes:]
    found = []
    for extent, count, window, stride, padding in zip(shape[-axes:], counts, *given, strict=True):
        more = stride - 1 if site["ceil_mode"] else 0
        number = count if isinstance(count, int) else (extent + 2 * padding - window + more) // stride + 1
        found.append(Windows(extent, number, window, stride, padding))
    return found


def average(axes: int) -> Any:
    """aten.avg_pool1d, 2d and 3d: the sum over each window by the divisor, or by how many positions it has.

    Positions of the padding count where `count_include_pad` says so; those beyond it, of `ceil_mode`, never do.
    """

    def convert(site: Site) -> relax.Expr:
        x, padded = site["self"], bool(site["count_include_pad"])
        divisor = site["divisor_override"] if axes > 1 else None
        wide = accumulator(type_name(x))

        def formula(a: te.Tensor) -> te.Tensor:
            lead, windows = len(a.shape) - axes, windows_of(site, a.shape, axes)
            loops = [te.reduce_axis((0, one.size), f"w{k}") for k, one in enumerate(windows)]

            def element(*i: Any) -> Any:
                at = [one.first(i[lead + k]) + loops[k] for k, one in enumerate(windows)]
                inside = [true for one, position in zip(windows, at, strict=True) for true in one.inside(position)]
                read = a(*i[:lead], *at).astype(wide)
                kept = tirx.if_then_else(tirx.all(*inside), read, tirx.const(0, wide)) if inside else read
                return te.sum(kept, loops)

            summed = te.compute([*a.shape[:lead], *(one.count for one in windows)], element, name="summed")

            def share(*i: Any) -> Any:
                counts = [one.positions(i[lead + k], padded) for k, one in enumerate(windows)]
                number = divisor or math.prod(counts)
                return summed(*i) / (tirx.const(number, wide) if isinstance(number, int) else number.astype(wide))

            return te.compute(summed.shape, share, name="average")

        return site.cast(site.compute(formula, x, name="average"), site.dtype)

    return convert
