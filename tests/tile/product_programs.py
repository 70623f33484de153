"""Matrix products as users write them: transposed, batched, ragged, with maps of their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from tvm import ir, sym, te, tirx

from .emulator.run import Array

Map = Callable[[ir.Expr, Sequence[ir.Expr]], ir.Expr]
"""(element of the product, its indices) -> what is stored, before it is rounded."""


@dataclass(frozen=True)
class Product:
    """out[…, m, n] = map of the sum over k of a[…, m, k] · b[…, k, n].

    Attributes
    ----------
    m, n, k : extents; `batch` before them, of both operands.
    dtypes : of the operands.
    out : dtype of the output.
    sums : dtype that the program sums in.
    a_across, b_across : m, or n, is the operand's contiguous dimension.
    """

    m: int | ir.Expr
    n: int
    k: int
    batch: tuple[int, ...] = ()
    dtypes: tuple[str, str] = ("bfloat16", "bfloat16")
    out: str = "bfloat16"
    sums: str = "float32"
    a_across: bool = False
    b_across: bool = False

    def build(self, mapped: Map | None = None, others: Sequence[te.Tensor] = ()) -> tirx.PrimFunc:
        """The function of the operands, other inputs and the output."""
        m, n, k = self.m, self.n, self.k
        a = te.placeholder((*self.batch, *((k, m) if self.a_across else (m, k))), self.dtypes[0], name="a")
        b = te.placeholder((*self.batch, *((k, n) if self.b_across else (n, k))), self.dtypes[1], name="b")
        d = te.reduce_axis((0, k), "d")

        def element(*at: ir.Expr) -> ir.Expr:
            *rest, i, j = at
            left = a(*rest, *((d, i) if self.a_across else (i, d)))
            right = b(*rest, *((d, j) if self.b_across else (j, d)))
            return te.sum(left.astype(self.sums) * right.astype(self.sums), axis=d)

        product = te.compute((*self.batch, m, n), element, name="product")

        def stored(*at: ir.Expr) -> ir.Expr:
            value = product(*at)
            return (value if mapped is None else mapped(value, at)).astype(self.out)

        return te.create_prim_func([a, b, *others, te.compute(product.shape, stored, name="out")])


@dataclass(frozen=True)
class Grouped:
    """out[t, i, n] = Σ_k x[first[t] + i, k]·w[group[t], n, k] where group[t] < groups, and 0 elsewhere.

    Attributes
    ----------
    rows, tiles, height : of x, and of the result.
    """

    rows: int = 200
    tiles: int = 5
    height: int = 128
    n: int = 136
    k: int = 200
    groups: int = 3
    dtype: str = "bfloat16"

    def build(self) -> tirx.PrimFunc:
        x = te.placeholder((self.rows, self.k), self.dtype, name="x")
        w = te.placeholder((self.groups, self.n, self.k), self.dtype, name="w")
        group, first = (te.placeholder((self.tiles,), "int32", name=name) for name in ("group", "first"))
        k, zero = te.reduce_axis((0, self.k), "k"), tirx.const(0.0, "float32")

        def element(t: ir.Expr, i: ir.Expr, n: ir.Expr) -> ir.Expr:
            value = x[first[t] + i, k].astype("float32") * w[group[t], n, k].astype("float32")
            return te.sum(tirx.if_then_else(group[t] < self.groups, value, zero), axis=k)

        product = te.compute((self.tiles, self.height, self.n), element, name="product")
        out = te.compute(product.shape, lambda *at: product(*at).astype(self.dtype), name="out")
        return te.create_prim_func([x, w, group, first, out])

    def inputs(self) -> list[Array]:
        """Tiles that overlap, two of one group, and one of none, which begins outside."""
        assert self.tiles == 5
        x, w, *_ = inputs_of(self.build())
        group, first = np.array([0, 1, 1, self.groups, 2]), np.array([7, 0, 40, 9 * self.rows, self.rows - self.height])
        return [x, w, group.astype("int32"), first.astype("int32")]


@dataclass(frozen=True)
class Gated:
    """out[m, n] = silu(Σ_k x[m, k]·g[n, k]) · Σ_k x[m, k]·u[n, k].

    Attributes
    ----------
    m, n, k : extents.
    across : n is the contiguous dimension of g and u.
    alike : both products have x; each has a tensor of its own otherwise.
    """

    m: int | ir.Expr
    n: int
    k: int
    across: bool = False
    alike: bool = True

    def build(self) -> tirx.PrimFunc:
        """The function of the operands and the output."""
        x, y = (te.placeholder((self.m, self.k), "bfloat16", name=name) for name in "xy")
        weights = (self.k, self.n) if self.across else (self.n, self.k)
        g, u = (te.placeholder(weights, "bfloat16", name=name) for name in "gu")

        def times(left: te.Tensor, right: te.Tensor, name: str) -> te.Tensor:
            d = te.reduce_axis((0, self.k), "d")

            def element(i: ir.Expr, j: ir.Expr) -> ir.Expr:
                weight = right[d, j] if self.across else right[j, d]
                return te.sum(left[i, d].astype("float32") * weight.astype("float32"), axis=d)

            return te.compute((self.m, self.n), element, name=name)

        gate, up = times(x, g, "gate"), times(x if self.alike else y, u, "up")

        def stored(i: ir.Expr, j: ir.Expr) -> ir.Expr:
            silu = gate[i, j] / (tirx.const(1.0, "float32") + te.exp(-gate[i, j]))
            return (silu * up[i, j]).astype("bfloat16")

        out = te.compute((self.m, self.n), stored, name="out")
        return te.create_prim_func([x, g, u, out] if self.alike else [x, y, g, u, out])


@dataclass(frozen=True)
class Interleaved:
    """Of y = Σ_k x[m, k]·w[2·n, k]: silu(y[i, 2·j])·y[i, 2·j + 1] + bias[j], or even columns of y beside odd ones.

    Attributes
    ----------
    m, n, k : extents; n is that of the outputs.
    dtype : of the operands and the outputs.
    apart : two outputs, of even and of odd columns.
    turned : the gated output is [n, m].
    """

    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    apart: bool = False
    turned: bool = False

    def build(self) -> tirx.PrimFunc:
        """The function of the operands, the bias where there is one, and the outputs."""
        x, w = (te.placeholder((n, self.k), self.dtype, name) for n, name in ((self.m, "x"), (2 * self.n, "w")))
        bias, d = te.placeholder((self.n,), "float32", name="bias"), te.reduce_axis((0, self.k), "d")
        shape, wide = (self.m, 2 * self.n), "float32"
        y = te.compute(shape, lambda i, j: te.sum(x[i, d].astype(wide) * w[j, d].astype(wide), axis=d), name="y")

        def gated(i: ir.Expr, j: ir.Expr) -> ir.Expr:
            silu = y[i, 2 * j] / (tirx.const(1.0, wide) + te.exp(-y[i, 2 * j]))
            return (silu * y[i, 2 * j + 1] + bias[j]).astype(self.dtype)

        if self.apart:
            even = te.compute((self.m, self.n), lambda i, j: y[i, 2 * j].astype(self.dtype), name="even")
            odd = te.compute((self.m, self.n), lambda i, j: y[i, 2 * j + 1].astype(self.dtype), name="odd")
            return te.create_prim_func([x, w, even, odd])
        if self.turned:
            return te.create_prim_func([x, w, bias, te.compute((self.n, self.m), lambda j, i: gated(i, j), "out")])
        return te.create_prim_func([x, w, bias, te.compute((self.m, self.n), gated, "out")])


@dataclass(frozen=True)
class Scaled:
    """out[m, n] = Σ_k q[m, k]·s[m, k // block]·w[n, k]·t[n // across, k // block], of float8 q and w.

    Attributes
    ----------
    m, n, k : extents.
    block : positions of k that share their scales.
    across : columns that do.
    apart : k is two loops, over blocks and inside of them.
    gated : out[m, n] is the product of two neighbouring columns instead.
    """

    m: int
    n: int
    k: int
    block: int = 128
    across: int = 128
    apart: bool = False
    gated: bool = False

    def build(self) -> tirx.PrimFunc:
        """The function of the operands, their scales and the output."""
        m, n, k, block = self.m, self.n, self.k, self.block
        q = te.placeholder((m, k), "float8_e4m3fn", name="q")
        s = te.placeholder((m, -(-k // block)), name="s")
        w = te.placeholder((n, k), "float8_e4m3fn", name="w")
        t = te.placeholder((-(-n // self.across), -(-k // block)), name="t")
        axes = [te.reduce_axis((0, k // block), "b"), te.reduce_axis((0, block), "d")]
        axes = axes if self.apart else [te.reduce_axis((0, k), "d")]

        def element(i: ir.Expr, j: ir.Expr) -> ir.Expr:
            d, b = (axes[0] * block + axes[1], axes[0]) if self.apart else (axes[0], axes[0] // block)
            left = q[i, d].astype("float32") * s[i, b]
            return te.sum(left * (w[j, d].astype("float32") * t[j // self.across, b]), axis=axes)

        product = te.compute((m, n), element, name="product")

        def stored(i: ir.Expr, j: ir.Expr) -> ir.Expr:
            return (product[i, 2 * j] * product[i, 2 * j + 1] if self.gated else product[i, j]).astype("bfloat16")

        out = te.compute((m, n // 2 if self.gated else n), stored, name="out")
        return te.create_prim_func([q, s, w, t, out])


@dataclass(frozen=True)
class Windows:
    """out[n, p, q, m] = relu of b[m] and the sum over i, j, c of x[n, step·p + far·i - edge, …q, j, c] · w[m, i, j, c].

    Attributes
    ----------
    images, height, width, channels : of x.
    columns, side : of the weights.
    step, far : from place to place, and from neighbour to neighbour in a window.
    edge : zeros around the image.
    across : the weights are w[i, j, c, m].
    """

    height: int | ir.Expr
    width: int | ir.Expr
    images: int | ir.Expr = 1
    channels: int = 64
    columns: int = 64
    side: int = 3
    step: int = 1
    far: int = 1
    edge: int = 1
    across: bool = False
    dtype: str = "float16"

    @property
    def summed(self) -> int:
        return self.side**2 * self.channels

    def build(self) -> tirx.PrimFunc:
        images, channels, columns, side, edge = self.images, self.channels, self.columns, self.side, self.edge
        x = te.placeholder((images, self.height, self.width, channels), self.dtype, name="x")
        shape = (side, side, channels, columns) if self.across else (columns, side, side, channels)
        w, b = te.placeholder(shape, self.dtype, name="w"), te.placeholder((columns,), self.dtype, name="b")
        around = images, self.height + 2 * edge, self.width + 2 * edge, channels

        def bordered(n: ir.Expr, p: ir.Expr, q: ir.Expr, c: ir.Expr) -> ir.Expr:
            inside = tirx.all(p >= edge, p < self.height + edge, q >= edge, q < self.width + edge)
            return tirx.if_then_else(inside, x(n, p - edge, q - edge, c), tirx.const(0.0, self.dtype))

        image = te.compute(around, bordered, name="around") if edge else x
        i, j, c = (te.reduce_axis((0, n), v) for v, n in (("i", side), ("j", side), ("c", channels)))

        def element(n: ir.Expr, p: ir.Expr, q: ir.Expr, m: ir.Expr) -> ir.Expr:
            one = image(n, p * self.step + i * self.far, q * self.step + j * self.far, c)
            other = w(i, j, c, m) if self.across else w(m, i, j, c)
            return te.sum(one.astype("float32") * other.astype("float32"), axis=[i, j, c])

        places = [(n - self.far * (side - 1) - 1) // self.step + 1 for n in around[1:3]]
        down, right = (n if isinstance(n, int) else sym.Analyzer().simplify(n) for n in places)
        sums = te.compute((images, down, right, columns), element, name="sums")

        def stored(n: ir.Expr, p: ir.Expr, q: ir.Expr, m: ir.Expr) -> ir.Expr:
            value = sums(n, p, q, m) + b(m).astype("float32")
            return tirx.max(value, tirx.const(0.0, "float32")).astype(self.dtype)

        return te.create_prim_func([x, w, b, te.compute(sums.shape, stored, name="out")])


def inputs_of(func: tirx.PrimFunc, kind: str = "normal", **extents: int) -> list[Array]:
    """Data for every parameter but the last.

    Parameters
    ----------
    kind : "normal", "large" (near the largest sums of float16), "zeros", or "special" (infinities and NaNs in places).
    extents : of variables, by name.
    """
    rng = np.random.default_rng(0)
    found = []
    for param in list(func.params)[:-1]:
        shape = [extents[str(n)] if str(n) in extents else int(n) for n in param.ty.shape]
        values = rng.standard_normal(shape) * {"large": 40.0, "zeros": 0.0}.get(kind, 1.0)
        if kind == "special":
            flat = values.reshape(-1)
            flat[:: max(1, flat.size // 5)] = np.resize([np.inf, -np.inf, np.nan], len(flat[:: max(1, flat.size // 5)]))
        dtype = str(param.ty.dtype)
        found.append(values.astype(getattr(ml_dtypes, dtype, dtype)))
    return found


PARTS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "tiles": ((64, 64, 64), 1, 3),
    "within tiles": ((96, 40, 56), 1, 3),
    "odd": ((64, 33, 35), 1, 1),
    "heads": ((64, 64, 64), 2, 0),
    "two": ((48, 80), 1, 2),
}
"""Widths of the outputs, heads that each has apart, and outputs that leave in boxes."""


def parts(widths: tuple[int, ...], heads: int = 1) -> tirx.PrimFunc:
    """A projection whose columns go to several outputs, each apart in heads where there are some."""
    n = sum(widths)
    a, b = te.placeholder((2, 70, 72), "bfloat16", name="a"), te.placeholder((n, 72), "bfloat16", name="b")
    bias, d = te.placeholder((n,), "bfloat16", name="bias"), te.reduce_axis((0, 72), "d")
    product = te.compute(
        (2, 70, n), lambda s, i, j: te.sum(a[s, i, d].astype("float32") * b[j, d].astype("float32"), axis=d)
    )
    added = te.compute(
        product.shape, lambda s, i, j: (product[s, i, j] + bias[j].astype("float32")).astype("bfloat16"), name="added"
    )

    def taken(number: int, start: int, width: int) -> te.Tensor:
        own = te.compute((2, 70, width), lambda s, i, j: added[s, i, start + j], name=f"part{number}")
        if heads == 1:
            return own
        each = width // heads
        return te.compute((2, heads, 70, each), lambda s, h, i, f: own[s, i, h * each + f], name=f"heads{number}")

    outputs = [taken(k, sum(widths[:k]), width) for k, width in enumerate(widths)]
    return te.create_prim_func([a, b, bias, *outputs])
