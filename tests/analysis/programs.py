"""Unfused programs for the tests, from TE: short to write, one block a stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.ir import Expr

ROWS = 4
LENGTH = 37
"""A prime, so that no tile divides it."""

Element = Callable[..., Expr]
Combine = Callable[..., Expr]

maximum, minimum, total = te.max, te.min, te.sum
product = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="product")
disjunction = te.comm_reducer(lambda a, b: tirx.Or(a, b), lambda dtype: tirx.const(False, dtype), name="disjunction")
conjunction = te.comm_reducer(lambda a, b: tirx.And(a, b), lambda dtype: tirx.const(True, dtype), name="conjunction")


def array(name: str, *shape: int, dtype: str = "float32") -> te.Tensor:
    """An input; rows × LENGTH where no shape is given."""
    return te.placeholder(shape or (ROWS, LENGTH), dtype, name=name)


def number(value: float, dtype: str = "float32") -> Expr:
    """A constant."""
    return tirx.const(value, dtype)


def fold(
    name: str, element: Element, combine: Combine = total, length: int = LENGTH, rows: Sequence[int] = (ROWS,)
) -> te.Tensor:
    """One reduction: name[rows] = combine over l < length of element(*rows, l)."""
    axis = te.reduce_axis((0, length), "l")
    return te.compute(tuple(rows), lambda *at: combine(element(*at, axis), axis=axis), name=name)


def tupled(
    name: str,
    combine: Callable[..., tuple[Expr, ...]],
    identity: Callable[..., tuple[Expr, ...]],
    element: Callable[..., tuple[Expr, ...]],
    length: int = LENGTH,
    rows: Sequence[int] = (ROWS,),
) -> list[te.Tensor]:
    """One reduction of tuples, by a te.comm_reducer of that combine and identity."""
    axis = te.reduce_axis((0, length), "l")
    reducer = te.comm_reducer(combine, identity, name=name)
    return list(te.compute(tuple(rows), lambda *at: reducer(element(*at, axis), axis=axis), name=name))


def each(name: str, element: Element, *shape: int) -> te.Tensor:
    """One elementwise stage; over rows × LENGTH where no shape is given."""
    return te.compute(shape or (ROWS, LENGTH), element, name=name)


def program(*tensors: te.Tensor) -> tirx.PrimFunc:
    """The function with these parameters, named "main"."""
    return te.create_prim_func(list(tensors)).with_attr("global_symbol", "main")


def softmax_stages(
    x: te.Tensor, length: int = LENGTH, rows: int = ROWS, suffix: str = ""
) -> tuple[te.Tensor, te.Tensor]:
    """row_max and row_sum of the rows of x."""
    row_max = fold(f"row_max{suffix}", lambda i, j: x[i, j], maximum, length, (rows,))
    row_sum = fold(f"row_sum{suffix}", lambda i, j: te.exp(x[i, j] - row_max[i]), total, length, (rows,))
    return row_max, row_sum


def softmax_stats(length: int = LENGTH, dtype: str = "float32", rows: int = ROWS) -> tirx.PrimFunc:
    """x -> row_max, row_sum."""
    x = array("x", rows, length, dtype=dtype)
    return program(x, *softmax_stages(x, length, rows))


def variance(length: int = LENGTH, dtype: str = "float32") -> tirx.PrimFunc:
    """x -> second moment about the mean, unscaled."""
    x = array("x", ROWS, length, dtype=dtype)
    mean_sum = fold("mean_sum", lambda i, j: x[i, j], total, length)

    def centred(i: Expr, j: Expr) -> Expr:
        return x[i, j] - mean_sum[i] / number(length, dtype)

    return program(x, fold("moment", lambda i, j: centred(i, j) * centred(i, j), total, length))


class Attention:
    """The stages of attention over heads, queries, keys and features, as tensors."""

    def __init__(self, queries: int = 6, keys: int = LENGTH, features: int = 8, heads: int = 2) -> None:
        self.shape = (heads, queries, keys, features)
        self.q, self.k, self.v = (
            array(n, heads, extent, features) for n, extent in (("q", queries), ("k", keys), ("v", keys))
        )
        inner = te.reduce_axis((0, features), "d")
        self.scores = each(
            "scores",
            lambda h, i, j: te.sum(self.q[h, i, inner] * self.k[h, j, inner], axis=inner),
            heads,
            queries,
            keys,
        )
        rows = (heads, queries)
        self.row_max = fold("row_max", lambda h, i, j: self.scores[h, i, j], maximum, keys, rows)
        self.weights = each(
            "weights", lambda h, i, j: te.exp(self.scores[h, i, j] - self.row_max[h, i]), heads, queries, keys
        )
        self.row_sum = fold("row_sum", lambda h, i, j: self.weights[h, i, j], total, keys, rows)
        self.probs = each("probs", lambda h, i, j: self.weights[h, i, j] / self.row_sum[h, i], heads, queries, keys)

    def out(self, order: str = "hid") -> te.Tensor:
        """probs · v, written in the order of axes given, of h(ead), i (query) and d (feature)."""
        heads, queries, keys, features = self.shape
        extents = {"h": heads, "i": queries, "d": features}
        axis = te.reduce_axis((0, keys), "j")

        def element(*at: Expr) -> Expr:
            where = dict(zip(order, at, strict=True))
            return te.sum(self.probs[where["h"], where["i"], axis] * self.v[where["h"], axis, where["d"]], axis=axis)

        return each("out", element, *(extents[name] for name in order))

    def program(self, *outputs: te.Tensor) -> tirx.PrimFunc:
        """q, k, v -> the outputs."""
        return program(self.q, self.k, self.v, *outputs)


HUGE = 2.0**124
"""Thirty-two of these leave float32, and the square of their distance from zero does at once."""


def squares_about_a_result(length: int = LENGTH, rows: int = ROWS) -> tirx.PrimFunc:
    """x, w, z -> s = Σ z and Σ w·(x − s)², which is held about the mean of x by |w|."""
    x, w, z = (array(name, rows, length) for name in "xwz")
    s = fold("s", lambda i, j: z[i, j], total, length, (rows,))
    squares = fold("squares", lambda i, j: w[i, j] * (x[i, j] - s[i]) * (x[i, j] - s[i]), total, length, (rows,))
    return program(x, w, z, s, squares)


def at_huge_offset(length: int = LENGTH, rows: int = ROWS) -> list[NDArray[np.float32]]:
    """x, w, z whose first row is HUGE: a few positions have a mean, more have none, as Σ |w|·x overflows.

    All squares of that row are zero: a state is right where some of its positions stand, and overflows elsewhere.
    """
    rng = np.random.default_rng(0)
    x, w = rng.normal(3, 1, (rows, length)), rng.choice([-1.0, 1.0], (rows, length))
    z = rng.normal(3 / length, 1e-3, (rows, length))
    x[0], z[0] = HUGE, np.where(np.arange(length) == length // 2, HUGE, 0)
    return [array.astype(np.float32) for array in (x, w, z)]
