"""The cost model: what is fused by default and what is declined, on every workload; and what makes the difference."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from tvm import te, tirx, topi
from tvm.ir import Expr
from tvm.target import Target

from benchmarks import suites
from corpus import workloads
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Cpu, Device
from tvm_cascade.devices.read import ANY_CPU, cpu_of
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import Decision, fuse_function

from ..analysis.programs import array, each, fold, number, program
from ..tiers import slow_but

DECLINED = {
    "layernorm_gemm 512x1024x1024": "three products instead of one",
    "layernorm_gemm 32x48x192": "three products instead of one",
    "L1 2x4x96x64x16": "keys that all heads share are packed for each block of heads",
    "L7 1x4x96x64x16": "keys that all heads share are packed for each block of heads",
    "mla 1x4x96x64x16": "keys that all heads share are packed for each block of heads",
    "mla_paged 2x4x96x64x16x9x16": "as these, by the estimate alone: fused takes 0.75 of the time where it is forced",
    "decode_prefix 2x8x2x1x96x32x40": "keys that all heads share are packed for each block of heads",
    "R1 32x192x32x1": "tokens are packed for a product of few columns",
    "V1 1x4096": "three sums over rows that a cache holds, instead of two: 0.8 us for 0.6",
    "rmsnorm_gemm 32x48x192": "a product in tiles, of few columns: 8.1 us for 7.6",
    "rmsnorm_gemm 512x1024x1024": "a product in tiles: 13.9 ms for 10.5, on one core",
    "decode_draft 2x8x2x4x96x32": "tiles for few queries: 28 us for 22",
    "decode_tree 2x8x2x4x96x32": "tiles for few queries: 28 us for 22",
    "V3 4x4096": "three sums over rows that a cache holds, instead of two",
    "variance 4x4096": "three sums over rows that a cache holds, instead of two",
    "covariance 4x4096": "five sums over rows that a cache holds, instead of three",
    "third_moment 4x4096": "four sums over rows that a cache holds, instead of two",
    "softmax 4x4096": "exponentials computed twice, of rows that a cache holds",
    "normed_rms 32x192x48": "two products instead of one, by the estimate",
    "normed_rms_plain 32x192x48": "two products instead of one, by the estimate",
    "normed_gated 32x192x48": "two products instead of one, by the estimate",
}
"""Rows of the suite `cpu` that are slower fused, as measured, and why."""

REFUSED = {
    "Q1 32x48x192": "a rounding to float8 that is not allowed to move",
    "ptpc_gemm 32x48x192": "the same",
    "normed_layer 32x192x48": "a rounding that a shift by the mean does not commute with; the norm itself is fused",
}

SINGLE = ("product", "chain")
"""Labels of workloads that have one reduction an axis start so: nothing to fuse."""


def decision(func: tirx.PrimFunc, device: Device = ANY_CPU, **options: bool) -> Decision:
    (found,) = fuse_function(func, FuseOptions(**options), device).decisions
    return found


def sized(name: str, **shape: int) -> tirx.PrimFunc:
    return workloads.get(name).build(**shape)


def norm_into_product(transposed: bool, rows: int = 512, hidden: int = 768, columns: int = 768) -> tirx.PrimFunc:
    """x, weight -> (x / root of its mean square) · weight; the weight as [columns, hidden] where transposed."""
    x, weight = array("x", rows, hidden), array("w", *((columns, hidden) if transposed else (hidden, columns)))
    square = fold("square", lambda i, j: x[i, j] * x[i, j], rows=(rows,), length=hidden)
    scaled = each("scaled", lambda i, j: x[i, j] * te.rsqrt(square[i] / number(hidden)), rows, hidden)

    def element(i: Expr, n: Expr, j: Expr) -> Expr:
        return scaled[i, j] * (weight[n, j] if transposed else weight[j, n])

    return program(x, weight, fold("out", element, rows=(rows, columns), length=hidden))


ENTRIES = {one.workload.label: one.workload for one in suites.entries("cpu")}
FIRST = {label.split()[0]: label for label in reversed(ENTRIES)}
"""By program, its first size: the others of the same program are chosen by the same estimates."""


QUICK = {*FIRST.values(), *DECLINED, *REFUSED} & ENTRIES.keys() - {FIRST["R4"], FIRST["R5"]}
"""Of routers the first three, whose choice is that of the others."""


@pytest.mark.parametrize("label", slow_but(QUICK, ENTRIES))
def test_the_choice_for_every_workload(label: str) -> None:
    entry = ENTRIES[label]
    *_, last = fuse_function(entry.build(), FuseOptions(), ANY_CPU).decisions
    table = ((Verdict.DECLINED, DECLINED), (Verdict.REFUSED, REFUSED))
    usual = Verdict.NOTHING if entry.label.startswith(SINGLE) else Verdict.FUSED
    assert last.reason.verdict is next((v for v, labels in table if entry.label in labels), usual)


def test_a_declined_program_tells_both_times_and_is_fused_where_that_is_asked_for() -> None:
    func = sized("layernorm_gemm", tokens=32, hidden=192, columns=48)
    declined = decision(func)
    assert declined.estimate is not None and str(declined.estimate) in declined.reason.detail
    assert "us unfused" in declined.reason.detail and "us fused" in declined.reason.detail
    assert decision(func, force=True).reason.verdict is Verdict.FUSED


def test_a_core_with_a_slow_memory_gains_more_from_fusing() -> None:
    """Rows of 256 KiB, which a core with small caches reads from memory for every pass."""
    func = sized("softmax_stats", rows=64, length=65536)
    quick, slow = (decision(func, Cpu(levels=levels)).estimate for levels in (((math.inf, 128.0),), ((math.inf, 2.0),)))
    assert quick is not None and slow is not None
    assert slow.ns_before / slow.ns_after > quick.ns_before / quick.ns_after > 1


@pytest.mark.parametrize("name", ["mla", "mla_paged", "softmax", "variance", "covariance", "third_moment", "R1"])
def test_threads_are_started_once_for_a_fused_loop(name: str) -> None:
    """Small programs: fused 0.23 to 0.8 of the time unfused on two cores, where every nest starts its threads, and 1.1
    to 3 of it on one (measured)."""
    func = workloads.get(name).cpu.build()
    assert decision(func, Cpu(cores=1)).reason.verdict is Verdict.DECLINED
    assert decision(func, Cpu(cores=2)).reason.verdict is Verdict.FUSED


@pytest.mark.parametrize("name", ["layernorm_gemm", "decode_prefix", "L7"])
def test_threads_do_not_make_up_for_work_that_is_done_twice(name: str) -> None:
    """Fused 1.35 to 5.8 of the time unfused on two cores (measured)."""
    declined = decision(workloads.get(name).cpu.build(), Cpu(cores=2))
    assert declined.reason.verdict is Verdict.DECLINED and "us fused (2 cores)" in declined.reason.detail


def test_prices_of_a_cpu_decide_nothing_for_a_gpu() -> None:
    func = sized("layernorm_gemm", tokens=32, hidden=192, columns=48)
    assert decision(func, H200).reason.verdict is Verdict.FUSED


@pytest.mark.parametrize("name", ["variance", "third_moment", "covariance", "softmax"])
def test_rows_that_no_cache_holds_are_read_once(name: str) -> None:
    assert decision(sized(name, rows=2, length=4096)).reason.verdict is Verdict.DECLINED
    assert decision(sized(name, rows=16384, length=4096)).reason.verdict is Verdict.FUSED


@pytest.mark.parametrize(("rows", "length", "fused"), [(512, 4096, False), (256, 2048, False), (1024, 8192, True)])
def test_rows_in_a_fast_cache_are_summed_twice(rows: int, length: int, fused: bool) -> None:
    """Variances on Zen 4: fused, they take 1.2 and 1.4 of the time in its third-level cache, and 0.75 beyond."""
    zen = cpu_of(Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4"}))
    found = decision(sized("variance", rows=rows, length=length), zen)
    assert (found.reason.verdict is Verdict.FUSED) == fused


def test_an_operand_that_every_block_of_rows_packs_is_counted() -> None:
    """Fused, a weight that lies transposed takes 8.9 ms and one that does not 6.7; unfused both take 5.8 (one core)."""
    plain, transposed = (decision(norm_into_product(way)).estimate for way in (False, True))
    assert plain is not None and transposed is not None
    assert transposed.ns_after > 1.2 * plain.ns_after and transposed.ns_before < 1.1 * plain.ns_before


def test_the_sums_of_several_products_are_counted_beside_each_other() -> None:
    one, three = (decision(norm_into_product(False, columns=n)).estimate for n in (768, 2304))
    assert one is not None and three is not None
    assert three.ns_after / three.ns_before > 1.1 * one.ns_after / one.ns_before


@pytest.mark.parametrize("columns", [256, 768, 2304])
def test_a_norm_is_not_fused_into_a_product(columns: int) -> None:
    """Fused, these take 1.14, 1.16 and 1.22 of the time of both apart (measured, one core)."""
    assert decision(norm_into_product(False, columns=columns)).reason.verdict is Verdict.DECLINED


@pytest.mark.parametrize(("heads", "head_dim"), [(8, 64), (32, 128)])
@pytest.mark.parametrize("queries", [4, 8, 16])
def test_attention_of_few_queries_is_fused_over_long_keys(queries: int, heads: int, head_dim: int) -> None:
    """Fused, 4, 8 and 16 of 8 heads take 0.95, 0.95 and 0.93 of the time, 16 of 32 heads 0.8 (one core)."""
    func = sized("attention", heads=heads, queries=queries, keys=2048, head_dim=head_dim)
    assert decision(func).reason.verdict is Verdict.FUSED


@pytest.mark.parametrize("queries", [4, 8, 16])
def test_attention_of_few_grouped_queries_is_not_fused_over_long_keys(queries: int) -> None:
    """Fused, keys that heads share are packed for each of them."""
    func = sized("attention_gqa", heads=8, queries=queries, keys=2048, head_dim=64)
    assert decision(func).reason.verdict is Verdict.DECLINED


@pytest.mark.parametrize(("queries", "keys"), [(1, 1024), (64, 64), (512, 512)])
def test_attention_is_fused(queries: int, keys: int) -> None:
    func = sized("attention", heads=8, queries=queries, keys=keys, head_dim=64)
    assert decision(func).reason.verdict is Verdict.FUSED


def test_rows_that_are_rounded_up_lie_side_by_side() -> None:
    """Twenty-four queries run as two vectors of sixteen: folds need no arithmetic across a vector."""
    func = sized("attention", heads=2, queries=24, keys=577, head_dim=32)
    assert decision(func).reason.verdict is Verdict.FUSED


@pytest.mark.parametrize("length", [64, 777, 1000, 1024, 1500])
def test_rows_that_a_cache_holds_are_not_fused_whatever_divides_them(length: int) -> None:
    """Fused, variances of 64, 777, 1000 and 1500 positions take 1.5, 2.6, 1.3 and 2.4 of the time (one core)."""
    assert decision(sized("variance", rows=256, length=length)).reason.verdict is Verdict.DECLINED


@pytest.mark.parametrize(
    ("name", "rows", "length", "before", "after"),
    [
        ("variance", 1024, 64, 11, 17),
        ("variance", 256, 256, 21, 28),
        ("variance", 84, 777, 81, 212),
        ("logsumexp", 1024, 64, 21, 30),
        ("logsumexp", 256, 256, 61, 72),
        ("logsumexp", 32, 2048, 436, 452),
    ],
)
def test_estimates_of_rows_are_within_twice_the_time(
    name: str, rows: int, length: int, before: float, after: float
) -> None:
    """Nanoseconds a row, as measured on one core of an Emerald Rapids."""
    estimate = decision(sized(name, rows=rows, length=length)).estimate
    assert estimate is not None
    for estimated, measured in ((estimate.ns_before, before), (estimate.ns_after, after)):
        assert 0.5 < estimated / rows / measured < 2.0


@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [
        ((8, 4, 2048, 64), 827, 781),
        ((8, 16, 2048, 64), 1179, 1095),
        ((32, 16, 2048, 128), 15404, 12433),
        ((8, 1, 3000, 128), 939, 891),
        ((64, 49, 49, 32), 767, 339),
        ((8, 512, 512, 64), 5365, 4061),
    ],
)
def test_estimates_of_attention_are_within_twice_the_time(
    shape: tuple[int, int, int, int], before: float, after: float
) -> None:
    """Microseconds, as measured on one core of an Emerald Rapids; fused where that is faster."""
    found = decision(sized("attention", **dict(zip(("heads", "queries", "keys", "head_dim"), shape, strict=True))))
    assert found.estimate is not None and found.reason.verdict is Verdict.FUSED
    for estimated, measured in ((found.estimate.ns_before, before), (found.estimate.ns_after, after)):
        assert 0.5 < estimated / 1e3 / measured < 2.0


@pytest.mark.parametrize(("rows", "length", "fused"), [(128, 64, False), (1500, 512, True), (4096, 256, True)])
def test_a_norm_is_fused_where_no_near_cache_holds_it(rows: int, length: int, fused: bool) -> None:
    """Fused, they take 1.3, 0.8 and 0.77 of the time (measured, one core)."""
    x, gain, bias = array("x", rows, length), array("gain", length), array("bias", length)
    func = program(x, gain, bias, topi.nn.layer_norm(x, gain, bias, [1], 1e-5))
    *_, found = fuse_function(func, FuseOptions(), ANY_CPU).decisions
    assert (found.reason.verdict is Verdict.FUSED) == fused


def test_a_product_that_the_loop_reads_and_does_not_compute_takes_its_time_in_both_forms() -> None:
    """Σ over parts of products, normed: the loop adds up the parts, the products stay before it."""
    x, w = array("x", 4, 64, 128), array("w", 4, 128, 64)
    k, part = te.reduce_axis((0, 128), "k"), te.reduce_axis((0, 4), "part")
    products = te.compute((4, 64, 64), lambda p, i, j: te.sum(x[p, i, k] * w[p, k, j], axis=k), name="products")
    summed = te.compute((64, 64), lambda i, j: te.sum(products[part, i, j], axis=part), name="summed")
    square = fold("square", lambda i, j: summed[i, j] * summed[i, j], length=64, rows=(64,))
    scaled = fold("scaled", lambda i, j: summed[i, j] / square[i], length=64, rows=(64,))
    with_products = decision(program(x, w, square, scaled)).estimate
    parts = array("products", 4, 64, 64)
    summed = te.compute((64, 64), lambda i, j: te.sum(parts[part, i, j], axis=part), name="summed")
    square = fold("square", lambda i, j: summed[i, j] * summed[i, j], length=64, rows=(64,))
    scaled = fold("scaled", lambda i, j: summed[i, j] / square[i], length=64, rows=(64,))
    without = decision(program(parts, square, scaled)).estimate
    assert with_products is not None and without is not None
    before, after = (getattr(with_products, name) - getattr(without, name) for name in ("ns_before", "ns_after"))
    assert abs(before - after) < 1 and before > 10_000


def test_functions_that_the_c_library_computes_take_their_time() -> None:
    """Measured on one core: 0.42 ms unfused and 0.52 fused with polynomials; 3.0 and 5.4 without."""
    func = sized("softmax", rows=256, length=4096)
    fast, slow = (decision(func, vector_math=vector_math) for vector_math in (True, False))
    assert fast.estimate is not None and slow.estimate is not None and slow.reason.code == "cost"
    assert fast.estimate.ns_after < 1.4 * fast.estimate.ns_before
    assert slow.estimate.ns_after > 1.4 * slow.estimate.ns_before > 2 * 1.4 * fast.estimate.ns_before


def test_a_whole_power_is_priced_as_the_products_that_it_becomes() -> None:
    def skewness(cube: Callable[[Expr], Expr]) -> Decision:
        x, j, k = te.placeholder((64, 4096), name="x"), te.reduce_axis((0, 4096), "j"), te.reduce_axis((0, 4096), "k")
        s = te.compute((64,), lambda i: te.sum(x[i, j], axis=j), name="s")
        skew = te.compute((64,), lambda i: te.sum(cube(x[i, k] - s[i] / 4096.0), axis=k), name="skew")
        return decision(te.create_prim_func([x, s, skew]))

    powers, products = (skewness(cube).estimate for cube in (lambda y: te.power(y, 3.0), lambda y: y * y * y))
    assert powers is not None and products is not None
    assert 0.6 < powers.ns_before / products.ns_before <= 1.0  # the products as written subtract the mean three times
