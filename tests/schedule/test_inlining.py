"""Chains of maps become one nest, unless a value would be computed again at a cost or a transposition be lost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_cascade
from tvm_cascade.analysis.statements import read_nests
from tvm_cascade.schedule.inlining import inline_maps

from ..analysis.programs import array, program
from ..transform.running import build, run

ROWS, LENGTH = 12, 80
HALF = LENGTH // 2


def names(func: tirx.PrimFunc) -> list[str]:
    return [nest.block.name_hint for nest in read_nests(func)]


def along(name: str, value: Callable[..., object], shape: tuple[int, ...] = (ROWS, LENGTH)) -> te.Tensor:
    return te.compute(shape, value, name=name)


def rotated() -> tirx.PrimFunc:
    """x, cos, sin -> [a·cos − b·sin, b·cos + a·sin] of the halves of each row, x with heads before positions."""
    x, cos, sin = array("x", 4, ROWS * LENGTH), array("cos", ROWS, HALF), array("sin", ROWS, HALF)
    heads = topi.transpose(topi.reshape(x, (4, ROWS, LENGTH)), (1, 0, 2))
    a, b = topi.split(heads, 2, axis=-1)
    cos, sin = (topi.reshape(table, (ROWS, 1, HALF)) for table in (cos, sin))
    return program(
        x, *(t.op.input_tensors[0] for t in (cos, sin)),
        topi.concatenate((topi.subtract(a * cos, b * sin), topi.add(b * cos, a * sin)), axis=-1),
    )  # fmt: skip


def test_a_rotary_embedding_is_one_nest() -> None:
    plain = rotated()
    assert len(names(plain)) > 8
    inlined = inline_maps(plain)
    assert len(names(inlined)) == 1
    rng = np.random.default_rng(1)
    given = [rng.standard_normal([int(n) for n in param.ty.shape]).astype("float32") for param in plain.params[:3]]
    found, wanted = (run(build(func), plain, given) for func in (inlined, plain))
    for name, expected in wanted.items():
        np.testing.assert_array_equal(found[name], expected)


def read_twice(value: Callable[[te.Tensor], Callable[..., object]]) -> tirx.PrimFunc:
    """x -> t + x[row 0] and t·t of a map t of x."""
    x = array("x", ROWS, LENGTH)
    t = along("t", value(x))
    return program(x, along("plus", lambda i, j: t[i, j] + x[0, j]), along("square", lambda i, j: t[i, j] * t[i, j]))


def of_few(value: Callable[[te.Tensor], Callable[..., object]]) -> tirx.PrimFunc:
    """x -> x·t of a map t of its first row."""
    x = array("x", ROWS, LENGTH)
    t = along("t", value(x), (LENGTH,))
    return program(x, along("out", lambda i, j: x[i, j] * t[j]))


def through(indices: Callable[[object, object], tuple[object, object]]) -> tirx.PrimFunc:
    """x -> x + x at these indices."""
    x = array("x", ROWS, ROWS)
    t = along("t", lambda i, j: x(*indices(i, j)), (ROWS, ROWS))
    return program(x, along("out", lambda i, j: t[i, j] + x[i, j], (ROWS, ROWS)))


def apart(step: int) -> tirx.PrimFunc:
    """x -> f(t)·t of every `step`th element of t = x + x, and of the one behind it."""
    x = array("x", ROWS, step * LENGTH)
    t = along("t", lambda i, j: x[i, j] + x[i, j], (ROWS, step * LENGTH))
    a, b = along("a", lambda i, j: t[i, step * j]), along("b", lambda i, j: t[i, step * j + 1])
    return program(x, along("out", lambda i, j: te.exp(a[i, j]) * b[i, j]))


def of_more(rows: int) -> tirx.PrimFunc:
    """x -> x[i]·t[i mod ROWS] of a map t that is a function, and of so many rows."""
    x = array("x", rows, LENGTH)
    t = along("t", lambda i, j: te.exp(x[i, j]))
    return program(x, along("out", lambda i, j: x[i, j] * t[i % ROWS, j], (rows, LENGTH)))


def moved_twice(first: tuple[int, ...], second: tuple[int, ...]) -> tirx.PrimFunc:
    """x -> x + x with its axes in an order, and in another one after that."""
    x = array("x", 4, ROWS, LENGTH)
    t = along("t", lambda *i: x(*i) + x(*i), (4, ROWS, LENGTH))
    return program(x, topi.transpose(topi.transpose(t, first), second))


STAY: dict[str, tuple[tirx.PrimFunc, list[str]]] = {
    "cheap": (read_twice(lambda x: lambda i, j: x[i, j] * x[i, j]), ["plus", "square"]),
    "read twice": (read_twice(lambda x: lambda i, j: te.exp(x[i, j])), ["t", "plus", "square"]),
    "cheap of few": (of_few(lambda x: lambda j: x[0, j] + x[1, j]), ["out"]),
    "for many": (of_few(lambda x: lambda j: te.exp(x[0, j])), ["t", "out"]),
    "in order": (through(lambda i, j: (i, j)), ["out"]),
    "transposed": (through(lambda i, j: (j, i)), ["t", "out"]),
    "there and back": (moved_twice((2, 0, 1), (1, 2, 0)), ["T_transpose_1"]),
    "two at once": (moved_twice((0, 2, 1), (1, 0, 2)), ["t", "T_transpose_1"]),
    "interleaved": (apart(2), ["out"]),
    "far apart": (apart(16), ["t", "a", "b", "out"]),
    "a quarter more": (of_more(ROWS + 3), ["out"]),
    "more": (of_more(ROWS + 4), ["t", "out"]),
}


@pytest.mark.parametrize("case", STAY)
def test_what_stays(case: str) -> None:
    func, left = STAY[case]
    assert names(inline_maps(func)) == left


def test_reductions_and_outputs_stay() -> None:
    x = array("x", ROWS, LENGTH)
    k = te.reduce_axis((0, LENGTH), "k")
    t = along("t", lambda i, j: x[i, j] * x[i, j])
    total = te.compute((ROWS,), lambda i: te.sum(t[i, k], axis=k), name="total")
    out = along("out", lambda i, j: t[i, j] + total[i])
    assert names(inline_maps(program(x, out))) == ["t", "total", "out"]
    assert names(inline_maps(program(x, t, along("more", lambda i, j: t[i, j] + x[i, j])))) == ["t", "more"]


def test_one_kernel_is_launched() -> None:
    compiled = tvm_cascade.compile(rotated(), {"kind": "cuda", "arch": "sm_90a"})
    source = str(compiled.runtime_module.mod.imports[0].inspect_source("cuda"))
    assert source.count("__global__") == 2  # its declaration and its definition
