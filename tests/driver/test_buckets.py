"""Functions of symbolic extents: a few kernels, of which a call takes the one for its lengths, each right at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.analysis.program import at_sizes
from tvm_cascade.driver.lowering import choose, fused, goal_of, lowered, symbolic_extents
from tvm_cascade.driver.space import ENDS, Design, Knob, Sizes, Space
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.buckets import Buckets, Split, Tree, lengths_of, tree_of

CPU = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}
ONE_CORE = {**CPU, "num-cores": 1}
HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def log_sum_exp(rows: int | None = None) -> tirx.PrimFunc:
    """Of r rows of n positions, both of any length where r is not given."""
    rows, length = tirx.Var("r", "int64") if rows is None else rows, tirx.Var("n", "int64")
    x = te.placeholder((rows, length), "float32", name="x")
    a, b = (te.reduce_axis((0, length), name) for name in "ab")
    top = te.compute((rows,), lambda i: te.max(x[i, a], axis=a), name="top")
    norm = te.compute((rows,), lambda i: te.sum(te.exp(x[i, b] - top[i]), axis=b), name="norm")
    return te.create_prim_func([x, te.compute((rows,), lambda i: te.log(norm[i]) + top[i], name="out")])


def attention(heads: int = 2, dim: int = 16, index: str = "int64") -> tirx.PrimFunc:
    """Of n queries and m keys, in int32 or int64."""
    queries, keys = tirx.Var("n", index), tirx.Var("m", index)
    h, d = tirx.IntImm(index, heads), tirx.IntImm(index, dim)
    q, k, v = (
        te.placeholder((h, n, d), "float32", name=name) for name, n in zip("qkv", (queries, keys, keys), strict=True)
    )
    r, a, b, c = (te.reduce_axis((0, n), name) for name, n in zip("rabc", (d, keys, keys, keys), strict=True))
    s = te.compute((h, queries, keys), lambda i, j, t: te.sum(q[i, j, r] * k[i, t, r], axis=r), name="s")
    top = te.compute((h, queries), lambda i, j: te.max(s[i, j, a], axis=a), name="top")
    p = te.compute((h, queries, keys), lambda i, j, t: te.exp(s[i, j, t] - top[i, j]), name="p")
    norm = te.compute((h, queries), lambda i, j: te.sum(p[i, j, b], axis=b), name="norm")
    out = te.compute((h, queries, d), lambda i, j, e: te.sum(p[i, j, c] / norm[i, j] * v[i, c, e], axis=c), name="out")
    return te.create_prim_func([q, k, v, out])


def product(depth: int = 64, columns: int = 256) -> tirx.PrimFunc:
    """Of a matrix of n rows."""
    rows, d, c = tirx.Var("n", "int64"), tirx.IntImm("int64", depth), tirx.IntImm("int64", columns)
    a, b = te.placeholder((rows, d), "float32", name="a"), te.placeholder((d, c), "float32", name="b")
    k = te.reduce_axis((0, d), "k")
    return te.create_prim_func([a, b, te.compute((rows, c), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="y")])


def taken(compiled: Any, func: tirx.PrimFunc, sizes: Sizes) -> None:
    """Runs a compiled function at sizes, and holds it to the tolerance of float64."""
    static = at_sizes(func, sizes)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal([int(e) for e in one.ty.shape]).astype("float32") for one in static.params[:-1]]
    out = np.full([int(e) for e in static.params[-1].ty.shape], np.nan, "float32")
    compiled(*inputs, out)
    (exact,), (usual,) = (list(oracle.evaluate(static, inputs, rounding=how).values()) for how in (False, True))
    tolerance.assert_close(out, exact, usual, length=max(sizes.values()), dtype="float32")


def buckets_of(compiled: Any) -> tuple[str, ...]:
    (function,) = compiled.report.functions
    return tuple(function.buckets)


@pytest.mark.parametrize("rows", [64, 256])
def test_short_and_long_rows_have_buckets_of_their_own(rows: int) -> None:
    compiled = tvm_cascade.compile(log_sum_exp(rows), ONE_CORE)
    told = buckets_of(compiled)
    assert 2 <= len(told) <= FuseOptions().buckets
    assert any("n up to" in line and "form: unfused" in line for line in told)
    assert any("n over" in line and "form: fused" in line for line in told)
    assert all(line.endswith("chosen by the model's estimates") for line in told)
    assert {name.name_hint for name in compiled.mod.get_global_vars()} == {
        "main", *(f"main_{k}" for k in range(len(told)))
    }  # fmt: skip


@pytest.mark.parametrize("length", [1, 2, 15, 64, 127, 128, 129, 256, 257, 1000, 4096, 4097, 9001])
def test_rows_are_right_at_edges_of_buckets_and_beyond_the_last(length: int) -> None:
    taken(compiled_of(log_sum_exp), log_sum_exp(), {"r": 3, "n": length})


@pytest.mark.parametrize(
    "sizes", [(1, 1), (1, 300), (2, 64), (3, 65), (17, 31), (33, 32), (64, 33), (5, 257), (130, 4)]
)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_attention_is_right_for_all_combinations(index: str, sizes: tuple[int, int]) -> None:
    func = compiled_of(attention, 2 if index == "int32" else FuseOptions().buckets, index=index)
    assert len(buckets_of(func)) > 1
    taken(func, attention(index=index), dict(zip("nm", sizes, strict=True)))


@pytest.mark.parametrize("length", [1, 7, 64, 300, 5000])
def test_each_kernel_by_itself_is_right_at_every_length(length: int) -> None:
    """What a bucket decides is speed alone."""
    func, compiled = log_sum_exp(), compiled_of(log_sum_exp)
    for name in (one.name_hint for one in compiled.mod.get_global_vars() if one.name_hint != "main"):
        taken(compiled.runtime_module[name], func, {"r": 4, "n": length})


def test_one_kernel_where_that_is_asked_for_and_of_what_has_no_lengths() -> None:
    for func, options in ((log_sum_exp(), {"buckets": 1}), (at_sizes(log_sum_exp(), {"r": 8, "n": 100}), {})):
        compiled = tvm_cascade.compile(func, CPU, **options)
        assert buckets_of(compiled) == () and len(compiled.mod.get_global_vars()) == 1


def test_what_is_best_unfused_at_all_lengths_is_declined_unless_it_is_forced() -> None:
    func, host = log_sum_exp(4), {**ONE_CORE, "mcpu": "haswell"}
    compiled = tvm_cascade.compile(func, host)
    (function,) = compiled.report.functions
    assert "rows in 32 lanes" in function.lowering and function.buckets == ()
    assert "declined" in str(compiled.report) and "at all lengths" in str(compiled.report)
    (forced,) = tvm_cascade.explain(func, host, force=True).functions
    assert "the fused loop" in forced.lowering
    for length in (1, 12, 333):
        taken(compiled, func, {"n": length})


def test_what_cannot_be_chosen_is_one_kernel() -> None:
    length = tirx.Var("n", "int64")
    x = te.placeholder((length,), "float32", name="x")
    func = te.create_prim_func([x, te.compute((length,), lambda i: te.exp(x[i]), name="y")])
    assert buckets_of(tvm_cascade.compile(func, CPU)) == ()


def test_explain_names_the_kernels_and_their_lengths() -> None:
    told = tvm_cascade.explain(log_sum_exp(64), ONE_CORE)
    assert "kernels, of which a call takes the one for its lengths" in str(told) and "n up to" in str(told)
    assert '"buckets": [' in told.to_json()
    assert "n up to" in told._repr_html_()


def test_kernels_of_a_gpu_are_called_alike() -> None:
    goal = goal_of(resolve_target(HOPPER), FuseOptions())
    _, one = lowered(fused({"main": product()}, goal), goal)["main"]
    assert isinstance(one.chosen, Buckets) and len(one.chosen.each) > 1
    called = sorted({bucket.function for bucket in one.chosen.each})
    assert set(called) <= set(one.steps) and all(f'"{name}"' in one.func.script() for name in called)
    assert all(str(func.attrs["global_symbol"]) == name for name, func in one.steps.items())


def test_names_of_kernels_are_no_names_of_the_module() -> None:
    mod = tvm.IRModule({"main": log_sum_exp(), "main_0": at_sizes(log_sum_exp(), {"r": 2, "n": 2})})
    compiled = tvm_cascade.compile(mod, CPU)
    names = {one.name_hint for one in compiled.mod.get_global_vars()}
    assert {"main", "main_0", "main__0", "main__1"} <= names


def space(seconds: Callable[[Design, Sizes], float], values: int = 8) -> Space:
    """One knob, of a made-up function."""
    return Space(
        (Knob("knob", tuple(map(str, range(values)))),),
        lambda _design: 0.0,
        lambda *_: pytest.fail("nothing is lowered"),
        lambda sizes: lambda design: seconds(design, sizes),
    )


N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")


def test_a_kernel_more_has_to_save_what_estimates_tell_apart() -> None:
    same = choose(space(lambda design, sizes: sizes["n"] * (1.0 - 0.005 * design[0])), [N], None, 4)
    assert same.designs == ((0,),) and same.extents == ()


def test_no_more_kernels_than_are_allowed_and_those_that_save_most() -> None:
    def seconds(design: Design, sizes: Sizes) -> float:
        return 1.0 + abs(design[0] - math.log2(sizes["n"]) / 2)

    for most in (1, 2, 3, 5):
        found = choose(space(seconds), [N], None, most)
        assert len(found.designs) == most
        cells = [found.kernels[cell,] for cell in range(len(ENDS) + 1)]
        assert cells == sorted(cells) or cells == sorted(cells, reverse=True) or most > 2
        lost = [seconds(found.designs[k], {"n": 1 << e}) for e, k in enumerate(cells)]
        alone = [seconds((3,), {"n": 1 << e}) for e in range(len(cells))]
        assert sum(lost) <= sum(alone) + 1e-9


def test_extents_that_do_not_matter_are_not_asked_for() -> None:
    found = choose(space(lambda design, sizes: 1.0 + abs(design[0] - (sizes["m"] > 64))), [N, M], None, 4)
    assert found.extents == (M,) and len(found.designs) == 2


def test_two_extents_may_matter_together() -> None:
    def seconds(design: Design, sizes: Sizes) -> float:
        return 1.0 + abs(design[0] - (sizes["n"] > 16) - 2 * (sizes["m"] > 256))

    found = choose(space(seconds), [N, M], None, 4)
    assert len(found.extents) == 2 and len(found.designs) == 4
    lengths = lengths_of(tree_of(found.bounds, found.kernels), "nm")
    assert {lengths[k]: design for k, design in enumerate(found.designs)} == {
        "n up to 16 and m up to 256": (0,),
        "n over 16 and m up to 256": (1,),
        "n up to 16 and m over 256": (2,),
        "n over 16 and m over 256": (3,),
    }


def test_a_design_on_record_is_taken_in_its_bucket() -> None:
    def asked(sizes: Sizes) -> tuple[Design | None, str]:
        return ((5,), "a session") if sizes["n"] == 512 else (None, "nothing is known")

    found = choose(space(lambda design, _: 1.0 + design[0]), [N], asked, 4)
    lengths = lengths_of(tree_of(found.bounds, found.kernels), "n")
    (recorded,) = [k for k, design in enumerate(found.designs) if design == (5,)]
    assert lengths[recorded] == "n of 257 to 512" and "a session" in found.origins.values()


def asked_of(tree: Tree, at: tuple[int, ...]) -> int:
    while isinstance(tree, Split):
        tree = tree.within if at[tree.extent] <= tree.upto else tree.beyond
    return tree


def test_the_tree_gives_each_cell_its_kernel() -> None:
    bounds = ((4, 16), (1, 8, 64))
    kernels = {(i, j): (i * j) % 3 for i in range(3) for j in range(4)}
    tree = tree_of(bounds, kernels)
    ends = [(*one, one[-1] + 1) for one in bounds]
    for (i, j), kernel in kernels.items():
        assert asked_of(tree, (ends[0][i], ends[1][j])) == kernel


def test_extents_are_those_that_tensors_tell() -> None:
    assert [extent.name for extent in symbolic_extents(attention())] == ["n", "m"]
    x = te.placeholder((N, tirx.Var("n", "int64")), "float32", name="x")
    twice = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1, name="y")])
    assert symbolic_extents(twice) == []


_KEPT: dict[object, Any] = {}


def compiled_of(program: Callable[..., tirx.PrimFunc], buckets: int = FuseOptions().buckets, **how: str) -> Any:
    """A program, compiled once for all tests."""
    key = program, buckets, *how.items()
    if key not in _KEPT:
        _KEPT[key] = tvm_cascade.compile(program(**how), buckets=buckets)
    return _KEPT[key]
