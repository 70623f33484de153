"""Residues of what was fitted: small beside what they are taken of, so moments of that alone would cancel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.obligations.certificate import certificate

from ..analysis import programs
from ..analysis.programs import LENGTH, Element, each, number, program
from ..tiers import slow_but
from .running import Array, Arrays, Unfused, read

TILINGS = [(1, 1), (5, 1), (4, 3)]
ROWS = 32
"""So many that the largest error of all rows tells of the program rather than of one row's luck."""


def array(name: str) -> te.Tensor:
    return programs.array(name, ROWS, LENGTH)


def fold(name: str, element: Element) -> te.Tensor:
    return programs.fold(name, element, rows=(ROWS,))


def mean(name: str, element: Element) -> Callable[[Expr], Expr]:
    total = fold(name, element)
    return lambda i: total[i] / number(LENGTH)


def per_row(name: str, element: Callable[[Expr], Expr]) -> te.Tensor:
    return each(name, element, ROWS)


def squared(value: Expr) -> Expr:
    return te.power(value, number(2))


def line(x: te.Tensor, y: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Slope and intercept of the line through the points of each row; slope 0 where x is constant."""
    x_mean, y_mean = mean("x_sum", lambda i, j: x[i, j]), mean("y_sum", lambda i, j: y[i, j])
    square = fold("square", lambda i, j: squared(x[i, j] - x_mean(i)))
    mixed = fold("mixed", lambda i, j: (x[i, j] - x_mean(i)) * (y[i, j] - y_mean(i)))
    slope = per_row("slope", lambda i: mixed[i] / te.max(square[i], number(1e-20)))
    return slope, per_row("intercept", lambda i: y_mean(i) - slope[i] * x_mean(i))


def of_a_line(power: int) -> Callable[[], tirx.PrimFunc]:
    def build() -> tirx.PrimFunc:
        x, y = array("x"), array("y")
        slope, intercept = line(x, y)

        def element(i: Expr, j: Expr) -> Expr:
            return te.power(y[i, j] - slope[i] * x[i, j] - intercept[i], number(power))

        return program(x, y, fold("out", element))

    return build


def explained_by_a_line() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    slope, intercept = line(x, y)
    y_mean = mean("y_total", lambda i, j: y[i, j])
    square = fold("y_square", lambda i, j: squared(y[i, j] - y_mean(i)))
    residue = fold("residue", lambda i, j: squared(y[i, j] - slope[i] * x[i, j] - intercept[i]))
    return program(x, y, per_row("out", lambda i: number(1) - residue[i] / square[i]))


def of_a_line_by_the_means() -> tirx.PrimFunc:
    """Squares of (y − mean y) − slope·(x − mean x)."""
    x, y = array("x"), array("y")
    slope, _ = line(x, y)
    x_mean, y_mean = mean("x_total", lambda i, j: x[i, j]), mean("y_total", lambda i, j: y[i, j])

    def residue(i: Expr, j: Expr) -> Expr:
        return (y[i, j] - y_mean(i)) - slope[i] * (x[i, j] - x_mean(i))

    return program(x, y, fold("out", lambda i, j: squared(residue(i, j))))


def of_a_line_with_signs() -> tirx.PrimFunc:
    """Squares with weights that were not fitted with and may cancel."""
    x, y, weight = array("x"), array("y"), array("weight")
    slope, intercept = line(x, y)

    def residue(i: Expr, j: Expr) -> Expr:
        return y[i, j] - slope[i] * x[i, j] - intercept[i]

    return program(x, y, weight, fold("out", lambda i, j: weight[i, j] * squared(residue(i, j))))


def of_a_line_through_zero() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    square, mixed = fold("square", lambda i, j: x[i, j] * x[i, j]), fold("mixed", lambda i, j: x[i, j] * y[i, j])
    slope = per_row("slope", lambda i: mixed[i] / (square[i] + number(1e-20)))
    return program(x, y, fold("out", lambda i, j: squared(y[i, j] - slope[i] * x[i, j])))


def of_a_weighted_line() -> tirx.PrimFunc:
    x, y, weight = array("x"), array("y"), array("weight")
    total = fold("total", lambda i, j: weight[i, j])
    x_mean, y_mean = (fold(f"{a.name}_sum", lambda i, j, a=a: weight[i, j] * a[i, j]) for a in (x, y))
    far = {a.name: lambda i, j, a=a, s=s: a[i, j] - s[i] / total[i] for a, s in ((x, x_mean), (y, y_mean))}
    square = fold("square", lambda i, j: weight[i, j] * squared(far["x"](i, j)))
    mixed = fold("mixed", lambda i, j: weight[i, j] * far["x"](i, j) * far["y"](i, j))
    slope = per_row("slope", lambda i: mixed[i] / (square[i] + number(1e-20)))
    intercept = per_row("intercept", lambda i: y_mean[i] / total[i] - slope[i] * (x_mean[i] / total[i]))

    def residue(i: Expr, j: Expr) -> Expr:
        return y[i, j] - slope[i] * x[i, j] - intercept[i]

    return program(x, y, weight, fold("out", lambda i, j: weight[i, j] * squared(residue(i, j))))


def of_a_plane() -> tirx.PrimFunc:
    """Squares of y − u·x − v·z, by the normal equations."""
    x, y, z = array("x"), array("y"), array("z")
    products = {(a.name, b.name): fold(a.name + b.name, lambda i, j, a=a, b=b: a[i, j] * b[i, j])
                for a, b in ((x, x), (x, z), (z, z), (x, y), (z, y))}  # fmt: skip
    xx, xz, zz, xy, zy = products.values()
    u = per_row("u", lambda i: (zz[i] * xy[i] - xz[i] * zy[i]) / (xx[i] * zz[i] - xz[i] * xz[i] + number(1e-20)))
    v = per_row("v", lambda i: (xx[i] * zy[i] - xz[i] * xy[i]) / (xx[i] * zz[i] - xz[i] * xz[i] + number(1e-20)))
    return program(x, y, z, fold("out", lambda i, j: squared(y[i, j] - u[i] * x[i, j] - v[i] * z[i, j])))


def of_a_line_by_totals() -> tirx.PrimFunc:
    """A slope and an intercept that are no fit of the data."""
    x, y, z = array("x"), array("y"), array("z")
    s, t = fold("s", lambda i, j: z[i, j]), fold("t", lambda i, j: z[i, j] * y[i, j])
    return program(x, y, z, fold("out", lambda i, j: squared(y[i, j] - s[i] * x[i, j] - t[i])))


def of_normalised_rows() -> tirx.PrimFunc:
    """The squared distance of x/|x| and y/|y|: neither stands alone."""
    x, y = array("x"), array("y")
    s, t = fold("s", lambda i, j: x[i, j] * x[i, j]), fold("t", lambda i, j: y[i, j] * y[i, j])
    a = per_row("x_scale", lambda i: te.rsqrt(s[i] + number(1e-20)))
    b = per_row("y_scale", lambda i: te.rsqrt(t[i] + number(1e-20)))
    return program(x, y, fold("out", lambda i, j: squared(x[i, j] * a[i] - y[i, j] * b[i])))


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "squares": of_a_line(2),
    "cubes": of_a_line(3),
    "by the means": of_a_line_by_the_means,
    "with signs": of_a_line_with_signs,
    "through zero": of_a_line_through_zero,
    "weighted": of_a_weighted_line,
    "plane": of_a_plane,
    "by totals": of_a_line_by_totals,
    "normalised": of_normalised_rows,
    "explained": explained_by_a_line,
}


def spread(rng: np.random.Generator) -> Array:
    return rng.standard_normal((ROWS, LENGTH))


def late(rng: np.random.Generator) -> Array:
    """All but constant, then spread."""
    return np.where(np.arange(LENGTH) < LENGTH // 2, 0.25 + 1e-4 * spread(rng), spread(rng))


def spiked(rng: np.random.Generator) -> Array:
    return np.where(np.arange(LENGTH) == LENGTH - 1, 30.0, spread(rng))


ABSCISSAE: dict[str, Callable[[np.random.Generator], Array]] = {
    "spread": spread,
    "late": late,
    "spiked": spiked,
    "far": lambda rng: 1e4 + spread(rng),
    "rising": lambda rng: np.arange(LENGTH) + 0 * spread(rng),
    "rising from afar": lambda rng: 1e3 + np.arange(LENGTH) + 0.1 * spread(rng),
    "small": lambda rng: 1e-6 * spread(rng),
    "constant": lambda rng: 0.1 + 0 * spread(rng),
    "zero": lambda rng: 0 * spread(rng),
}
"""x, of which y is nearly a line."""

NOISES = {"near a line": 0.03, "anywhere": 1.0}

ROUNDED = {("plane", "far"), ("plane", "rising from afar"), ("weighted", "constant")}
"""What fits there is rounding alone, unfused as well."""

CASES = [
    (name, abscissae, noise)
    for name in PROGRAMS
    for abscissae in ABSCISSAE
    for noise in NOISES
    if name != "explained"
    and (name, abscissae) not in ROUNDED
    and (noise == "anywhere" or (name != "with signs" and abscissae != "spiked"))
]
"""Near a line a residue has the rounding of its means as well; squares of one sign average it out, others do not."""


@cache
def unfused(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def drawn(name: str, abscissae: str, noise: float) -> Arrays:
    rng = np.random.default_rng(7)
    x = ABSCISSAE[abscissae](rng).astype("float32")
    z = (0.5 * x + spread(rng)).astype("float32")
    bend = -1.5 * z if name == "plane" else 0
    offset = 0.0 if name in ("plane", "through zero", "normalised") else 1.0
    y = (1.7 * x + bend + offset + noise * spread(rng)).astype("float32")
    third = np.abs(z) if name == "weighted" else z
    return [x, y, third][: len(unfused(name).func.params) - 1]


QUICK = [
    case for case in CASES if case[1:] == ("spread", "anywhere") and case[0] not in ("cubes", "with signs", "by totals")
]
"""Cubes and signs are squares of another degree and weight, and totals are means but for N."""


@pytest.mark.parametrize(("name", "abscissae", "noise"), slow_but(QUICK, CASES))
def test_residues_keep_their_digits(name: str, abscissae: str, noise: str) -> None:
    for tile, segments in TILINGS:
        unfused(name).check(drawn(name, abscissae, NOISES[noise]), tile=tile, segments=segments)


@pytest.mark.parametrize("abscissae", ["spread", "far", "rising", "rising from afar"])
def test_so_do_those_near_rounding(abscissae: str) -> None:
    for tile, segments in TILINGS:
        unfused("by the means").check(drawn("by the means", abscissae, 3e-3), tile=tile, segments=segments)


@pytest.mark.parametrize("abscissae", [name for name in ABSCISSAE if name != "constant"])
@pytest.mark.parametrize(
    "name", slow_but(["by the means"], ["squares", "by the means", "through zero", "weighted", "normalised"])
)
def test_squares_of_residues_that_vanish_do_not_become_negative(name: str, abscissae: str) -> None:
    for tile, segments in TILINGS:
        results = unfused(name).fused_results(drawn(name, abscissae, 0.0), tile=tile, segments=segments)
        assert (results["out"] >= 0).all()


@pytest.mark.parametrize("abscissae", [name for name in ABSCISSAE if name not in ("constant", "zero", "far")])
@pytest.mark.parametrize("noise", [0.0, 0.03, 1.0])
def test_what_a_line_explains(abscissae: str, noise: float) -> None:
    """1 − Σ residue²/Σ (y − mean y)², which is 1 on a line."""
    for tile, segments in TILINGS:
        unfused("explained").check(drawn("explained", abscissae, noise), tile=tile, segments=segments)


@pytest.mark.parametrize("name", ["squares", "by the means", "plane", "normalised"])
def test_residues_are_guarded_for_near_a_line_their_moments_cancel(name: str) -> None:
    (group,) = unfused(name).groups
    known = certificate(group.fold)
    assert "its parts may cancel" in str(known) and not known.standings[-1].bounded
