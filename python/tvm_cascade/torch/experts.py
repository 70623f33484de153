"""Products of mixtures of experts: rows sorted by expert, each group of them by a matrix of its own.

    group[i] = Σ_e (offsets[e] <= i)                    y[i, n] = Σ_k x[i, k] · w[group[i], k, n]

Which group a row is in is data, so that one function serves every distribution of the rows, and no count of them is
brought to the host.
"""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.site import Site, accumulator, names_of, type_name


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
    x, wide = site[rows], accumulator(type_name(site[rows]))

    def formula(x: te.Tensor, w: te.Tensor, ends: te.Tensor) -> te.Tensor:
        count, depth = w.shape[0], x.shape[1]
        e, k = te.reduce_axis((0, count), "e"), te.reduce_axis((0, depth), "k")

        def ended(i: Any) -> Any:
            return te.sum((ends(e) <= i).astype("int32"), axis=e)

        group = te.compute((x.shape[0],), ended, name="group")

        def product(i: Any, n: Any) -> Any:
            at = tirx.min(group(i), tirx.const(-1, "int32") + count)
            picked = w(at, n, k) if transposed else w(at, k, n)
            return te.sum(x(i, k).astype(wide) * picked.astype(wide), axis=k)

        shape = (x.shape[0], w.shape[1 if transposed else 2])
        summed = te.compute(shape, product, name="grouped")
        return te.compute(
            shape,
            lambda i, n: tirx.if_then_else(group(i) < count, summed(i, n), tirx.const(0, wide)),
            name="grouped_mm",
        )

    return site.cast(site.compute(formula, x, stored, offsets, name="grouped_mm"), site.dtype)


def _as_stored(site: Site, name: str) -> tuple[relax.Expr, bool]:
    """An argument, and whether its last two axes are to be exchanged: those of a parameter are, where it lies."""
    node = site.given(name)
    if node.target is torch.ops.aten.permute.default and [axis % 3 for axis in node.args[1]] == [0, 2, 1]:
        return site.importer.env[node.args[0]], True
    return site[name], False


def histc(site: Site) -> relax.Expr:
    """aten.histc between fixed bounds: how many elements are in each of equally wide bins."""
    bins, low, high = site["bins"], site["min"], site["max"]
    if not low < high:
        hint = "pass min and max, such as 0 and the number of bins less 1"
        raise ModelError("bounds of a histogram", f"min {low}, max {high}", "aten.histc", hint)

    def formula(x: te.Tensor) -> te.Tensor:
        dtype = str(x.dtype)
        first, width = tirx.const(low, dtype), tirx.const(high - low, dtype)
        n = te.reduce_axis((0, x.shape[0]), "n")

        def counted(b: Any) -> Any:
            scaled = (x(n) - first) * tirx.const(bins, dtype)
            place = tirx.floor(scaled / width) if "float" in dtype else tirx.floordiv(scaled, width)
            place = tirx.min(place.astype("int32"), tirx.const(bins - 1, "int32"))
            inside = tirx.all(x(n) >= first, x(n) <= tirx.const(high, dtype), place == b.astype("int32"))
            return te.sum(tirx.Select(inside, tirx.const(1, "int32"), tirx.const(0, "int32")), axis=n)

        return te.compute((bins,), counted, name="histogram")

    flat = site.emit(relax.op.reshape(site["self"], [-1]))
    return site.cast(site.compute(formula, flat, name="histogram"), site.dtype)
