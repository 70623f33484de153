"""Maps in vectors on a GPU: 16 bytes a thread where all that is read has neighbours where the result has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx, topi

from tvm_cascade.devices.read import card_of
from tvm_cascade.schedule.gpu_vectors import with_vectors
from tvm_cascade.schedule.inlining import inline_maps

from ..analysis.programs import program
from ..transform.running import build, run
from .gpu_programs import NVCC, TARGET, cuda_source, ptxas_report, run_in_turn, scheduled

ROWS, LENGTH = 1024, 128
FLAT = ROWS * LENGTH


def lanes(func: tirx.PrimFunc) -> int:
    """Elements of the vectors of a function with one map; 1 where it has none."""
    found = set(re.findall(r"T\.vectorized\((?:T\.int64\()?(\d+)\)?\)", scheduled(func).script()))
    return int(found.pop()) if len(found) == 1 else 1


def tensor(name: str, *shape: object, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, name=name)


def mapped(
    value: Callable[..., object], *inputs: te.Tensor, shape: tuple[object, ...] = (ROWS, LENGTH)
) -> tirx.PrimFunc:
    return te.create_prim_func([*inputs, te.compute(shape, value, name="out")])


def rotated(half: int, dtype: str, batch: int = 2, rows: int = 64, heads: int = 8) -> tirx.PrimFunc:
    """x, cos, sin -> x·cos + [−b, a]·sin of the halves a and b of each head of a row; heads come before rows."""
    depth = 2 * half
    x = tensor("x", batch, rows, heads * depth, dtype=dtype)
    cos, sin = (tensor(name, rows, depth, dtype=dtype) for name in ("cos", "sin"))
    apart = topi.transpose(topi.reshape(x, (batch, rows, heads, depth)), (0, 2, 1, 3))
    a, b = topi.split(apart, 2, axis=-1)
    turned = topi.concatenate((topi.negative(b), a), axis=-1)
    return inline_maps(program(x, cos, sin, topi.add(topi.multiply(apart, cos), topi.multiply(turned, sin))))


@pytest.mark.parametrize(
    ("half", "dtype", "expected"),
    [(32, "float32", 4), (32, "float16", 8), (36, "float16", 4), (18, "float32", 2), (15, "float32", 1)],
)
def test_a_rotary_embedding_moves_16_bytes(half: int, dtype: str, expected: int) -> None:
    func = rotated(half, dtype)
    assert lanes(func) == expected
    rng = np.random.default_rng(3)
    given = [rng.standard_normal([int(n) for n in p.ty.shape]).astype(dtype) for p in func.params[:3]]
    (found,) = run_in_turn(scheduled(func), given).values()
    (plain,) = run(build(func), func, given).values()
    np.testing.assert_array_equal(found, plain)


@pytest.mark.skipif(NVCC is None, reason="nvcc is not on the path")
def test_vectors_are_in_registers(tmp_path: Path) -> None:
    source = cuda_source(scheduled(rotated(64, "bfloat16")))
    assert "uint4" in source
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in ptxas_report(source, tmp_path)


def chosen(per_element: bool) -> tirx.PrimFunc:
    """x, y, flags -> x or y, by one flag for all or by one for each element."""
    x, y, flags = (tensor(name, FLAT) for name in ("x", "y", "flags"))
    zero = tirx.const(0, "float32")
    choice = lambda i: tirx.Select(flags[i if per_element else 0] == zero, x[i], y[i])  # noqa: E731
    return mapped(choice, x, y, flags, shape=(FLAT,))


@pytest.mark.parametrize("per_element", [True, False])
def test_conditions_choose_between_vectors(per_element: bool, tmp_path: Path) -> None:
    func = chosen(per_element)
    assert lanes(func) == 4
    rng = np.random.default_rng(4)
    x, y, flags = (rng.standard_normal(FLAT).astype("float32") for _ in range(3))
    flags[::2] = 0
    (found,) = run_in_turn(scheduled(func), [x, y, flags]).values()
    np.testing.assert_array_equal(found, np.where(flags == 0, x, y) if per_element else x)
    if NVCC is not None:
        assert "Used " in ptxas_report(cuda_source(scheduled(func)), tmp_path)


def test_gathered_rows_move_16_bytes() -> None:
    x, place = tensor("x", ROWS, LENGTH, dtype="float16"), tensor("place", ROWS, dtype="int64")
    zero = tirx.const(0, "float16")
    func = mapped(lambda i, j: tirx.if_then_else(place[i] >= 0, x[tirx.max(place[i], 0), j], zero), x, place)
    assert lanes(func) == 8
    rng = np.random.default_rng(5)
    rows, places = rng.standard_normal((ROWS, LENGTH)).astype("float16"), rng.integers(-9, ROWS, ROWS)
    (found,) = run_in_turn(scheduled(func), [rows, places]).values()
    np.testing.assert_array_equal(found, np.where(places[:, None] >= 0, rows[places], 0))


def test_pairs_are_loaded_together() -> None:
    """A gate and what it gates are neighbours, as GPT-OSS stores them."""
    x = tensor("x", ROWS, 2 * LENGTH, dtype="float16")
    func = mapped(lambda i, j: tirx.max(x[i, 2 * j], ZERO.astype("float16")) * x[i, 2 * j + 1], x)
    text = scheduled(func).script()
    assert text.count("T.vectorized(8)") == text.count("T.vectorized(4)") == 1
    given = np.random.default_rng(6).standard_normal((ROWS, 2 * LENGTH)).astype("float16")
    (found,) = run_in_turn(scheduled(func), [given]).values()
    np.testing.assert_array_equal(found, np.maximum(given[:, ::2], 0) * given[:, 1::2])


def of_truths(stored: str) -> tirx.PrimFunc:
    x, zero = tensor("x", FLAT, dtype="bool" if stored == "x" else "float32"), tirx.const(0, "float32")
    if stored == "o":
        return mapped(lambda i: x[i] > zero, x, shape=(FLAT,))
    return mapped(lambda i: tirx.Select(x[i] if stored else x[i] > zero, zero, zero + 1), x, shape=(FLAT,))


def one(value: Callable[..., object], dtype: str = "float32", rows: object = ROWS) -> tirx.PrimFunc:
    x = tensor("x", rows, LENGTH, dtype=dtype)
    return mapped(lambda *at: value(x, *at), x, shape=(rows, LENGTH))


ZERO = tirx.const(0, "float32")
CASES: dict[str, tuple[tirx.PrimFunc, int]] = {
    "float32": (one(lambda x, i, j: x[i, j] + x[0, j]), 4),
    "bytes": (one(lambda x, i, j: x[i, j], "int8"), 16),
    "halves to float32": (one(lambda x, i, j: x[i, j].astype("float32"), "float16"), 4),
    "one value for all": (one(lambda x, i, j: x[i, 0]), 4),
    "symbolic rows": (one(lambda x, i, j: x[i, j] * x[i, j], rows=te.var("n")), 4),
    "backwards": (one(lambda x, i, j: x[i, LENGTH - 1 - j]), 1),
    "from an odd place on": (one(lambda x, i, j: tirx.if_then_else(j > 0, x[i, j - 1], ZERO)), 1),
    "on a condition on each": (one(lambda x, i, j: tirx.if_then_else(j <= i, x[i, j], ZERO)), 1),
    "on data of a row": (one(lambda x, i, j: tirx.if_then_else(x[i, 0] > ZERO, x[i, j], ZERO)), 4),
    "on data of each": (one(lambda x, i, j: tirx.if_then_else(x[i, j] > ZERO, x[i, j], ZERO)), 1),
    "few elements": (one(lambda x, i, j: x[i, j], rows=66), 2),
    "truth values computed": (of_truths(""), 4),
    "truth values read": (of_truths("x"), 1),
    "truth values stored": (of_truths("o"), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_lanes(case: str) -> None:
    func, expected = CASES[case]
    assert lanes(func) == expected
    assert (with_vectors(func, card_of(TARGET)) is func) is (expected == 1)
    assert "ushort4" not in cuda_source(scheduled(func)) or "truth" not in case
