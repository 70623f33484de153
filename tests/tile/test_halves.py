"""Wide states: two warp groups share rows, each with half of the columns of every product."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import ir, te, tirx

import tvm_cascade
from corpus import workloads
from corpus.programs.caches import CONTIGUOUS, Store, latent_attention, latent_attention_over
from corpus.workload import Workload
from tvm_cascade.devices.cards import H200
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.attention.pieces import most_pieces
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Setting, build_kernel
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig
from tvm_cascade.tile.skeletons.stream.skeleton import HalvesSkeleton

from ..tiers import quick_but, slow_but
from .checked import assert_attention_right, assert_right, attention_case, kernel_of
from .emulator.run import compiler, emulate
from .test_compiled_kernels import instructions_of, text_of
from .test_tile_program import group_of

TARGET = {"kind": "cuda", "arch": "sm_90a"}
SKELETON = HalvesSkeleton()
COLUMNS = 64

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def latent_case(heads: int = 64, keys: int = 200, batch: int = 1, width: int = 512, dtype: str = "float16") -> Workload:
    """Latent attention with a rope part of one box."""
    shape = {"batch": batch, "heads": heads, "keys": keys, "latent_dim": width, "rope_dim": 64}
    return Workload("latent", "mla", "tests", shape, dtype, "float32", latent_attention, ("keys",))


def cut(case: Workload, blocks: int, spread: int = 1, optimistic: bool = True) -> HalvesConfig:
    """A configuration of so many blocks."""
    shape = case.shape
    items, tiles = -(-shape["heads"] // 64) * shape["batch"] * spread, -(-shape["keys"] // COLUMNS)
    pieces = most_pieces(items, tiles, blocks)
    return HalvesConfig(
        columns=COLUMNS, stages=2, blocks=blocks, spread=spread, most_pieces=pieces, optimistic=optimistic
    )


def clustered(case: Workload, blocks: int) -> HalvesConfig:
    """A configuration of clusters of so many blocks, one for each tile of rows."""
    items = -(-case.shape["heads"] // 64) * case.shape["batch"]
    return HalvesConfig(columns=COLUMNS, stages=2, blocks=items * blocks, cluster=blocks, most_pieces=blocks)


NARROW = latent_case(width=128)
MIDDLE = latent_case(70, 200, 1, 256)

CASES: dict[str, tuple[Workload, HalvesConfig | None]] = {
    "one short tile": (latent_case(keys=48), None),
    "few heads, a ragged end": (latent_case(heads=16, keys=100, dtype="bfloat16"), None),
    "row tiles and requests for one block in turn": (latent_case(70, 130, 2, 128), cut(latent_case(70, 130, 2), 1)),
    "pieces that divide the axis": (latent_case(64, 256, 2, 128), cut(latent_case(64, 256, 2), 4)),
    "pieces that do not": (latent_case(70, 333, 1, 128), cut(latent_case(70, 333), 7)),
    "columns over four blocks": (latent_case(70, 150), cut(latent_case(70, 150), 8, spread=4)),
    "clusters of two blocks": (MIDDLE, clustered(MIDDLE, 2)),
    "an odd number of boxes": (latent_case(64, 100, 1, 320), None),
    "a reference that moves with every tile": (NARROW, cut(NARROW, 1, optimistic=False)),
}


@emulated
@pytest.mark.parametrize("name", quick_but(["one short tile", "pieces that divide the axis"], CASES))
def test_latent_attention(name: str) -> None:
    case, config = CASES[name]
    assert_attention_right(case, config, skeleton=SKELETON)


APART = ["late_spike", "large_offset", "rising", "ties", "neg_inf_first_segment"]


@emulated
@pytest.mark.parametrize(
    ("blocks", "kind"),
    # Of a block alone, too: two of the kinds whose tiles are folded again.
    slow_but([(1, "late_spike"), (1, "rising"), *((3, kind) for kind in APART)], product([1, 3], APART)),
)
def test_states_far_apart(kind: str, blocks: int) -> None:
    """Tiles whose weights grow too large are folded again, and the other group moves its half with them."""
    assert_attention_right(NARROW, cut(NARROW, blocks), kind, skeleton=SKELETON)


@emulated
def test_clusters_of_four_blocks() -> None:
    case = latent_case(16, 250)
    assert_attention_right(case, clustered(case, 4), skeleton=SKELETON)


@emulated
@pytest.mark.parametrize("kind", ["late_spike", "neg_inf_first_segment"])
def test_states_of_a_cluster_far_apart(kind: str) -> None:
    """References of the blocks differ, or one has folded nothing but -inf."""
    case = latent_case(64, 200, 1, 256)
    assert_attention_right(case, clustered(case, 2), kind, skeleton=SKELETON)


def paged_case(page: int, heads: int = 64, keys: int = 200, batch: int = 2, width: int = 128) -> Workload:
    """Latent attention over pages, each request of its own length."""
    extents = {"batch": batch, "heads": heads, "keys": keys, "latent_dim": width, "rope_dim": 64}
    return workloads.get("mla_paged").with_shape(**extents, shortest=20, page=page)


@emulated
@pytest.mark.parametrize(
    ("page", "blocks"), slow_but([(1, 2), (64, 1), (128, 4)], [(1, 2), (16, 3), (64, 1), (128, 4)])
)
def test_latents_in_pages(page: int, blocks: int) -> None:
    """Tiles of 64 positions in pages of 1 to 128; lengths of a tensor."""
    case = paged_case(page)
    assert_attention_right(case, cut(case, blocks), skeleton=SKELETON)


SHORT = [((200, 20, 64, 129), 7), ((20, 20, 20, 20), 5)]


@emulated
@pytest.mark.parametrize(("lengths", "blocks"), slow_but(SHORT, [*SHORT, ((200,) * 4, 16)]))
def test_pieces_by_length(lengths: tuple[int, ...], blocks: int) -> None:
    """Longer requests have more blocks of one piece each; some blocks have none."""
    case = paged_case(16, batch=len(lengths))
    inputs = case.inputs(np.random.default_rng(0), "normal")
    (place,) = (k for k, array in enumerate(inputs) if array.ndim == 1 and array.shape == (len(lengths),))
    inputs[place] = np.array(lengths, inputs[place].dtype)
    config = dataclasses.replace(cut(case, blocks), by_length=True, most_pieces=4)
    assert_right(case.build(), inputs, config, length=200, skeleton=SKELETON)


@emulated
def test_clusters_of_lengths_of_one_piece() -> None:
    """A request that ends in the first piece leaves nothing to the second."""
    case = paged_case(16, keys=200, width=256)
    assert_attention_right(case, clustered(case, 2), skeleton=SKELETON)


@emulated
def test_long_rows_of_small_pages_are_copied_whole() -> None:
    """Rows of 1152 bytes, more than a warp copies at a time."""
    case = paged_case(1, keys=80, batch=1, width=512)
    assert_attention_right(case, cut(case, 1), skeleton=SKELETON)


Logit = Callable[[ir.Expr, ir.Expr, ir.Expr], ir.Expr]


def latent_program(logit: Logit, inputs: tuple[te.Tensor, ...], heads: int = 64, keys: int = 200) -> tirx.PrimFunc:
    """Softmax of logit(score, head, position) over the rows of a cache, whose first 128 features are weighted."""
    q, kv = (te.placeholder((rows, 192), "float16", name=name) for name, rows in (("q", heads), ("kv", keys)))
    d, j, k, n = (te.reduce_axis((0, extent), name) for extent, name in ((192, "d"), *((keys, x) for x in "jkn")))

    def wide(value: ir.Expr) -> ir.Expr:
        return value.astype("float32")

    score = te.compute((heads, keys), lambda h, x: te.sum(wide(q[h, d]) * wide(kv[x, d]), axis=d), name="score")
    logits = te.compute((heads, keys), lambda h, x: logit(score[h, x], h, x), name="logits")
    largest = te.compute((heads,), lambda h: te.max(logits[h, j], axis=j), name="largest")
    weights = te.compute((heads, keys), lambda h, x: te.exp(logits[h, x] - largest[h]), name="weights")
    total = te.compute((heads,), lambda h: te.sum(weights[h, k], axis=k), name="total")
    mixed = te.compute((heads, 128), lambda h, f: te.sum(weights[h, n] / total[h] * wide(kv[n, f]), axis=n), name="mix")
    out = te.compute((heads, 128), lambda h, f: mixed[h, f].astype("float16"), name="out")
    lse = te.compute((heads,), lambda h: largest[h] + te.log(total[h]), name="lse")
    return te.create_prim_func([q, kv, *inputs, out, lse])


def given(*more: np.ndarray, keys: int = 200) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((rows, 192)).astype("float16") for rows in (64, keys)] + list(more)


@emulated
@pytest.mark.parametrize("blocks", [1, 4])
def test_masked_heads_and_a_second_output(blocks: int) -> None:
    """Some heads keep positions of the first tile alone, others of the last; the log of the sum is stored too."""
    kept = te.placeholder((64, 200), "bool", name="kept")
    lowest = tirx.const(float("-inf"), "float32")
    func = latent_program(lambda s, h, x: te.if_then_else(kept[h, x], s * 0.07, lowest), (kept,))
    mask = np.ones((64, 200), "bool")
    mask[0::3, 60:], mask[1::3, :195] = False, False
    assert_right(func, given(mask), cut(latent_case(), blocks), length=200, skeleton=SKELETON)


@emulated
def test_scores_mapped_by_a_bias_of_the_position() -> None:
    func = latent_program(lambda s, h, x: te.tanh(s * 0.01) * 30.0 - (199 - x).astype("float32") * 0.01, ())
    assert_right(func, given(), cut(latent_case(), 2), length=200, skeleton=SKELETON)


@emulated
def test_reruns_are_equal_bit_by_bit_whoever_arrives_last() -> None:
    """The emulator runs blocks forward and backward, and refuses results that differ; two launches are alike too."""
    kernel = kernel_of(NARROW.build(), cut(NARROW, 4), skeleton=SKELETON)
    inputs = list(NARROW.inputs(np.random.default_rng(1)))
    one, other = (emulate(kernel.func, inputs) for _ in range(2))
    np.testing.assert_array_equal(one[0], other[0])


def lowering(case: Workload) -> str:
    return tvm_cascade.explain(case.build(), target=TARGET).functions[0].lowering


def test_wide_latents_run_on_tensor_cores() -> None:
    for heads in (16, 32, 64, 128):
        told = lowering(latent_case(heads, 4096, 32))
        assert told.startswith("the tensor-core kernel `stream halves`"), told
    assert "cluster=2" in lowering(latent_case(128, 4096, 32))
    assert "cluster=1" in lowering(latent_case(128, 4096, 16)), "32 clusters of four blocks do not run at once"


def test_pieces_follow_lengths_where_items_have_two_blocks_or_more() -> None:
    few, many = (workloads.get("mla_paged").with_shape(batch=batch) for batch in (32, 64))
    assert "by_length=True" in lowering(few)
    assert "by_length=False" in lowering(many)


def test_few_requests_spread_the_columns() -> None:
    config = build_kernel(SKELETON, *group_of(latent_case(128, 1024).build()), "main", Setting(H200)).config
    assert config.spread > 1 and config.blocks > 2


def refusal(case: Workload) -> str:
    setting = Setting(H200, FuseOptions())
    with pytest.raises(Unfit) as caught:
        build_kernel(SKELETON, *group_of(case.build()), "main", setting)
    return str(caught.value)


def test_values_of_another_tensor_are_refused() -> None:
    assert refusal(attention_case("full")) == "v[h, j, d] is not the tile of k[h, j, v_d]"


def test_rows_of_8_bits_are_refused() -> None:
    """Tiles are multiplied as copies bring them: no warp converts them on the way."""

    def store(*given: Any) -> Store:
        *others, dtype, features = given
        stored = CONTIGUOUS.store(*others, "float8_e4m3fn", features)
        return dataclasses.replace(stored, read=lambda *at: stored.read(*at).astype(dtype))

    program = partial(latent_attention_over, dataclasses.replace(CONTIGUOUS, store=store))
    told = refusal(dataclasses.replace(latent_case(), builder=program))
    assert told == "kv[b, j, v_d] is float8_e4m3fn, which no warps of these kernels convert"


def test_states_that_two_groups_cannot_hold_are_refused() -> None:
    assert "fits into registers and shared memory" in refusal(latent_case(width=1024))


@pytest.mark.parametrize(("width", "blocks"), [(128, 2), (256, 4)])
def test_shares_of_less_than_a_box_are_refused(width: int, blocks: int) -> None:
    case = latent_case(64, 512, 1, width)
    with pytest.raises(Unfit, match="cluster"):
        kernel_of(case.build(), clustered(case, blocks), skeleton=SKELETON)


COMPILED = {"a batch": (128, 4096, 32), "one request": (128, 2048, 1), "few heads": (16, 4096, 128)}


@pytest.mark.parametrize("name", slow_but(["one request"], COMPILED))
def test_a_kernel_compiles_without_spills(name: str, tmp_path: Path) -> None:
    heads, keys, batch = COMPILED[name]
    kernel = kernel_of(latent_case(heads, keys, batch).build(), skeleton=SKELETON)
    found = instructions_of(text_of(kernel), tmp_path)
    assert {"HGMMA", "UTMALDG", "USETMAXREG"} <= {instruction.split(".")[0] for instruction in found}
    of_scores = sum(count for instruction, count in found.items() if instruction.startswith("HGMMA.64x64x16"))
    assert found["R2UR"] < of_scores, "descriptors of scores are made in uniform registers: four moves each if not"


@emulated
def test_a_configuration_of_more_pieces_than_blocks_fill() -> None:
    """Every block has one tile."""
    case = latent_case(64, 150, 1, 128)
    assert_attention_right(case, dataclasses.replace(cut(case, 3)), skeleton=SKELETON)
