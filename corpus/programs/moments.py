"""Moments of rows about their mean, each in the textbook's two passes."""

from __future__ import annotations

import math

from tvm import te
from tvm.ir import Expr

from corpus.programs.draws import folded, positive
from corpus.programs.program import (
    Axes,
    Element,
    Inputs,
    Precision,
    Program,
    Shape,
    output_stage,
    reduced,
    rows_of,
    stage,
)

_SPACE = 3


def variance(shape: Shape, precision: Precision) -> Program:
    """Population variance of each row: x[row, l] -> out[row] = sum (x - mean)^2 / length."""
    return _central_moment(shape, precision, order=2)


def third_moment(shape: Shape, precision: Precision) -> Program:
    """Third central moment of each row: x[row, l] -> out[row] = sum (x - mean)^3 / length."""
    return _central_moment(shape, precision, order=3)


def _central_moment(shape: Shape, precision: Precision, order: int) -> Program:
    axes, given = row_axes(shape), Inputs(precision)
    offset = centred(precision, axes, given(axes, "x", folded()))

    def power(*at: Expr) -> Expr:
        return math.prod([offset(*at)] * (order - 1), start=offset(*at))

    return _mean(given, axes, power, flops=(order + 2) * shape["rows"] * shape["length"])


def covariance(shape: Shape, precision: Precision) -> Program:
    """Population covariance of two vectors per row: x, y [row, l] -> out[row]."""
    axes, given = row_axes(shape), Inputs(precision)
    x, y = (centred(precision, axes, given(axes, name, folded()), f"mean_{name}") for name in "xy")
    return _mean(given, axes, lambda *at: x(*at) * y(*at), flops=6 * shape["rows"] * shape["length"])


def _mean(given: Inputs, axes: Axes, element: Element, flops: int) -> Program:
    moment, count = reduced(te.sum, axes, element, "moment"), given.precision.constant(axes["l"])
    out = output_stage(given.precision, rows_of(axes), lambda i: moment(i) / count, "out")
    return given.program(out, flops=flops)


def inertia(shape: Shape, precision: Precision) -> Program:
    """Moment of inertia about the centre of mass, in space.

    mass[row, l], position[row, l, 3] -> out[row] = sum mass * |position - centre|^2.
    """
    axes, given = row_axes(shape), Inputs(precision)
    mass, position = given(axes, "mass", positive), given({**axes, "axis": _SPACE}, "position", folded(-2))
    of_centre = {**rows_of(axes), "axis": _SPACE}
    total_mass = reduced(te.sum, axes, mass, "total_mass")
    weighted = reduced(
        te.sum, {**of_centre, "l": axes["l"]}, lambda i, a, n: mass(i, n) * position(i, n, a), "weighted_position"
    )
    centre = stage(of_centre, lambda i, a: weighted(i, a) / total_mass(i), "centre")

    def squared(i: Expr, particle: Expr, a: int) -> Expr:
        offset = position(i, particle, a) - centre(i, a)
        return offset * offset

    distance = stage(axes, lambda i, n: squared(i, n, 0) + squared(i, n, 1) + squared(i, n, 2), "squared_distance")
    out = output_stage(precision, axes, lambda i, n: mass(i, n) * distance(i, n), "out", te.sum)
    return given.program(out, flops=17 * shape["rows"] * shape["length"])


def row_mean(precision: Precision, axes: Axes, x: Element, name: str) -> te.Tensor:
    """Sum of `x` over the last of its axes, then the quotient by that axis's length: two stages."""
    total, count = reduced(te.sum, axes, x, f"{name}_sum"), [*axes.values()][-1]
    return stage(rows_of(axes), lambda *at: total(*at) / precision.constant(count), name)


def centred(precision: Precision, axes: Axes, x: Element, name: str = "mean") -> Element:
    """`x` less its mean along the last axis, which is a stage of that name."""
    mean = row_mean(precision, axes, x, name)
    return lambda *at: x(*at) - mean(*at[:-1])


def row_axes(shape: Shape) -> Axes:
    return {"row": shape["rows"], "l": shape["length"]}
