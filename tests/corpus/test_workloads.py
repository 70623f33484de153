"""Workloads: the tables are the papers', every program builds, inputs fit it, and bad requests say what is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray

from corpus import workloads
from corpus.programs.draws import KINDS
from corpus.workload import WorkloadError

# Name, extents in the paper's order, GFLOP and MiB as worked out by hand for float16 (None: negligible or not stated).
REDFUSER_ATTENTION = [
    ("H1", (32, 8, 512, 512, 64), 17.2, 64),
    ("H2", (32, 12, 512, 512, 64), 25.8, 96),
    ("H3", (32, 16, 512, 512, 64), 34.4, 128),
    ("H4", (32, 12, 256, 256, 64), 6.4, 48),
    ("H5", (32, 16, 256, 256, 64), 8.6, 64),
    ("H6", (32, 16, 256, 256, 80), 10.7, 80),
    ("H7", (32, 64, 1, 1024, 128), 1.1, 1025),
    ("H8", (32, 64, 1, 2048, 128), 2.1, 2049),
    ("H9", (32, 64, 1, 4096, 128), 4.3, 4097),
]
REDFUSER_ROUTING = [
    ("R1", (2048, 768, 128, 1)),
    ("R2", (2048, 1024, 128, 1)),
    ("R3", (2048, 4096, 128, 1)),
    ("R4", (2048, 2560, 64, 6)),
    ("R5", (2048, 8192, 64, 8)),
    ("R6", (2048, 2048, 64, 6)),
    ("R7", (2048, 2048, 128, 8)),
    ("R8", (2048, 4096, 128, 8)),
]
REDFUSER_QUANTISED = [
    # name, (M, N, K), GFLOP, MiB
    ("Q1", (4096, 1536, 2560), 32, 36),
    ("Q2", (4096, 2560, 1536), 32, 36),
    ("Q3", (4096, 3584, 8192), 241, 120),
    ("Q4", (4096, 8192, 3584), 241, 120),
    ("Q5", (4096, 7168, 2048), 120, 86),
    ("Q6", (4096, 2048, 7168), 120, 86),
    ("Q7", (4096, 2048, 768), 13, 24),
    ("Q8", (4096, 768, 2048), 13, 24),
    ("Q9", (4096, 4096, 1536), 52, 50),
    ("Q10", (4096, 1536, 4096), 52, 50),
]
NEPTUNE = {
    # name: (query heads, key heads, square)
    "PF_GLOBAL": (32, 32, True),
    "PF_CAUSAL": (32, 32, True),
    "PF_ALIBI": (32, 32, True),
    "PF_GQA": (64, 8, True),
    "PF_SOFTCAP": (32, 16, True),
    "PF_WINDOWED": (32, 8, True),
    "DC_CAUSAL": (32, 32, False),
    "DC_ALIBI": (32, 32, False),
    "DC_GQA": (64, 8, False),
    "DC_SOFTCAP": (32, 16, False),
}


def extents(name: str, *order: str) -> tuple[int, ...]:
    shape = workloads.get(name).shape
    assert set(order) == set(shape)
    return tuple(shape[extent] for extent in order)


def test_redfusers_tables_are_there_row_by_row() -> None:
    rows = [name for name in workloads.names() if workloads.get(name).source.startswith("RedFuser")]
    counts = {prefix: sum(name[0] == prefix for name in rows) for prefix in "HLRQVI"}
    assert counts == {"H": 9, "L": 9, "R": 8, "Q": 10, "V": 8, "I": 8}


@pytest.mark.parametrize(("name", "row", "gigaflop", "mebibytes"), REDFUSER_ATTENTION)
def test_redfuser_attention(name: str, row: tuple[int, ...], gigaflop: float, mebibytes: int) -> None:
    assert extents(name, "batch", "heads", "queries", "keys", "head_dim") == row
    job = workloads.get(name)
    assert round(job.flops() / 1e9, 1) == gigaflop
    assert math.floor(job.bytes() / 2**20 + 0.5) == mebibytes
    assert (job.dtype, job.accumulate_dtype) == ("float16", "float32")


def test_redfuser_latent_attention() -> None:
    expected = [(batch, 128, keys, 512, 64) for batch in (32, 16, 1) for keys in (1024, 2048, 4096)]
    rows = [extents(f"L{i}", "batch", "heads", "keys", "latent_dim", "rope_dim") for i in range(1, 10)]
    assert rows == expected
    gigaflop = [workloads.get(f"L{i}").flops() / 1e9 for i in range(1, 10)]
    assert (round(min(gigaflop), 1), round(max(gigaflop), 1)) == (0.3, 36.5)


@pytest.mark.parametrize(("name", "row"), REDFUSER_ROUTING)
def test_redfuser_routing(name: str, row: tuple[int, ...]) -> None:
    assert extents(name, "tokens", "hidden", "experts", "topk") == row


@pytest.mark.parametrize(("name", "row", "gigaflop", "mebibytes"), REDFUSER_QUANTISED)
def test_redfuser_quantised(name: str, row: tuple[int, ...], gigaflop: int, mebibytes: int) -> None:
    assert extents(name, "tokens", "columns", "hidden") == row
    assert round(workloads.get(name).flops() / 1e9) == gigaflop
    assert round(workloads.get(name).bytes() / 2**20) == mebibytes


@pytest.mark.parametrize("prefix", ["V", "I"])
def test_redfuser_moments(prefix: str) -> None:
    expected = [(rows, length) for rows in (1, 128, 512, 1024) for length in (8192, 32768)]
    assert [extents(f"{prefix}{i}", "rows", "length") for i in range(1, 9)] == expected


@pytest.mark.parametrize("name", NEPTUNE)
def test_neptune_at_any_length(name: str) -> None:
    heads, kv_heads, square = NEPTUNE[name]
    job = workloads.get(name)
    assert job.dtype == "float16"
    assert (job.shape["heads"], job.shape["kv_heads"], job.shape["head_dim"]) == (heads, kv_heads, 128)
    longer = job.with_length(8192)
    assert (longer.shape["queries"], longer.shape["keys"]) == (8192 if square else 1, 8192)


def test_neptune_has_ten_operators() -> None:
    assert set(workloads.names(source="Neptune")) == set(NEPTUNE)


def test_masked_scores_are_not_counted_as_work() -> None:
    full, causal = workloads.get("PF_GLOBAL").flops(), workloads.get("PF_CAUSAL").flops()
    assert causal == full * 4097 // (2 * 4096)
    # Of 8192 queries, the first half see a triangle and the second half a whole window of 4096 keys.
    pairs = 4096 * 4097 // 2 + 4096 * 4096
    assert workloads.get("PF_WINDOWED").with_length(8192).flops() == 4 * 32 * 128 * pairs


def block_domains(function: tvm.tirx.PrimFunc) -> list[int]:
    schedule = tvm.s_tir.Schedule(function)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    return [math.prod(int(schedule.get(loop).extent) for loop in schedule.get_loops(block)) for block in blocks]


@pytest.mark.parametrize("name", workloads.names())
def test_builds_at_full_size_and_as_a_small_twin(name: str) -> None:
    job = workloads.get(name)
    for function in (job.build(), job.cpu.build()):
        assert tvm.s_tir.analysis.verify_well_formed(function)
        assert str(function.attrs["global_symbol"]) == "main"
    assert max(block_domains(job.cpu.build())) <= 2**21
    assert job.cpu.cpu == job.cpu
    assert job.cpu.output_names == job.output_names


@pytest.mark.parametrize("name", workloads.names())
def test_inputs_are_the_parameters_in_order(name: str) -> None:
    job = workloads.get(name).cpu
    function = job.build()
    buffers = list(function.params)
    arrays = job.inputs(np.random.default_rng(0))
    assert [tuple(map(int, buffer.shape)) for buffer in buffers[: len(arrays)]] == [array.shape for array in arrays]
    assert [str(buffer.dtype) for buffer in buffers[: len(arrays)]] == [str(array.dtype) for array in arrays]
    assert tuple(buffer.name for buffer in buffers[len(arrays) :]) == job.output_names
    assert all(array.flags.c_contiguous for array in arrays), "a peer would be timed on transposed views"
    again = job.inputs(np.random.default_rng(0))
    assert all(np.array_equal(first, second) for first, second in zip(arrays, again, strict=True))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("family", sorted({workloads.get(name).family for name in workloads.names()}))
def test_every_family_builds_in_other_dtypes(family: str, dtype: str) -> None:
    for name in workloads.names(family, source="tvm-cascade"):
        job = workloads.get(name).with_dtype(dtype).cpu
        assert tvm.s_tir.analysis.verify_well_formed(job.build())
        assert job.accumulate_dtype == ("float64" if dtype == "float64" else "float32")


def along_the_cascade_axis(kind: str) -> list[NDArray[Any]]:
    """Arguments that a cascade folds, with that axis last."""
    (rows,) = workloads.get("variance").cpu.inputs(np.random.default_rng(0), kind)
    _, keys, values = workloads.get("attention").cpu.inputs(np.random.default_rng(0), kind)
    return [rows, np.moveaxis(keys, -2, -1), np.moveaxis(values, -2, -1)]


def rise(values: NDArray[Any]) -> float:
    """Mean of the second half of the last axis less that of the first."""
    half = values.shape[-1] // 2
    return float(values[..., half:].mean() - values[..., :half].mean())


@pytest.mark.parametrize(("kind", "low", "high"), [("normal", -0.5, 0.5), ("rising", 7, 9), ("falling", -9, -7)])
def test_ramps_run_along_the_cascade_axis(kind: str, low: float, high: float) -> None:
    assert all(low < rise(values) < high for values in along_the_cascade_axis(kind))


def test_late_spike_is_at_the_end_of_the_cascade_axis() -> None:
    for values in along_the_cascade_axis("late_spike"):
        assert (np.argmax(values, axis=-1) == values.shape[-1] - 1).all()


def test_large_offset_ties_and_zeros_are_what_they_say() -> None:
    for values in along_the_cascade_axis("large_offset"):
        assert abs(values.mean() - 1000) < 1
        assert 0.5 < values.std() < 2
    assert all(set(np.unique(values)) == {-2, -1, 0, 1, 2} for values in along_the_cascade_axis("ties"))
    assert not any(values.any() for values in along_the_cascade_axis("zeros"))


@pytest.mark.parametrize("kind", KINDS)
def test_roles_hold_for_every_kind(kind: str) -> None:
    mass, _ = workloads.get("inertia").cpu.inputs(np.random.default_rng(0), kind)
    assert 0.5 <= mass.min() <= mass.max() <= 1.5
    *_, mask = workloads.get("attention_mask").cpu.inputs(np.random.default_rng(0), kind)
    assert mask.any(axis=-1).all()
    assert not mask.all()
    _, target = workloads.get("cross_entropy").with_length(3).inputs(np.random.default_rng(0), kind)
    assert set(np.unique(target)) == {0, 1, 2}


def test_float64_is_not_narrowed() -> None:
    text = workloads.get("attention_causal").with_dtype("float64").build().script()
    assert "float64" in text
    assert "float32" not in text


def test_shape_overrides_reach_the_program() -> None:
    job = workloads.get("attention")
    assert dict(job.shape) == {"heads": 8, "queries": 512, "keys": 512, "head_dim": 64}
    assert job.dtype == "float32"
    function = job.build(keys=7)
    assert [(buffer.name, [int(extent) for extent in buffer.shape]) for buffer in function.params] == [
        ("q", [8, 512, 64]),
        ("k", [8, 7, 64]),
        ("v", [8, 7, 64]),
        ("out", [8, 512, 64]),
    ]
    assert job.flops(keys=7) == 4 * 8 * 512 * 7 * 64
    assert job.bytes(keys=7) == 4 * 8 * 64 * (512 + 7 + 7 + 512)
    assert job.shape["keys"] == 512


def test_a_shape_cannot_be_changed_in_place() -> None:
    with pytest.raises(TypeError):
        workloads.get("attention").shape["keys"] = 7  # type: ignore[index]


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "64", None])
def test_extents_are_positive_integers(value: Any) -> None:
    with pytest.raises(WorkloadError, match="positive integer"):
        workloads.get("attention").with_shape(keys=value)
    with pytest.raises(WorkloadError, match="positive integer"):
        workloads.get("variance").with_length(value)


def test_unknown_extents_are_listed() -> None:
    with pytest.raises(WorkloadError, match=r"heads, queries, keys, head_dim\n  found kees"):
        workloads.get("attention").build(kees=3)


def test_extents_fit_each_other() -> None:
    with pytest.raises(WorkloadError, match="kv_heads a divisor of heads = 8"):
        workloads.get("attention_gqa").with_shape(kv_heads=3)
    with pytest.raises(WorkloadError, match="topk at most experts = 64"):
        workloads.get("R5").with_shape(topk=65)


def test_unknown_names_suggest_near_ones() -> None:
    with pytest.raises(WorkloadError, match="did you mean attention_gqa"):
        workloads.get("Attention_GQ")
    with pytest.raises(WorkloadError, match="`python -m corpus programs` lists all"):
        workloads.get("????")


def test_unknown_families_dtypes_and_kinds_are_refused() -> None:
    with pytest.raises(WorkloadError, match="a family among attention, mla"):
        workloads.names("convolution")
    with pytest.raises(WorkloadError, match="a dtype among float16"):
        workloads.get("variance").with_dtype("int8")
    with pytest.raises(WorkloadError, match="a kind of data among normal"):
        workloads.get("variance").inputs(np.random.default_rng(0), "gaussian")
