"""Gradients of attention over packed tokens: documents by number, ranges of keys, and lengths of sequences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tvm import tirx

import tvm_cascade
from tvm_cascade.devices.cards import H200
from tvm_cascade.evaluate.oracle import evaluate

from ..reverse.scores import Extents, kept
from ..tiers import slow_but
from .backward import assert_backward_right, folds_of, joint_kernels, parts_of_backward, plan_of, values_of
from .checked import kernel_of
from .emulator.run import Array, compiler, emulate
from .packed_programs import Documents, Packed, bounds_of
from .test_compiled_kernels import instructions_of, text_of
from .test_lengths import KEEPS, attention
from .test_packed_tokens import SMALL

QUERIES, KEYS = [100, 3, 0, 120, 64], [131, 70, 9, 150, 130]
"""Of each row some keys: of one key a probability is 1, and its gradient nothing but what rounding leaves of 0."""

LENGTHS = [200, 70, 9]


def numbers_of(lengths: list[int]) -> Array:
    """Of each token the number of its document, in an order that is none of documents."""
    own = np.random.default_rng(2).permutation(len(lengths))
    return np.repeat(own, lengths).astype("int32")


def gradient_of(func: tirx.PrimFunc) -> tvm_cascade.Gradient:
    return tvm_cascade.gradient(func, wrt=("q", "k", "v"))


def cases(dtype: str) -> dict[str, tuple[tirx.PrimFunc, Mapping[str, Array]]]:
    starts, ends = bounds_of(QUERIES, KEYS, True)
    return {
        "documents": (Documents(sum(QUERIES), dtype=dtype).func(), {"doc": numbers_of(QUERIES)}),
        "ranges": (Packed(sum(QUERIES), sum(KEYS), 1, 1, dtype=dtype).func(), {"starts": starts, "ends": ends}),
        "lengths": (attention(KEEPS["lengths"], dtype), {"lengths": np.array(LENGTHS, "int32")}),
        "causal lengths": (attention(KEEPS["causal"], dtype), {"lengths": np.array(LENGTHS, "int32")}),
    }


NAMES = list(cases("float16"))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", slow_but(NAMES[:3], NAMES))
def test_gradients_over_packed_tokens(name: str, dtype: str) -> None:
    func, given = cases(dtype)[name]
    found = gradient_of(func)
    assert_backward_right(found, values_of(found, given=given))


LONG = {
    "documents": (Documents(4096, 16).func(), ["doc[K] - doc[Q]", "doc[Q] - doc[K]"]),
    "ranges": (Packed(4096, 4096, 16, 16).func(), ["K - starts[Q]", "ends[Q] - 1 - K"]),
    "lengths": (attention(KEEPS["lengths"]), ["lengths[b] - 1 - K"]),
    "causal lengths": (attention(KEEPS["causal"]), ["lengths[b] - 1 - K", "Q + 60 - K"]),
}


@pytest.mark.parametrize("name", LONG)
def test_both_folds_visit_no_more_tiles_than_masks_keep(name: str) -> None:
    """Which queries see a tile of keys is known by formulas, or looked for in what is loaded for each query."""
    func, slacks = LONG[name]
    plan = plan_of(gradient_of(func).backward)
    assert [step.chosen.skeleton.name for step in plan.steps] == ["row", "stream", "stream"]
    by_keys, by_queries = (kernel.program for kernel in folds_of(plan))
    for one, (query, key) in ((by_keys, ("position", "row")), (by_queries, ("row", "position"))):
        names = {getattr(one.stream, query).name: "Q", getattr(one.stream, key).name: "K"}
        told = [re.sub(r"\b\w+\b", lambda word: names.get(word[0], word[0]), str(slack)) for slack in one.skip]  # noqa: B023
        assert told == slacks
        assert one.loads_bounds == ("lengths" not in name)


def test_wide_numbers_of_documents_are_not_looked_for() -> None:
    """Of 64 bits a warp has no greatest, and integers of pairs are what masks are: all tiles are visited then."""
    pairs = Extents(2, 16, 2048, 2048, 64, "float16")
    for func in (Documents(4096, 16, number="int64").func(), kept("pairs", pairs)):
        (step,) = plan_of(func).steps
        assert step.chosen.skeleton.name == "stream" and not step.chosen.program.skip


NUMBERS = {
    "far apart": ("int32", [2**31 - 1, -(2**31) + 1, 7, -(2**31) + 2]),
    "the least": ("int32", [-(2**31), 5, -(2**31), 2**31 - 1]),
    "the least of 8 bits": ("int8", [-128, 5, -128, 127]),
}


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", NUMBERS)
def test_documents_may_have_any_number(name: str) -> None:
    """Differences, and the negative of the least, are no numbers of their dtype."""
    dtype, numbers = NUMBERS[name]
    case = Documents(512, dtype="bfloat16", number=dtype)
    inputs = [values_of(gradient_of(case.func()))[name] for name in ("q", "k", "v")]
    doc = np.repeat(numbers, 128).astype(dtype)
    (found,) = emulate(kernel_of(case.func(), SMALL).func, [*inputs, doc])
    (exact,) = evaluate(case.func(), [*inputs, doc]).values()
    assert np.abs(found - exact).max() < 2.0**-6 < np.abs(exact).max()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_ranges_may_begin_at_the_least_number() -> None:
    """Beside rows whose keys begin late: what bounds the tiles of all is the least, and not its negative."""
    case = Packed(128, 256, 1, 1, dtype="bfloat16")
    bounds = np.where(np.arange(128) % 2, 100, -(2**31)).astype("int32"), np.full(128, 256, "int32")
    given = case.inputs(bounds)
    (found,) = emulate(kernel_of(case.func(), SMALL).func, given)
    (exact,) = evaluate(case.func(), given).values()
    assert np.abs(found - exact).max() < 2.0**-6 < np.abs(exact).max()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_tiles_of_other_documents_are_not_visited() -> None:
    """Forward and backward: what lies there may be NaN, which a weight of zero would not hide."""
    found, doc = gradient_of(Documents(512).func()), np.repeat([4, 1, 7, 2], 128).astype("int32")
    values = values_of(found, given={"doc": doc})
    hidden = [*range(128), *range(256, 512)]
    shown = {name: value.copy() for name, value in values.items()}
    for name in set(values) - {"doc"}:
        shown[name][(hidden,) if name in ("q", "k", "v") else (0, 0, hidden)] = np.nan
    read = ("q", "k", "v", "doc")
    (out,) = emulate(kernel_of(Documents(512).func(), SMALL).func, [shown[name] for name in read])
    assert np.isfinite(out[0, 0, 128:256]).all() and np.isnan(out[0, 0, hidden]).all()
    (delta, *folds) = parts_of_backward(found.backward)
    for known in (values, shown):
        made = evaluate(delta, [known[param.name] for param in delta.params if param.name in known])
        known |= {name: value.astype("float32") for name, value in made.items()}
    for part in folds:
        names = [param.name for param in part.params if param.name in values]
        (kernel,) = joint_kernels(part, H200)
        found_there = emulate(kernel.func, [shown[name] for name in names])
        for one, exact in zip(found_there, evaluate(part, [values[name] for name in names]).values(), strict=True):
            assert np.abs(one[128:256] - exact[128:256]).max() < 1e-2 < np.abs(exact[128:256]).max()


@pytest.mark.parametrize("name", ["documents", "ranges"])
def test_kernels_that_look_for_positions_compile(name: str, tmp_path: Path) -> None:
    func = {"documents": Documents(4096, 16), "ranges": Packed(4096, 4096, 16, 16)}[name].func()
    kernels = [step.chosen for step in plan_of(func).steps]
    kernels += folds_of(plan_of(gradient_of(func).backward))[1:]
    for kernel in kernels:
        assert "REDUX" in {one.split(".")[0] for one in instructions_of(text_of(kernel), tmp_path)}
