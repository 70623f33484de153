"""`tvm_cascade.te.topk`: a reduction that stock TVM compiles, and that fuses behind order-preserving maps."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from corpus import workloads
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.device import Cpu
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.cpu import schedule_cpu
from tvm_cascade.te import topk
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import LENGTH, ROWS, array, each, fold, number, program, softmax_stages
from ..tiers import slow_but
from ..transform.running import Array, Unfused, assert_close, build, read, run


def sorted_rows(x: Array, k: int, largest: bool = True) -> tuple[Array, Array]:
    """The definition, by a stable sort: values and indices."""
    order = np.argsort(-x if largest else x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, axis=-1), order


def rows(kind: str, shape: tuple[int, ...] = (ROWS, LENGTH)) -> Array:
    rng = np.random.default_rng(2)
    drawn = {
        "normal": rng.standard_normal(shape),
        "ties": rng.integers(0, 3, shape),
        "all equal": np.ones(shape),
        "falling": np.broadcast_to(-np.arange(shape[-1]) / 8, shape),
    }
    return np.ascontiguousarray(drawn[kind], np.float32)


@cache
def routed(k: int) -> Unfused:
    """x -> the k largest probabilities and their positions."""
    x = array("x")
    row_max, row_sum = softmax_stages(x)
    probs = each("probs", lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i])
    return read(program(x, *topk(probs, k)))


@pytest.mark.parametrize("kind", ["normal", "ties", "all equal", "falling"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_alone_it_sorts_and_equal_elements_keep_their_order(k: int, kind: str) -> None:
    x = array("x")
    func = program(x, *topk(x, k))
    found = run(build(func), func, [rows(kind)])
    values, indices = sorted_rows(rows(kind), k)
    np.testing.assert_array_equal(found["topk_values"], values)
    np.testing.assert_array_equal(found["topk_indices"], indices)


def test_the_smallest_along_another_axis_of_integers() -> None:
    x = array("x", 3, 5, 4, dtype="int32")
    func = program(x, *topk(x, 2, axis=1, largest=False, name="least"))
    given = np.random.default_rng(0).integers(-9, 9, (3, 5, 4)).astype("int32")
    found = run(build(func), func, [given])
    values, indices = sorted_rows(np.moveaxis(given, 1, 2), 2, largest=False)
    np.testing.assert_array_equal(found["least_values"], np.moveaxis(values, 2, 1))
    np.testing.assert_array_equal(found["least_indices"], np.moveaxis(indices, 2, 1))


def test_where_there_are_fewer_than_k_the_rest_is_the_lowest_value_at_no_index() -> None:
    x = array("x", 2, 3)
    func = program(x, *topk(x, 4))
    given = np.array([[1, 3, 2], [-np.inf, 5, -np.inf]], np.float32)
    found = run(build(func), func, [given])
    lowest = np.finfo(np.float32).min
    np.testing.assert_array_equal(found["topk_values"], [[3, 2, 1, lowest], [5, lowest, lowest, lowest]])
    np.testing.assert_array_equal(found["topk_indices"], [[1, 2, 0, -1], [1, -1, -1, -1]])


@pytest.mark.parametrize("kind", slow_but(["ties"], ["normal", "ties", "all equal", "falling"]))
@pytest.mark.parametrize("k", slow_but([1, 4], [1, 2, 4]))
def test_of_a_softmax_it_fuses_and_selects_the_same(k: int, kind: str) -> None:
    (group,) = routed(k).groups
    assert len(group.names) == 2 + 2 * k
    for tile, segments in ((8, 1), (8, 3), (36, 1), (38, 1), (1, 3), (2, 2)):
        routed(k).check([rows(kind)], tile=tile, segments=segments)


def test_the_keys_that_are_kept_are_those_before_the_softmax() -> None:
    (group,) = routed(2).groups
    keys = [c for c in group.fold.components if c.parts and c.reducer.part == 0]
    assert [str(c.lift) for c in keys] == ["x"]
    assert all(not c.moves for c in group.fold.components if c.parts)


@pytest.mark.parametrize(("tile", "segments"), [(8, 1), (8, 3), (1, 1)])
def test_masked_elements_have_the_probability_zero_and_keep_their_order(tile: int, segments: int) -> None:
    """exp(−∞) = 0 is above the lowest value: the elements are there, as they are in the unfused program."""
    x = rows("normal")
    x[0, 2:] = -np.inf
    x[1, :36] = -np.inf
    found = routed(4).fused_results([x], tile=tile, segments=segments)
    expected = routed(4).results([x])
    np.testing.assert_array_equal(found["topk_indices"], expected["topk_indices"])
    exact = oracle.evaluate(routed(4).func, [x])["topk_values"]
    tolerance.assert_close(found["topk_values"], exact, expected["topk_values"], length=LENGTH, dtype="float32")
    assert list(found["topk_indices"][1]) == [36, 0, 1, 2]


def test_an_axis_shorter_than_k_fuses_too() -> None:
    x = array("x", ROWS, 3)
    row_max, row_sum = softmax_stages(x, 3)
    probs = each("probs", lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i], ROWS, 3)
    short = read(program(x, *topk(probs, 4)))
    for tile, segments in ((3, 1), (2, 2), (1, 3)):
        short.check([rows("ties", (ROWS, 3))], tile=tile, segments=segments)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_missing_in_halves_is_their_own_extreme_number(dtype: str, largest: bool) -> None:
    x = array("x", ROWS, 1, dtype=dtype)
    best, where = topk(x, 3, largest=largest)
    spread = fold("spread", lambda i, j: te.exp(x[i, j] - best[i, 0]), length=1)
    unfused = read(program(x, best, where, spread))
    given = [rows("normal", (ROWS, 1)).astype(dtype)]
    expected, found = unfused.results(given), unfused.fused_results(given, tile=1, segments=1)
    for name in ("topk_values", "topk_indices"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_each_k_up_to_a_routers_is_recognised() -> None:
    for k in (2, 6, 8):
        x = array("x")
        found = read_program(program(x, *topk(x, k)))
        assert isinstance(found, Program)
        reducers = [stage.reducer for stage in found.stages if stage.reducer is not None]
        assert [r.whole.selection.count for r in reducers if r.whole and r.whole.selection] == [k] * 2 * k


def test_several_of_the_largest_distances_from_a_mean_have_no_law() -> None:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    distances = each("distances", lambda i, j: te.abs(x[i, j] - s[i] / number(LENGTH)))
    outcome = fuse_function(program(x, *topk(distances, 3)), FuseOptions(force=True))
    codes = [d.reason.code for d in outcome.decisions if any(name.startswith("topk") for name in d.candidate.names)]
    assert codes == ["order_unknown"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((array("x"), 0), "0"),
        ((array("x"), 33), "33"),
        ((array("x"), 2.0), "2.0"),
        ((array("x"), True), "True"),
        ((array("x"), 2, 2), "2"),
        ((array("x"), 2, -3), "-3"),
        ((tirx.const(1, "int32"), 2), "IntImm"),
    ],
)
def test_what_it_cannot_build_is_named(arguments: tuple[object, ...], found: str) -> None:
    with pytest.raises(InputError, match=found):
        topk(*arguments)  # type: ignore[arg-type]


def test_the_limit_is_told_with_its_reason_and_another_way() -> None:
    with pytest.raises(InputError, match=r"(?s)from 1 to 32.*found 64.*compile.*tvm.topi.topk"):
        topk(array("x"), 64)


@pytest.mark.parametrize("name", ["R1", "R4"])
def test_a_router_is_one_loop_and_right_under_the_cpu_schedule(name: str) -> None:
    job = workloads.get(name).cpu
    func = job.build()
    given = job.inputs(np.random.default_rng(7))
    outcome = fuse_function(func, FuseOptions(force=True))
    assert [decision.reason.code for decision in outcome.decisions] == ["fold"]
    sch = s_tir.Schedule(tvm.ir.load_json(tvm.ir.save_json(tvm.IRModule({"main": outcome.func}))))
    schedule_cpu(sch, Cpu(cores=2))
    found = run(build(sch.mod["main"]), outcome.func, given)
    assert_close(found, func, given, run(build(func), func, given), job.shape["experts"])


def test_what_rounding_to_halves_makes_equal_ties_by_position() -> None:
    x = array("x")
    row_max, row_sum = softmax_stages(x)
    shares = each("shares", lambda i, j: (te.exp(x[i, j] - row_max[i]) / row_sum[i]).astype("bfloat16"))
    outcome = fuse_function(program(x, *topk(shares, 2)), FuseOptions(force=True))
    codes = [d.reason.code for d in outcome.decisions if any(name.startswith("topk") for name in d.candidate.names)]
    assert codes == ["not_order_preserving"]
