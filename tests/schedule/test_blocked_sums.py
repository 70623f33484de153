"""Long sums of products round as sums of blocks do, and are right whatever their lengths."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.driver import llvm
from tvm_cascade.schedule.blocked_sums import blocked_sums


def product(rows: int, columns: int, terms: tuple[int, ...]) -> tirx.PrimFunc:
    a, b = te.placeholder((rows, *terms), name="a"), te.placeholder((*terms, columns), name="b")
    reduced = [te.reduce_axis((0, extent), name=f"k{place}") for place, extent in enumerate(terms)]
    c = te.compute((rows, columns), lambda i, j: te.sum(a[(i, *reduced)] * b[(*reduced, j)], reduced), name="c")
    return te.create_prim_func([a, b, c])


def error(rows: int, columns: int, terms: tuple[int, ...]) -> float:
    """The typical error of a compiled product, relative to the typical element."""
    random = np.random.default_rng(0)
    a, b = random.uniform(0, 1, (rows, *terms)), random.uniform(0, 1, (*terms, columns))
    a, b = a.astype("float32"), b.astype("float32")
    found = np.zeros((rows, columns), "float32")
    tvm_cascade.compile(product(rows, columns, terms))(a, b, found)
    exact = a.reshape(rows, -1).astype("float64") @ b.reshape(-1, columns).astype("float64")
    return float(np.sqrt(np.mean((found - exact) ** 2)) / np.sqrt(np.mean(exact**2)))


@pytest.mark.parametrize(
    ("rows", "columns", "terms"),
    [
        (24, 64, (4096,)),
        (16, 48, (256, 3, 5)),
        (13, 40, (5, 1024)),
        (8, 64, (2, 3001)),  # a prime: the last block is shorter
        (100, 40, (4099,)),
        (8, 64, (1021,)),  # less than two blocks
        (300, 96, (6000,)),
    ],
)
def test_a_long_sum_rounds_as_one_of_blocks(
    rows: int, columns: int, terms: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = error(rows, columns, terms)
    monkeypatch.setattr(llvm, "blocked_sums", lambda func: func)
    in_order = error(rows, columns, terms)
    assert in_order < 1e-5
    assert blocked == in_order if 1021 in terms else blocked < 0.6 * in_order


def test_short_sums_stay_as_they_are() -> None:
    seen: list[bool] = []
    original = llvm.blocked_sums

    def note(func: tirx.PrimFunc) -> tirx.PrimFunc:
        seen.append(blocked_sums(func).same_as(func))
        return original(func)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm, "blocked_sums", note)
        tvm_cascade.compile(product(16, 64, (512,)))
    assert seen == [True]
