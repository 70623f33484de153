"""Few rows: packed of several variables, and folded in equal-work pieces of the axis that meet in one launch."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import te

import tvm_cascade
from corpus import workloads
from tvm_cascade.devices.cards import H200
from tvm_cascade.evaluate.oracle import evaluate, signature
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.tile.attention.shape import Stream, read_stream
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.merge.places import Patches
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeletons.stream.config import StreamConfig
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, blocks_of_item

from ..tiers import slow_but
from . import folds
from .checked import assert_attention_right, assert_right, attention_case, kernel_of
from .emulator.run import compiler, emulate
from .paged_programs import Paged
from .test_compiled_kernels import text_of
from .test_tile_program import attention_of, group_of, tile_program

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def pieces(blocks: int, columns: int = 64, consumers: int = 1, cluster: int = 1) -> PiecesConfig:
    """A configuration for so many blocks."""
    return PiecesConfig(columns, consumers, 2, blocks, cluster=cluster)


def stream_of(variant: str, **shape: int) -> Stream:
    return read_stream(*group_of(attention_of(variant, **shape)))


def test_the_query_heads_of_a_group_are_rows() -> None:
    stream = stream_of("full", heads=64, kv_heads=8, queries=1)
    assert stream.few_rows == 8 and str(stream.right) == "k[h_group, j, v_d]"
    assert str(stream.left) == "q[h_group, h_digit, i, v_d]"


def test_queries_and_heads_are_digits_of_a_row() -> None:
    stream = stream_of("causal", heads=8, kv_heads=2, queries=3, batch=5)
    assert stream.few_rows == 12 and [var.name for var in stream.batch] == ["b", "h_group"]
    assert str(stream.left) == "q[b, h_group, h_digit, i_digit, v_d]"


def test_a_query_a_head_is_a_row_by_itself() -> None:
    assert stream_of("full", heads=32, queries=1).few_rows == 1


@pytest.mark.parametrize(("heads", "queries"), [(8, 256), (128, 64)])
def test_long_rows_stay_one_variable(heads: int, queries: int) -> None:
    stream = stream_of("causal", heads=heads, kv_heads=2, queries=queries)
    assert stream.few_rows is None and stream.row.name == "i"


def test_long_rows_of_few_tiles_are_packed_too() -> None:
    stream = stream_of("causal", heads=8, kv_heads=2, queries=64)
    assert stream.few_rows == 256 and stream.row.name == "packed_row"


@pytest.mark.parametrize("name", slow_but(["DC_GQA", "H7"], ["DC_CAUSAL", "DC_ALIBI", "DC_GQA", "DC_SOFTCAP", "H7"]))
def test_decode_is_one_kernel_for_the_tensor_cores(name: str) -> None:
    func = workloads.get(name).build()
    told = tvm_cascade.explain(func, target={"kind": "cuda", "arch": "sm_90a"}).functions[0].lowering
    assert told.startswith("the tensor-core kernel `stream`, PiecesConfig(")


def test_packed_rows_are_for_kernels_of_few_rows_alone() -> None:
    with pytest.raises(Unfit, match="its rows are several variables"):
        kernel_of(attention_of("full", heads=6, kv_heads=2, queries=3), StreamConfig(columns=64, blocks=132))


@emulated
@pytest.mark.parametrize("blocks", slow_but([3, 5, 12], [1, 2, 3, 5, 9, 12, 64]))
def test_pieces_that_cut_rows_in_many_ways(blocks: int) -> None:
    """Three heads of four tiles: whole heads, parts that cross to the next one, and a block for every tile."""
    assert_attention_right(attention_case("full", heads=3, queries=1), pieces(blocks))


@emulated
@pytest.mark.parametrize(
    ("variant", "extents"),
    [
        ("causal", {"heads": 8, "kv_heads": 2, "queries": 4, "batch": 2}),
        # These two are among the pieces of clusters, which differ in how states are merged.
        pytest.param(
            "causal_alibi", {"heads": 8, "kv_heads": 2, "queries": 4, "head_dim": 128}, marks=pytest.mark.slow
        ),
        pytest.param("mask", {"heads": 4, "kv_heads": 2, "queries": 5, "keys": 300}, marks=pytest.mark.slow),
        ("window_softcap", {"heads": 4, "kv_heads": 2, "queries": 3, "keys": 300, "window": 100}),
        ("softcap", {"heads": 16, "kv_heads": 1, "queries": 7, "head_dim": 40}),
        ("causal", {"queries": 7, "keys": 5}),
        ("causal", {"queries": 100, "keys": 300}),  # two tiles of rows, of one consumer each
    ],
)
def test_masks_and_score_maps_of_packed_rows(variant: str, extents: dict[str, int]) -> None:
    consumers = 2 if extents.get("heads") == 16 else 1
    assert_attention_right(attention_case(variant, "bfloat16", **extents), pieces(7, consumers=consumers))


@emulated
@pytest.mark.parametrize(
    ("variant", "extents"),
    [
        ("full", {"queries": 130, "keys": 200}),
        ("causal_alibi", {"heads": 2, "queries": 100, "keys": 200}),
        ("full", {"heads": 71, "kv_heads": 1, "queries": 1, "keys": 300}),
    ],
    ids=["several tiles", "a tile", "heads of one"],
)
def test_full_tiles_of_rows_in_pieces(variant: str, extents: dict[str, int]) -> None:
    """Rows of one variable, as many as tiles of whole axes have."""
    assert_attention_right(attention_case(variant, "bfloat16", **extents), pieces(7, consumers=2))


@pytest.mark.parametrize(
    ("variant", "extents", "expected"),
    [
        ("full", {"heads": 71, "kv_heads": 1, "queries": 1, "keys": 4096}, PiecesConfig),
        ("causal", {"heads": 4, "queries": 128, "keys": 8192}, PiecesConfig),
        ("full", {"heads": 4, "queries": 512, "keys": 8192}, PiecesConfig),
        ("causal", {"heads": 4, "queries": 512, "keys": 8192}, StreamConfig),  # what is alive differs by tiles of rows
        ("full", {"heads": 60, "queries": 256, "keys": 4096}, StreamConfig),
        ("full", {"heads": 132, "queries": 128, "keys": 8192}, StreamConfig),
    ],
)
def test_few_tiles_of_rows_are_cut_where_that_takes_less(
    variant: str, extents: dict[str, int], expected: type[StreamConfig]
) -> None:
    assert type(kernel_of(attention_of(variant, head_dim=128, **extents)).config) is expected


@emulated
def test_more_pieces_than_are_read_at_once() -> None:
    assert_attention_right(attention_case("full", queries=2, heads=2, kv_heads=1, keys=1300), pieces(21))


@emulated
@pytest.mark.parametrize("kind", ["all_neg_inf_row", "neg_inf_first_segment", "pos_inf", "nan", "denormals"])
def test_classes_of_results(kind: str) -> None:
    assert_attention_right(attention_case("causal", "bfloat16", queries=3), pieces(3), kind)


@emulated
def test_pieces_whose_positions_are_all_masked() -> None:
    """Of three rows one keeps the first tiles alone, the next the last alone."""
    case = attention_case("mask", queries=12, keys=332)
    inputs = list(case.inputs(np.random.default_rng(0), "normal"))
    (number,) = (k for k, array in enumerate(inputs) if str(array.dtype) == "bool")
    kept = np.ones((12, 332), "bool")
    kept[0::3, 128:], kept[1::3, :300] = False, False
    inputs[number] = np.broadcast_to(kept, inputs[number].shape).copy()
    assert_right(case.build(), inputs, pieces(4), length=332)


@emulated
@pytest.mark.parametrize(
    ("variant", "cluster", "extents"),
    [
        ("full", 2, {"queries": 1, "heads": 2}),
        ("causal_alibi", 4, {"queries": 2, "keys": 300, "heads": 8, "kv_heads": 2, "head_dim": 128}),
        ("softcap", 8, {"queries": 5, "keys": 500, "heads": 8, "kv_heads": 2, "head_dim": 40}),
        ("mask", 4, {"queries": 8, "keys": 300, "heads": 8, "kv_heads": 1}),
    ],
)
def test_pieces_of_a_cluster(variant: str, cluster: int, extents: dict[str, int]) -> None:
    assert_attention_right(attention_case(variant, **extents), pieces(132, cluster=cluster))


@emulated
@pytest.mark.parametrize("name", ["log_sum_exp", "variance"])
def test_results_of_rows_of_a_cluster(name: str) -> None:
    assert_fold_right(name, pieces(132, cluster=2))


@pytest.mark.parametrize(("rows", "blocks", "width"), [(8, 8, 128), (64, 8, 128), (20, 4, 40), (33, 8, 64), (1, 2, 16)])
def test_every_patch_has_one_block(rows: int, blocks: int, width: int) -> None:
    """Blocks have equal numbers of patches but for one; and the rows of a block's patches are those that it is sent."""
    patches = Patches(rows, blocks)
    spans = -(-width // 16)
    owned = [
        (patches.number(octet * 8, span) % blocks, octet) for span in range(spans) for octet in range(patches.octets)
    ]
    counts = [sum(rank == own for own, _ in owned) for rank in range(blocks)]
    assert counts == [patches.count(spans, rank) for rank in range(blocks)]
    assert max(counts) == patches.most(width) and max(counts) - min(counts) <= 1
    assert all(octet % patches.stride == rank % patches.stride for rank, octet in owned)


@pytest.mark.parametrize("variant", ["full", "window"])
def test_clusters_need_a_tile_for_each_block(variant: str) -> None:
    few = attention_of(variant, queries=1, keys=200 if variant == "full" else 4096, window=100)
    with pytest.raises(Unfit, match="a cluster of 8 blocks shares"):
        kernel_of(few, pieces(132, cluster=8))


@pytest.mark.parametrize(
    ("kv_heads", "batch", "keys", "queries", "expected"),
    [
        (8, 1, 1024, 1, (64, 8)),
        (8, 1, 4096, 8, (128, 8)),
        (8, 4, 1024, 8, (128, 2)),
        (8, 8, 512, 1, (64, 2)),
        (1, 1, 16384, 8, (128, 1)),
        (8, 1, 65536, 1, (128, 1)),
    ],
)
def test_choices_are_those_that_took_least(
    kv_heads: int, batch: int, keys: int, queries: int, expected: tuple[int, int]
) -> None:
    """The width of tiles, and blocks of a cluster, of eight heads for each of keys and values (measured)."""
    shape = {"heads": 8 * kv_heads, "kv_heads": kv_heads, "keys": keys, "queries": queries, "head_dim": 128}
    config = kernel_of(attention_of("causal" if queries > 1 else "full", batch=batch, **shape)).config
    assert isinstance(config, PiecesConfig) and (config.columns, config.cluster) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [(pieces(2), 1), (pieces(4), 2), (pieces(6), None), (pieces(5), None), (pieces(132, cluster=4), 4)],
)
def test_blocks_of_one_item_each(config: PiecesConfig, expected: int | None) -> None:
    """Of two items of eight tiles: as many blocks for each, where that gives them as many tiles."""
    program = tile_program(attention_of("full", heads=2, queries=3, keys=500))
    assert blocks_of_item(config, program) == expected


def test_products_of_one_query_are_on_tensor_cores() -> None:
    """What is estimated is what memory takes: eight heads share keys, whose products no CUDA core computes."""
    shape = {"heads": 64, "kv_heads": 8, "queries": 1, "batch": 16, "keys": 32768, "head_dim": 128}
    kernel = kernel_of(attention_of("full", **shape))
    memory = kernel.work.bytes / H200.memory_bytes_per_second
    assert memory < kernel.seconds < 1.25 * memory


def test_features_that_fill_no_box_are_read_as_they_are() -> None:
    shape = {"heads": 40, "queries": 1, "batch": 4, "keys": 3000, "head_dim": 80}
    kernel = kernel_of(attention_of("full", **shape))
    assert kernel.seconds < 1.4 * kernel.work.bytes / H200.memory_bytes_per_second


@emulated
@pytest.mark.parametrize(("rows", "depth"), [(128, 32), (67, 512)])
def test_two_products_with_a_map_between_are_folded_by_a_cluster(rows: int, depth: int) -> None:
    """The positions of the fold are the hidden columns: no one of them goes to memory, and the merge is its sum."""
    case = workloads.get("chain").with_shape(m=rows, n=256, k=depth, l=64)
    inputs: list[Any] = case.inputs(np.random.default_rng(0), "normal")
    assert_right(case.build(), inputs, pieces(8, cluster=4), length=256)


@pytest.mark.parametrize(("hidden", "depth", "columns"), [(512, 32, 256), (256, 512, 64)], ids=["G1", "G2"])
def test_a_small_chain_is_one_launch(hidden: int, depth: int, columns: int) -> None:
    func = workloads.get("chain").with_shape(m=128, n=hidden, k=depth, l=columns).build()
    told = tvm_cascade.explain(func, target={"kind": "cuda", "arch": "sm_90a"}).functions[0].lowering
    assert told.startswith("the tensor-core kernel `stream`, PiecesConfig(") and "cluster=8" in told


def test_short_axes_are_for_clusters_and_long_ones_of_many_rows_for_the_grid() -> None:
    short, long = (kernel_of(workloads.get("DC_GQA").with_length(n).build()).config for n in (512, 1 << 20))
    assert short.cluster > 1 and long.cluster == 1


RAGGED = Paged(queries=2, heads=4, kv_heads=2, batch=3, keys=400, causal=True)


@emulated
@pytest.mark.parametrize("config", [pieces(2), pieces(7), pieces(4, cluster=2)], ids=["whole", "parts", "clusters"])
def test_keys_that_are_there_are_copied_before_the_wait(config: PiecesConfig) -> None:
    """Cached keys and values: those who copy do not wait, consumers and fix-ups do, where they also read queries."""
    case = attention_case("causal", heads=4, kv_heads=2, queries=3, keys=200)
    kernel = kernel_of(case.build(), config)
    query, *others, _ = kernel.program.stream.program.params
    assert kernel.skeleton.may_begin_early(kernel.program, others)
    early = replace(kernel, launch=Launch(given=True))
    inputs: list[Any] = case.inputs(np.random.default_rng(0), "normal")
    (got,) = emulate(early.func, inputs)
    (exact,), (usual,) = (evaluate(case.build(), inputs, rounding=rounded).values() for rounded in (False, True))
    assert check(got, exact, usual, length=200, dtype=str(got.dtype)).ok
    assert "griddepcontrol_wait();" in text_of(early) and "griddepcontrol" not in text_of(kernel)
    assert not kernel.skeleton.may_begin_early(kernel.program, [query])


def test_a_mask_that_is_computed_is_waited_for() -> None:
    kernel = kernel_of(attention_case("mask", queries=3, keys=300).build(), pieces(2))
    tensors = {param.name: param for param in kernel.program.stream.program.params}
    assert kernel.skeleton.may_begin_early(kernel.program, list(tensors.values()))
    assert not kernel.skeleton.may_begin_early(kernel.program, [tensors["k"], tensors["v"]])


@emulated
@pytest.mark.parametrize(
    ("blocks", "lengths"),
    slow_but(
        [(2, (64, 64, 64)), (5, (400, 77, 5)), (13, (2, 400, 130))],
        product([2, 5, 13], [(400, 77, 5), (2, 400, 130), (64, 64, 64)]),
    ),
)
def test_sequences_of_different_lengths(lengths: tuple[int, ...], blocks: int) -> None:
    """Paged, with the last query at the last key; shares of whole sequences, of parts of them, and of none."""
    assert_right(RAGGED.func(), RAGGED.inputs(list(lengths)), pieces(blocks), length=RAGGED.keys)


@emulated
def test_an_empty_sequence() -> None:
    paged = replace(RAGGED, causal=False)
    assert_right(paged.func(), paged.inputs([0, 130, 0]), pieces(5), length=paged.keys)


FOLDS = ["log_sum_exp", "entropy", "variance", "sigmoid", "centred", "two_values"]


def assert_fold_right(name: str, config: PiecesConfig, keys: Any = folds.KEYS) -> None:
    """A fold of three rows, whose program is compiled for a number of keys that may be a variable."""
    fold, dtype = getattr(folds, name), "bfloat16" if name in ("entropy", "centred") else "float16"
    func, rounded = (folds.program(fold, dtype, queries=3, rounded=rounds) for rounds in (False, True))
    rng, stored = np.random.default_rng(0), np.dtype(getattr(ml_dtypes, dtype, dtype))
    inputs = [rng.standard_normal([int(n) for n in param.ty.shape]).astype(stored) for param in signature(func).inputs]
    compiled = folds.program(fold, dtype, queries=3, keys=keys)
    assert_right(func, inputs, config, length=folds.KEYS, unfused=rounded, compiled=compiled)


@emulated
@pytest.mark.parametrize("name", slow_but(["variance", "sigmoid", "centred", "two_values"], FOLDS))
def test_folds_that_nobody_wrote_kernels_for(name: str) -> None:
    assert_fold_right(name, pieces(3))


@emulated
def test_lengths_known_at_launch_alone() -> None:
    """The shares are computed by the kernel."""
    assert_fold_right("log_sum_exp", pieces(3), te.var("n", "int32"))
