"""Products of mixtures of experts: rows sorted by expert, each group of them by a matrix of its own.

    group[i] = Σ_e (offsets[e] <= i)                    y[i, n] = Σ_k x[i, k] · w[group[i], k, n]

Which group a row is in is data, so that one function serves every distribution of the rows, and no count of them is
brought to the host. A CPU's schedule finds the runs of rows of one group (`schedule.row_runs`). For a GPU rows are
taken in tiles of one group each, so that what remains is a batch of products, with tensor cores where there are any:

    group [0, 0, 0, 2]  ->  tiles of 2 rows: [x0 x1] [x2 x3] [x3 ·] [· ·], of groups 0, 0, 2, and of none

Tiles begin where data say, and hold rows of other groups too, whose products nobody reads. There are as many as any
distribution can take, rows / height + groups; those that are left over have no group, and nothing to sum.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.site import Site, accumulator, names_of, type_name

TILE, WIDE_TILE = 64, 128
"""Rows of a tile: what tensor cores multiply at once, and twice that where groups are long."""

_TILES = WeakKeyDictionary[Any, dict[Any, list[relax.Var]]]()
"""By importer, the tables of tiles of its graph: products of one layer have them in common."""


def grouped_mm(site: Site) -> relax.Expr:
    """aten._grouped_mm, and transformers.grouped_mm_fallback: rows [s, k] by matrices [e, k, n], up to offsets [e].

    Rows past the last offset are zeros, of which the first promises nothing.
    """
    rows, matrices = ("self", "mat2") if "mat2" in names_of(site) else ("input", "weight")
    offsets, bias = site["offs"], site["bias"] if "bias" in names_of(site) else None
    ranks = tuple(site.given(name).meta["val"].dim() for name in (rows, matrices))
    if ranks != (2, 3) or offsets is None or bias is not None:
        found = f"{ranks[0]}-D by {ranks[1]}-D" + (", a bias" if bias is not None else "")
        hint = "multiply by torch.matmul, or add the bias afterwards"
        raise ModelError(
            "rows [s, k] by matrices [e, k, n], with offsets and no bias", found, "a grouped product", hint
        )
    stored, transposed = _as_stored(site, matrices)
    multiplied = _in_tiles if site.on_gpu else _by_row
    return site.cast(multiplied(site, site[rows], stored, offsets, transposed), site.dtype)


def _by_row(site: Site, x: relax.Expr, w: relax.Expr, offsets: relax.Expr, transposed: bool) -> relax.Expr:
    """The product as it is defined."""
    wide = accumulator(type_name(x))

    def formula(x: te.Tensor, w: te.Tensor, ends: te.Tensor) -> te.Tensor:
        k, groups = te.reduce_axis((0, x.shape[1]), "k"), Groups(ends, x.shape[0])

        def product(i: Any, n: Any) -> Any:
            at = tirx.min(groups.of(i), groups.count - 1)
            return te.sum(x(i, k).astype(wide) * _element(w, at, k, n, transposed).astype(wide), axis=k)

        shape = (x.shape[0], w.shape[1 if transposed else 2])
        summed, zero = te.compute(shape, product, name="grouped"), tirx.const(0, wide)
        return te.compute(
            shape, lambda i, n: tirx.if_then_else(groups.of(i) < groups.count, summed(i, n), zero), name="grouped_mm"
        )

    return site.compute(formula, x, w, offsets, name="grouped_mm")


def _in_tiles(site: Site, x: relax.Expr, w: relax.Expr, offsets: relax.Expr, transposed: bool) -> relax.Expr:
    """The product of tiles of rows, and each row from its tile."""
    rows, groups, wide = x.ty.shape.values[0], int(w.ty.shape.values[0]), accumulator(type_name(x))
    height = WIDE_TILE if isinstance(rows, tirx.IntImm) and int(rows) >= 2 * WIDE_TILE * groups else TILE
    known, key = _TILES.setdefault(site.importer, {}), (site.given("offs"), str(rows), height)
    if key not in known:
        tiled = site.compute(lambda ends, rows: list(tiles_of(ends, rows, height)), offsets, rows, name="tiles_of_rows")
        known[key] = [site.emit(relax.TupleGetItem(tiled, part)) for part in range(3)]
    group, first, place = known[key]

    def of_a_tile(x: te.Tensor) -> te.Tensor:
        shape = (tirx.max(x.shape[0], height), x.shape[1])
        return te.compute(shape, lambda i, k: x(tirx.min(i, x.shape[0] - 1), k), name="rows_of_a_tile")

    def product(x: te.Tensor, w: te.Tensor, group: te.Tensor, first: te.Tensor) -> te.Tensor:
        k, zero = te.reduce_axis((0, x.shape[1]), "k"), tirx.const(0, wide)

        def element(t: Any, i: Any, n: Any) -> Any:
            row = first(t) + i.astype("int32")
            value = x(row, k).astype(wide) * _element(w, group(t), k, n, transposed).astype(wide)
            return te.sum(tirx.if_then_else(group(t) < groups, value, zero), axis=k)

        shape = (group.shape[0], height, w.shape[1 if transposed else 2])
        summed = te.compute(shape, element, name="grouped")
        return te.compute(shape, lambda *i: summed(*i).astype(site.dtype), name="rounded")

    def taken(y: te.Tensor, place: te.Tensor) -> te.Tensor:
        zero = tirx.const(0, y.dtype)

        def value(i: Any, n: Any) -> Any:
            at = tirx.max(place(i), 0)
            return tirx.if_then_else(place(i) >= 0, y(at // height, at % height, n), zero)

        return te.compute((*place.shape, y.shape[2]), value, name="grouped_mm")

    if not (isinstance(rows, tirx.IntImm) and int(rows) >= height):
        x = site.compute(of_a_tile, x, name="rows_of_a_tile")
    tiles = site.compute(product, x, w, group, first, name="grouped_mm")
    return site.compute(taken, tiles, place, name="rows_of_tiles")


class Groups:
    """Groups of consecutive rows.

    Parameters
    ----------
    ends : the row at which each ends, ascending.
    rows : how many there are.
    """

    def __init__(self, ends: te.Tensor, rows: Any) -> None:
        self.ends, self.count = ends, _int32(ends.shape[0])
        e = te.reduce_axis((0, ends.shape[0]), "e")
        self.of = te.compute((rows,), lambda i: te.sum((ends(e) <= i).astype("int32"), axis=e), name="group")
        """The group of a row; of those past the last one, the number of groups."""

    def begin(self, group: Any) -> Any:
        """The first row of a group."""
        before = self.ends(tirx.max(group - 1, 0)).astype("int32")
        return tirx.if_then_else(group > 0, before, tirx.const(0, "int32"))

    def tiles(self, group: Any, height: int) -> Any:
        """Tiles of a height that a group takes."""
        length = self.ends(group).astype("int32") - self.begin(group)
        return tirx.max(tirx.floordiv(length + (height - 1), height), 0)


def tiles_of(ends: te.Tensor, rows: Any, height: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Per tile its group and its first row; per row its place, tile · height + row of the tile, or -1 for none.

    The group of tiles that are left over is the number of groups. Tiles end with the last row, or begin with the first.
    """
    groups = Groups(ends, rows)
    d, e = (te.reduce_axis((0, ends.shape[0]), name) for name in ("d", "e"))
    count = tirx.min(rows, tirx.floordiv(rows, height) + ends.shape[0])

    def earlier(g: Any) -> Any:
        return te.sum(tirx.if_then_else(d < g, groups.tiles(d.astype("int32"), height), 0), axis=d)

    before = te.compute(ends.shape, earlier, name="tiles_before")

    def passed(t: Any) -> Any:
        end = before(e) + groups.tiles(e.astype("int32"), height)
        return te.sum((end <= t.astype("int32")).astype("int32"), axis=e)

    def begun(t: Any) -> Any:
        own = tirx.min(group(t), groups.count - 1)
        at = groups.begin(own) + (t.astype("int32") - before(own)) * height
        return tirx.max(tirx.min(at, _int32(rows) - height), 0)

    group = te.compute((count,), passed, name="group_of_tile")
    first = te.compute((count,), begun, name="first_row")

    def placed(i: Any) -> Any:
        own, row = tirx.min(groups.of(i), groups.count - 1), i.astype("int32")
        tile = before(own) + tirx.floordiv(row - groups.begin(own), height)
        at = tile * height + row - first(tile)
        return tirx.if_then_else(groups.of(i) < groups.count, at, tirx.const(-1, "int32"))

    return group, first, te.compute((rows,), placed, name="place")


def _element(w: te.Tensor, group: Any, k: Any, n: Any, transposed: bool) -> Any:
    return w(group, n, k) if transposed else w(group, k, n)


def _int32(extent: Any) -> Any:
    return tirx.const(int(extent), "int32") if isinstance(extent, (int, tirx.IntImm)) else extent.astype("int32")


def _as_stored(site: Site, name: str) -> tuple[relax.Expr, bool]:
    """An argument, and whether its last two axes are to be exchanged: those of a parameter are, where it lies."""
    node = site.given(name)
    if node.target is torch.ops.aten.permute.default and [axis % 3 for axis in node.args[1]] == [0, 2, 1]:
        return site.importer.env[node.args[0]], True
    return site[name], False
