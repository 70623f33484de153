"""The CPU schedule on unusual functions: no row axis, several fused loops, truth values, float64 temporaries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from campaigns.program_trial import compiled, run, scheduled
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import array, fold, maximum, number, program
from ..tiers import slow_but

LENGTH = 37


def _or(name: str, keep: te.Tensor, rows: tuple[int, ...]) -> te.Tensor:
    disjunction = te.comm_reducer(
        lambda a, b: tirx.Or(a, b), lambda dtype: tirx.const(False, dtype), name="disjunction"
    )
    return fold(name, lambda *at: tirx.Not(keep[at]), disjunction, keep.shape[-1].value, rows)


def scalars() -> tirx.PrimFunc:
    """No rows at all: two reductions that fuse, and one that stands alone."""
    x, y = array("x", LENGTH), array("y", LENGTH)
    m = fold("m", lambda j: x[j], maximum, LENGTH, ())
    t = fold("t", lambda j: te.exp(x[j] - m()), length=LENGTH, rows=())
    return program(x, y, m, t, fold("alone", lambda j: y[j], length=LENGTH, rows=()))


def two_fused_loops() -> tirx.PrimFunc:
    """The second loop reads parameters alone, as a finish of the first would."""
    x, y = array("x", 2, LENGTH), array("y", 2, LENGTH)
    s = fold("s", lambda i, j: x[i, j], maximum, LENGTH, (2,))
    a = fold("a", lambda i, j: te.exp(x[i, j] - s[i]), length=LENGTH, rows=(2,))
    z = fold("z", lambda i, j: y[i, j], maximum, LENGTH, (2,))
    return program(x, y, a, fold("b", lambda i, j: te.exp(y[i, j] - z[i]) * y[i, j], length=LENGTH, rows=(2,)))


def map_beside_two_scalars() -> tirx.PrimFunc:
    """A nest of parameters alone could be the finish of either loop, which has no rows; the two maxima share a name."""
    x, y, z = array("x", LENGTH), array("y", LENGTH), array("z", 3, 5)
    parts = []
    for source in (x, y):
        s = fold(f"{source.name}_s", lambda j, a=source: a[j], maximum, LENGTH, ())
        parts += [s, fold(f"{source.name}_a", lambda j, a=source, b=s: te.exp(a[j] - b()), length=LENGTH, rows=())]
    return program(x, y, z, *parts, te.compute((3, 5), lambda i, j: te.abs(z[i, j]), name="sizes"))


def truth_beside() -> tirx.PrimFunc:
    x, keep = array("x", 2, 8), array("keep", 2, 8, dtype="bool")
    m = fold("m", lambda i, j: x[i, j], maximum, 8, (2,))
    t = fold("t", lambda i, j: te.exp(x[i, j] - m[i]), length=8, rows=(2,))
    return program(x, keep, t, _or("any", keep, (2,)))


def nested_temporaries() -> tirx.PrimFunc:
    """(sin v − log g)·(v − m) over a free axis: a temporary of a temporary, in float64."""
    x, v, g = (
        array("x", 5, LENGTH, dtype="float64"),
        array("v", LENGTH, 8, dtype="float64"),
        array("g", LENGTH, dtype="float64"),
    )
    axis = te.reduce_axis((0, LENGTH), "l")
    total = fold("total", lambda j: g[j] * g[j] + number(1, "float64"), length=LENGTH, rows=())
    m = fold("m", lambda i, j: x[i, j], maximum, LENGTH, (5,))
    out = te.compute(
        (5, 8),
        lambda i, c: te.sum((v[axis, c] - m[i]) * (te.sin(v[axis, c]) - te.log(total())) * g[axis], axis=axis),
        name="out",
    )
    return program(x, v, g, m, out)


def contraction_between_rows() -> tirx.PrimFunc:
    """Both axes of the contraction are rows of every state: one is cut, the other a task."""
    x, v = array("x", 5, LENGTH), array("v", LENGTH, 8)

    def over(name: str, element: Callable[[Expr, Expr, tirx.IterVar], Expr]) -> te.Tensor:
        axis = te.reduce_axis((0, LENGTH), "l")
        return te.compute((5, 8), lambda i, c: te.sum(element(i, c, axis), axis=axis), name=name)

    s = over("s", lambda i, c, j: x[i, j] * v[j, c])
    return program(x, v, s, over("t", lambda i, c, j: x[i, j] - v[j, c] - s[i, c] / number(LENGTH)))


BUILDS = [scalars, two_fused_loops, map_beside_two_scalars, truth_beside, nested_temporaries, contraction_between_rows]


@pytest.mark.parametrize("build", BUILDS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("segments", slow_but([2], [1, 2]))
def test_fused_and_scheduled_functions_agree_with_the_unfused_one(build, segments: int) -> None:  # type: ignore[no-untyped-def]
    func = build()
    outcome = fuse_function(func, FuseOptions(tile=4, segments=segments, force=True))
    assert outcome.fused, outcome.decisions
    forms = compiled({"unfused": func, "fused": outcome.func, "scheduled": scheduled(outcome.func)})
    rng = np.random.default_rng(0)
    inputs = []
    for param in func.params:
        if param.name in ("x", "y", "z", "v", "g", "keep"):
            values = rng.standard_normal([int(extent) for extent in param.ty.shape])
            inputs.append(values > 0 if param.ty.dtype == "bool" else values.astype(str(param.ty.dtype)))
    expected = run(forms["unfused"], func, inputs)
    for form in ("fused", "scheduled"):
        for name, value in run(forms[form], func, inputs).items():
            exact, dtype = oracle.evaluate(func, inputs)[name], str(value.dtype)
            tolerance.assert_close(value, exact, expected[name], length=LENGTH, dtype=dtype)
