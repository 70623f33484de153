"""Moments of rows about their mean, each in the textbook's two passes."""

from __future__ import annotations

from tvm import te
from tvm.ir import Expr

from tvm_cascade.corpus.programs.draws import folded, positive
from tvm_cascade.corpus.programs.program import (
    Argument,
    Axes,
    Precision,
    Program,
    Shape,
    output_stage,
    placeholder,
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
    x = _rows(shape, precision, "x")
    mean = row_mean(precision, _row_axes(shape), x, "mean")
    j = te.reduce_axis((0, shape["length"]), "l")

    def power(i: Expr) -> Expr:
        centred = precision.widen(x(i, j)) - mean(i)
        product = centred
        for _ in range(order - 1):
            product = product * centred
        return product

    moment = stage({"row": shape["rows"]}, lambda i: te.sum(power(i), axis=j), "moment")
    count = precision.constant(shape["length"])
    out = output_stage(precision, {"row": shape["rows"]}, lambda i: moment(i) / count, "out")
    flops = (order + 2) * shape["rows"] * shape["length"]
    return Program((Argument(x, folded()),), (out,), flops)


def covariance(shape: Shape, precision: Precision) -> Program:
    """Population covariance of two vectors per row: x, y [row, l] -> out[row]."""
    x, y = _rows(shape, precision, "x"), _rows(shape, precision, "y")
    mean_x = row_mean(precision, _row_axes(shape), x, "mean_x")
    mean_y = row_mean(precision, _row_axes(shape), y, "mean_y")
    j = te.reduce_axis((0, shape["length"]), "l")
    rows = {"row": shape["rows"]}
    moment = stage(
        rows,
        lambda i: te.sum((precision.widen(x(i, j)) - mean_x(i)) * (precision.widen(y(i, j)) - mean_y(i)), axis=j),
        "moment",
    )
    out = output_stage(precision, rows, lambda i: moment(i) / precision.constant(shape["length"]), "out")
    arguments = (Argument(x, folded()), Argument(y, folded()))
    return Program(arguments, (out,), flops=6 * shape["rows"] * shape["length"])


def inertia(shape: Shape, precision: Precision) -> Program:
    """Moment of inertia about the centre of mass, in space.

    mass[row, l], position[row, l, 3] -> out[row] = sum mass * |position - centre|^2.
    """
    rows, length = {"row": shape["rows"]}, shape["length"]
    of_mass = {**rows, "l": length}
    mass = placeholder(of_mass, precision.storage, "mass")
    position = placeholder({**of_mass, "axis": _SPACE}, precision.storage, "position")

    j = te.reduce_axis((0, length), "l")
    total_mass = stage(rows, lambda i: te.sum(precision.widen(mass(i, j)), axis=j), "total_mass")
    p = te.reduce_axis((0, length), "l")
    of_centre = {**rows, "axis": _SPACE}
    weighted = stage(
        of_centre,
        lambda i, a: te.sum(precision.widen(mass(i, p)) * precision.widen(position(i, p, a)), axis=p),
        "weighted_position",
    )
    centre = stage(of_centre, lambda i, a: weighted(i, a) / total_mass(i), "centre")

    def squared(i: Expr, particle: Expr, a: int) -> Expr:
        offset = precision.widen(position(i, particle, a)) - centre(i, a)
        return offset * offset

    distance = stage(of_mass, lambda i, n: squared(i, n, 0) + squared(i, n, 1) + squared(i, n, 2), "squared_distance")
    n = te.reduce_axis((0, length), "l")
    out = output_stage(precision, rows, lambda i: te.sum(precision.widen(mass(i, n)) * distance(i, n), axis=n), "out")
    arguments = (Argument(mass, positive), Argument(position, folded(-2)))
    return Program(arguments, (out,), flops=17 * shape["rows"] * length)


def row_mean(precision: Precision, axes: Axes, x: te.Tensor, name: str) -> te.Tensor:
    """Sum of `x` over the last of its axes, then the quotient by that axis's length: two stages."""
    *spatial, reduced = axes
    rows = {axis: axes[axis] for axis in spatial}
    j = te.reduce_axis((0, axes[reduced]), reduced)
    total = stage(rows, lambda *at: te.sum(precision.widen(x(*at, j)), axis=j), f"{name}_sum")
    return stage(rows, lambda *at: total(*at) / precision.constant(axes[reduced]), name)


def _row_axes(shape: Shape) -> Axes:
    return {"row": shape["rows"], "l": shape["length"]}


def _rows(shape: Shape, precision: Precision, name: str) -> te.Tensor:
    return placeholder(_row_axes(shape), precision.storage, name)
