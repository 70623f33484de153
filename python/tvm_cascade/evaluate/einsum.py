"""Sums of products over a grid: exact by matrix multiplication, or rounded as a loop accumulates.

A factor is an array of the grid's rank with extent 1 along every axis it does not depend on. Distributivity would
let a factor leave a sum, but inf * (1 - 1) is not inf - inf: here factors are only ever multiplied element by
element before they are summed, so non-finite values come out as they do in the loop nest.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_TILE = 1 << 15
"""Sums that are accumulated together: in float32, with their products, they stay in a cache of 256 KiB."""

_RUN = 1 << 12
"""Products that are added in one call of NumPy, where there are that few sums."""


def contract(factors: Sequence[Array], reduce_axes: Sequence[int], shape: Sequence[int]) -> Array:
    """The sum over `reduce_axes` of the product of `factors`.

    Parameters
    ----------
    factors : arrays of rank `len(shape)`, of extent 1 or `shape[k]` along axis k.
    reduce_axes : the axes that are summed.
    shape : the extents of the whole grid.

    Returns
    -------
    total : of rank `len(shape)`, with extent 1 along the summed axes and along axes that no factor depends on.
    """
    groups = _merge(list(factors))
    spread = [_spread(group, reduce_axes, shape) for group in groups]
    if len(spread) == 1:
        return np.add.reduce(spread[0], axis=tuple(reduce_axes), keepdims=True, dtype=spread[0].dtype)
    return _matmul(spread[0], spread[1], tuple(reduce_axes))


def accumulate(
    factors: Sequence[Array], reduce_axes: Sequence[int], shape: Sequence[int], dtype: np.dtype[Any]
) -> Array:
    """The sum of `contract` as a loop computes it: position after position, each product and partial sum in `dtype`.

    Parameters
    ----------
    factors, reduce_axes, shape : as for `contract`; two factors or more.
    dtype : in which the program accumulates; floats of NumPy's own.

    Returns
    -------
    total : as that of `contract`, of `dtype`.
    """
    terms = [_in_order(_spread(factor, reduce_axes, shape), reduce_axes).astype(dtype) for factor in factors]
    total = np.zeros(np.broadcast_shapes(*(term.shape[1:] for term in terms)), dtype)
    for tile in _tiles(total.shape):
        _add_products([term[(slice(None), *_where_wide(tile, term.shape[1:]))] for term in terms], total[tile])
    return total


def _in_order(array: Array, reduce_axes: Sequence[int]) -> Array:
    """The positions of the summed axes in the order of a loop nest, as a first axis; those axes keep extent 1."""
    extents = [1 if axis in reduce_axes else extent for axis, extent in enumerate(array.shape)]
    return np.moveaxis(array, reduce_axes, range(len(reduce_axes))).reshape([-1, *extents])


def _tiles(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Boxes of at most _TILE elements that cover the shape."""
    room, cuts = _TILE, list[list[slice]]()
    for extent in reversed(shape):
        width = min(extent, room)
        cuts.append([slice(start, start + width) for start in range(0, extent, max(width, 1))])
        room //= max(width, 1)
    return itertools.product(*reversed(cuts))


def _where_wide(tile: Sequence[slice], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(None) if extent == 1 else cut for cut, extent in zip(tile, shape, strict=True))


def _add_products(terms: Sequence[Array], total: Array) -> None:
    """Adds products of terms, position after position; of small totals, many positions in one call of NumPy."""
    count, run = len(terms[0]), max(1, _RUN // total.size)
    products = np.empty((min(run, count) + 1, *total.shape), total.dtype)
    for start in range(0, count, run):
        *first, last = (term[start : start + run] for term in terms)
        stop = 1 + len(last)
        np.multiply(functools.reduce(np.multiply, first), last, out=products[1:stop])
        if run == 1:
            total += products[1]
        else:
            products[0] = total
            total[...] = np.add.accumulate(products[:stop], axis=0)[-1]


def _merge(groups: list[Array]) -> list[Array]:
    """One or two arrays with the same product: first those that fit inside another, then the smallest pairs."""
    while len(groups) > 1:
        pairs = list(combinations(range(len(groups)), 2))
        nested = [pair for pair in pairs if _nested(groups[pair[0]], groups[pair[1]])]
        if not nested and len(groups) == 2:
            break
        first, second = min(nested or pairs, key=lambda pair: np.broadcast(groups[pair[0]], groups[pair[1]]).size)
        product = groups[first] * groups[second]
        groups = [group for k, group in enumerate(groups) if k not in (first, second)] + [product]
    return groups


def _nested(left: Array, right: Array) -> bool:
    return _wide(left) <= _wide(right) or _wide(right) <= _wide(left)


def _wide(array: Array) -> set[int]:
    return {axis for axis, extent in enumerate(array.shape) if extent != 1}


def _spread(array: Array, axes: Sequence[int], shape: Sequence[int]) -> Array:
    """`array` repeated along `axes`, as a view."""
    return np.broadcast_to(array, [shape[k] if k in axes else extent for k, extent in enumerate(array.shape)])


def _matmul(left: Array, right: Array, reduce_axes: tuple[int, ...]) -> Array:
    spatial = [axis for axis in range(left.ndim) if axis not in reduce_axes]
    batch = [axis for axis in spatial if axis in _wide(left) & _wide(right)]
    rows = [axis for axis in spatial if axis in _wide(left) - _wide(right)]
    columns = [axis for axis in spatial if axis in _wide(right) - _wide(left)]
    unit = [axis for axis in spatial if axis not in batch + rows + columns]
    product = np.matmul(_as_matrix(left, batch, rows, reduce_axes), _as_matrix(right, batch, reduce_axes, columns))
    order = [*batch, *rows, *columns, *unit, *reduce_axes]
    extents = [max(left.shape[axis], right.shape[axis]) for axis in (*batch, *rows, *columns)]
    product = product.reshape(extents + [1] * (len(unit) + len(reduce_axes)))
    return product.transpose(np.argsort(order))


def _as_matrix(array: Array, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> Array:
    """`array` as a stack of matrices; the axes that are in none of the three lists have extent 1."""
    rest = [axis for axis in range(array.ndim) if axis not in (*batch, *rows, *columns)]
    extent = [int(np.prod([array.shape[axis] for axis in axes], dtype=np.int64)) for axes in (batch, rows, columns)]
    return array.transpose([*batch, *rows, *columns, *rest]).reshape(extent)
