"""The workloads in NumPy as an expert writes them: matrix products by BLAS, in place, in cache-sized blocks.

Each takes the program's inputs and gives a call that computes the result anew. Arithmetic is in float32 (float64 for
float64 inputs), as the workloads' own; scratch arrays are allocated once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Formula = Callable[[Sequence[Array]], Callable[[], Array]]

_BLOCK_ELEMENTS = 1 << 17  # of a scratch array; two of them fit a core's private cache


def attention(inputs: Sequence[Array]) -> Callable[[], Array]:
    """softmax(q·kᵀ/√d)·v for q[..., h, i, d], k and v [..., kv_head, j, d], one head after another."""
    q, k, v = inputs
    features, keys = q.shape[-1], k.shape[-2]
    # Queries of the heads that share keys stand below each other, so that a head is one pair of matrix products.
    grouped = q.reshape(-1, q.shape[-2] * (q.shape[-3] // k.shape[-3]), features)
    k, v = k.reshape(-1, keys, features), v.reshape(-1, keys, features)
    wide = _wide(q)
    scores = np.empty((grouped.shape[1], keys), wide)
    out = np.empty(grouped.shape, wide)
    scale = wide.type(features**-0.5)

    def call() -> Array:
        for head in range(len(grouped)):
            np.matmul(grouped[head].astype(wide, copy=False) * scale, k[head].astype(wide, copy=False).T, out=scores)
            np.subtract(scores, scores.max(-1, keepdims=True), out=scores)
            np.exp(scores, out=scores)
            np.matmul(scores, v[head].astype(wide, copy=False), out=out[head])
            np.divide(out[head], scores.sum(-1, keepdims=True), out=out[head])
        return out.reshape(q.shape).astype(q.dtype, copy=False)

    return call


def variance(inputs: Sequence[Array]) -> Callable[[], Array]:
    """Mean of (x − mean)² along the rows of x[row, l], in two passes."""
    (x,) = inputs
    scratch = _scratch(x)

    def rows(block: slice) -> Array:
        values = x[block]
        centred = np.subtract(values, _mean(values, scratch.dtype), out=scratch[: len(values)])
        return _row_dots(centred, centred) / scratch.dtype.type(x.shape[1])

    return _by_blocks(x, rows)


def inertia(inputs: Sequence[Array]) -> Callable[[], Array]:
    """Σ mass·|position − centre|² along the rows of mass[row, l] and position[row, l, axis], axis by axis."""
    mass, position = inputs
    scratch = _scratch(mass)

    def rows(block: slice) -> Array:
        weights = mass[block].astype(scratch.dtype, copy=False)
        offset = scratch[: len(weights)]
        total_mass, total = weights.sum(1), np.zeros(len(weights), scratch.dtype)
        for axis in range(position.shape[2]):
            np.copyto(offset, position[block, :, axis])
            centre = _row_dots(weights, offset) / total_mass
            np.subtract(offset, centre[:, None], out=offset)
            total += _row_dots(weights, np.square(offset, out=offset))
        return total

    return _by_blocks(mass, rows)


def logsumexp(inputs: Sequence[Array]) -> Callable[[], Array]:
    """log Σ exp(x) along the rows of x[row, l]."""
    (x,) = inputs
    scratch = _scratch(x)

    def rows(block: slice) -> Array:
        values = x[block]
        row_max = values.max(1)
        weights = np.subtract(values, row_max[:, None], out=scratch[: len(values)])
        return np.asarray(row_max + np.log(np.exp(weights, out=weights).sum(1)))

    return _by_blocks(x, rows)


FORMULAS: Mapping[str, Formula] = {
    "attention": attention,
    "variance": variance,
    "inertia": inertia,
    "logsumexp": logsumexp,
}


def _wide(x: Array) -> np.dtype[Any]:
    return np.result_type(x.dtype, np.float32)


def _scratch(x: Array) -> Array:
    return np.empty((_block_rows(x), x.shape[1]), _wide(x))


def _block_rows(x: Array) -> int:
    return max(1, _BLOCK_ELEMENTS // x.shape[1])


def _blocks(x: Array) -> Iterator[slice]:
    step = _block_rows(x)
    return (slice(first, first + step) for first in range(0, len(x), step))


def _by_blocks(x: Array, rows: Callable[[slice], Array]) -> Callable[[], Array]:
    return lambda: np.concatenate([rows(block) for block in _blocks(x)]).astype(x.dtype, copy=False)


def _mean(x: Array, dtype: np.dtype[Any]) -> Array:
    return np.asarray(x.mean(1, keepdims=True, dtype=dtype))


def _row_dots(a: Array, b: Array) -> Array:
    """The inner product of each row of `a` with the same row of `b`, by BLAS."""
    return np.matmul(a[:, None, :], b[:, :, None])[:, 0, 0]
