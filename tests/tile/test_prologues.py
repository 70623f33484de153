"""Products with statistics of their left operand's rows: what they compute, and which programs they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sympy as sp
from tvm import te, tirx

from corpus import workloads
from corpus.programs.normalisation import Normed, normed
from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.evaluate.oracle import evaluate, signature
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.cuts import Nests, by_products, cut, parts_of
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting, build_kernel
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.prologue.registers import hoist
from tvm_cascade.tile.skeletons.product.prologue.skeleton import PrologueSkeleton
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import array, each, fold, number, program, total
from ..plan.run import plan_of, skeletons
from ..tiers import slow_but
from .emulator.run import Array, compiler, emulate
from .test_compiled_kernels import instructions_of, text_of

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

SMALL = ProductConfig(columns=64, stages=3, blocks=2)
"""Several tiles for each block, and more steps along k than stages."""


def linear(form: Normed, dtype: str = "bfloat16", **shape: int) -> tirx.PrimFunc:
    """A linear layer behind a normalisation, with more than one tile of rows and of columns."""
    extents = {"tokens": 200, "features": 320, "columns": 136, **shape}
    return replace(workloads.get("normed_rms"), builder=normed(form), shape=extents, dtype=dtype).build()


def kernel_of(func: tirx.PrimFunc, config: ProductConfig | None = None) -> Kernel:
    """The kernel of a function that is one cascade, or one product."""
    found = read_program(func)
    cascades = [candidate.group for candidate in Reductions(found).cascades() if candidate.group is not None]
    (group,) = cascades or Reductions(found).lone
    return build_kernel(PrologueSkeleton(), found, group, "main", Setting(H200), config)


def inputs_of(func: tirx.PrimFunc, change: Callable[[Any], Any] = lambda x: x) -> list[Array]:
    """Normal inputs; the first, whose rows have statistics, is changed."""
    rng, found = np.random.default_rng(3), []
    for param in signature(func).inputs:
        dtype = str(param.ty.dtype)
        values = rng.standard_normal([int(extent) for extent in param.ty.shape])
        found.append((values if found else change(values)).astype(getattr(ml_dtypes, dtype, dtype)))
    return found


def assert_right(func: tirx.PrimFunc, kernel: Kernel, given: list[Array] | None = None) -> None:
    """The kernel's outputs are as near to the oracle's as tolerance.py asks."""
    inputs = inputs_of(func) if given is None else given
    exact, usual = evaluate(func, inputs), evaluate(func, inputs, rounding=True)
    for got, (name, expected) in zip(emulate(kernel.func, inputs), exact.items(), strict=True):
        found = check(got, expected, usual[name], length=320, dtype=str(got.dtype))
        assert found.ok, f"{name}: {found.message}"


@emulated
@pytest.mark.parametrize("form", [Normed(gain=False), Normed(gated=True)], ids=["plain", "gated"])
def test_a_deferred_factor_is_applied_to_the_sums(form: Normed) -> None:
    func = linear(form)
    assert_right(func, kernel_of(func, SMALL))


@emulated
@pytest.mark.parametrize("steps", [1, 2])
def test_any_number_of_steps(steps: int) -> None:
    """Two sets of registers take turns: the last of them is multiplied whichever it is."""
    func = linear(Normed(), tokens=72, features=64 * steps, columns=72)
    assert_right(func, kernel_of(func, replace(SMALL, rows=64, consumers=1)))


@emulated
def test_clusters_share_the_weights() -> None:
    func = linear(Normed())
    assert_right(func, kernel_of(func, replace(SMALL, columns=128, cluster=2, blocks=4)))


def _zeros(x: Any) -> Any:
    x[::3] = 0.0
    return x


def _spike(x: Any) -> Any:
    x[5, 17] = 3e4
    return x


DATA: dict[str, Callable[[Any], Any]] = {
    "zero_rows": _zeros,
    "one_huge_element": _spike,
    "tiny": lambda x: x * 1e-6,
    "large": lambda x: x * 1e15,
}


@emulated
def test_data_that_statistics_are_sensitive_to() -> None:
    func = linear(Normed())
    kernel = kernel_of(func, SMALL)
    for change in (lambda x: x, *DATA.values()):
        assert_right(func, kernel, inputs_of(func, change))


@emulated
def test_float16_is_lifted_with_its_factor_since_it_has_no_range_without() -> None:
    """What x·gain is before it is normalised may be infinite in float16: rows' statistics come first."""
    func = linear(Normed(), "float16")
    assert [decision.reason.code for decision in fuse_function(func, FuseOptions()).decisions] == ["rounding_range"]
    second, params = _second_kernel(func)
    given = inputs_of(func, lambda x: x * 1e4)
    assert_right_after(func, given, second, params)


def lifted(element: Callable[..., Any], k: int = 192, dtype: str = "bfloat16", **tensors: tuple[int, ...]) -> Any:
    """Σ_k element(i, k)·w[j, k] of a left operand that is rounded to the weights' dtype."""
    m, n = 200, 136
    x, w = array("x", m, k, dtype=dtype), array("w", n, k, dtype="bfloat16")
    others = [array(name, *shape) for name, shape in tensors.items()]
    left = each("left", lambda i, r: element(x[i, r].astype("float32"), i, r, *others).astype("bfloat16"), m, k)
    y = fold("y", lambda i, j, r: left(i, r).astype("float32") * w[j, r].astype("float32"), total, k, (m, n))
    return program(x, *others, w, each("out", lambda i, j: y(i, j).astype("bfloat16"), m, n))


ELEMENTS: dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]]]] = {
    "map": (lambda x, i, r: te.max(x, number(0.0)), {}),
    "float32_gain": (lambda x, i, r, g: x * g[r] + number(1.0), {"g": (192,)}),
    "both": (lambda x, i, r, s, g: (x - s[i]) * g[r], {"s": (200,), "g": (192,)}),
}


@emulated
@pytest.mark.parametrize("name", ELEMENTS)
def test_an_element_is_computed_in_registers(name: str) -> None:
    element, tensors = ELEMENTS[name]
    func = lifted(element, **tensors)
    kernel = kernel_of(func, SMALL)
    assert kernel.program.is_lifted and not kernel.program.statistics
    assert_right(func, kernel)


def _centred(x: Any) -> Any:
    return x + 300.0  # of which bfloat16 keeps steps of two: the mean is 150 times what is left of the spread


@emulated
@pytest.mark.parametrize("change", [lambda x: x, _centred], ids=["normal", "large_mean"])
def test_a_mean_is_taken_off_before_the_products(change: Callable[[Any], Any]) -> None:
    """LayerNorm after a kernel of rows that leaves mean and scale: elements are exact, and so are their sums."""
    small = linear(Normed(centred=True))
    given = inputs_of(small, change)
    assert_right_after(small, given, *_second_kernel(small))


def assert_right_after(func: tirx.PrimFunc, given: list[Array], second: Kernel, params: list[tirx.Var]) -> None:
    """What the second kernel of a plan makes of statistics in float64, rounded, is the function's output."""
    x = given[0].astype(np.float64)
    mean = x.mean(-1)
    centre = mean if any(param.name == "mean" for param in params) else 0.0 * mean
    named: dict[str, Any] = {p.name: a for p, a in zip(signature(func).inputs, given, strict=True)}
    named |= {"mean": centre, "scale": 1.0 / np.sqrt(((x - centre[:, None]) ** 2).mean(-1) + 1e-5)}
    ordered = [np.asarray(named[p.name], getattr(ml_dtypes, str(p.ty.dtype), str(p.ty.dtype))) for p in params]
    (got,) = emulate(second.func, ordered)
    (exact,), (usual,) = (evaluate(func, given, rounding=rounding).values() for rounding in (False, True))
    found = check(got, exact, usual, length=320, dtype=str(got.dtype))
    assert found.ok, found.message


def _second_kernel(func: tirx.PrimFunc) -> tuple[Kernel, list[tirx.Var]]:
    """The product of a plan whose rows' statistics are computed before it, with small tiles; and its inputs."""
    outcome = fuse_function(func, Setting(H200).options, Setting(H200).gpu)
    assert outcome.program is not None
    nests = Nests(outcome.program)
    cuts = cut(nests, by_products(nests, outcome), lifted=[k for k in nests.maps if nests.is_operand(k)])
    assert cuts is not None
    part = parts_of(outcome.program, cuts)[-1]
    return kernel_of(part, SMALL), list(signature(part).inputs)


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (lambda: linear(Normed(), features=264), "features|k is|one axis of a multiple of 64"),
        (lambda: lifted(lambda x, i, r: x, dtype="float32"), "float32"),
        (lambda: lifted(lambda x, i, r, z: x + z[i, r], z=(200, 192)), "computed from x.*z|second tensor"),
        (lambda: lifted(lambda x, i, r: x), "as it is"),
    ],
    ids=["k", "float32", "two_tensors", "plain"],
)
def test_refusals_name_what_is_in_the_way(func: Callable[[], tirx.PrimFunc], why: str) -> None:
    with pytest.raises(Unfit, match=why):
        kernel_of(func())


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (ProductConfig(256, 128, 2, stages=3, blocks=132), "128 rows of a consumer"),
        (ProductConfig(64, 64, 1, stages=4, splits=2, blocks=132), "2 parts of k"),
        (ProductConfig(stages=5, blocks=132), "bytes of shared memory"),
    ],
)
def test_configurations_that_do_not_fit(config: ProductConfig, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        kernel_of(linear(Normed()), config)


COPIED = ["row", "product"]
PATHS: dict[Normed, list[str]] = {
    Normed(gain=False): ["prologue"],
    Normed(): COPIED,
    Normed(gated=True): COPIED,
    Normed(centred=True): COPIED,
}
"""Of layers of models: where lifting takes longer than writing the normalised copy, as measured, it is declined."""


@pytest.mark.parametrize("form", PATHS, ids=["plain", "gain", "gated", "layer"])
def test_layers_of_models_take_the_faster_way(form: Normed) -> None:
    plan = plan_of(linear(form, tokens=4096, features=4096, columns=4096))
    assert skeletons(plan) == PATHS[form]


def test_what_is_computed_is_told_in_the_users_names() -> None:
    text = str(kernel_of(linear(Normed())).program)
    assert "gain[k]*x[token, k]" in text and "x[token, k]**2" in text and "weight[column, k]" in text


NORMED = [Normed(), Normed(gain=False), Normed(gated=True)]


@pytest.mark.parametrize("form", slow_but(NORMED[1:], NORMED), ids=["gain", "plain", "gated"])
def test_products_do_not_wait_for_what_is_lifted(form: Normed, tmp_path: Path) -> None:
    config = ProductConfig(columns=128 if form.gated else 256, blocks=132)
    kernel = kernel_of(linear(form, tokens=4096, features=4096, columns=4096), config)
    found = instructions_of(text_of(kernel), tmp_path)
    assert found["HMUL2.BF16_V2"] if form.gain else not found["HMUL2.BF16_V2"]


def test_values_of_rows_are_hoisted() -> None:
    x, g, s, t = sp.symbols("x g s t", real=True)
    found = hoist((x - s / 7) * g / sp.sqrt(t + 1), {s, t}, "h")
    assert found.value.free_symbols & {s, t} == set() and len(found.parts) == 2
    assert sp.simplify(found.value.xreplace(found.parts) - (x - s / 7) * g / sp.sqrt(t + 1)) == 0
