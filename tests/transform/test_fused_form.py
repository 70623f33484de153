"""The form of what the pass leaves: one loop over tiles, temporaries of one tile, and everything else as it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.script import tirx as T

from corpus import workloads
from tvm_cascade.analysis.statements import ROLE
from tvm_cascade.cli.run import temporary_bytes
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.roles import LOOP_ROLES
from tvm_cascade.symbolic.printing import formula
from tvm_cascade.transform.fuse_cascaded_reductions import FuseCascadedReductions
from tvm_cascade.transform.fuse_function import fuse_function
from tvm_cascade.transform.handoff import FUSED, SCHEDULE_RULE, carried_folds
from tvm_cascade.transform.nest import GUARD

from ..analysis.programs import Attention, array, each, program, softmax_stages, softmax_stats, variance
from ..golden.compare import assert_golden
from ..tiers import slow_but
from .running import assert_close, build, run

NAMES = workloads.names(source="tvm-cascade")
EXTENTS = {
    "batch": 1, "heads": 2, "kv_heads": 1, "queries": 5, "keys": 32, "head_dim": 8, "window": 9, "rows": 3,
    "length": 32, "hidden": 32, "columns": 6, "tokens": 3, "latent_dim": 16, "rope_dim": 4,
}  # fmt: skip
# What each workload reads along its cascade axis.
ALONG_THE_AXIS = {
    "attention": {"k", "v", "mask"}, "mla": {"kv"}, "softmax": {"x", "logits", "p_logits", "q_logits"},
    "moments": {"x", "y", "mass", "position"}, "normalisation": {"x", "x1", "x2", "gain", "weight"},
}  # fmt: skip
# softmax gives back an array along the axis, and cross_entropy reads one element of each row afterwards.
READS_AGAIN = {"softmax", "cross_entropy"}


def sized(name: str, length: int = 32) -> tirx.PrimFunc:
    workload = workloads.get(name)
    shape = {extent: EXTENTS[extent] for extent in workload.shape}
    return workload.with_shape(**shape).with_length(length).build()


def fused(func: tirx.PrimFunc, **options: object) -> tirx.PrimFunc:
    outcome = fuse_function(func, FuseOptions(force=True, **options))  # type: ignore[arg-type]
    assert outcome.fused, [str(d.reason) for d in outcome.decisions]
    return outcome.func


@cache
def fused_workload(name: str, length: int = 32, segments: int = 1) -> tirx.PrimFunc:
    return fused(sized(name, length), tile=8, segments=segments)


def nests(func: tirx.PrimFunc) -> list[tirx.Stmt]:
    body = func.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def blocks(statement: tirx.Stmt) -> list[s_tir.SBlock]:
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(statement, (s_tir.SBlock, found.append), order="pre")
    return found


def loaded(statement: tirx.Stmt) -> set[str]:
    names: set[str] = set()
    tvm_ffi.structural_walk(statement, (ir.TensorLoad, lambda load: names.add(load.source.name)))
    return names


def tile_loops(func: tirx.PrimFunc) -> list[tirx.For]:
    """The nests that hold more than one block: the fused loops."""
    return [nest for nest in nests(func) if len(blocks(nest)) > 1]


@pytest.mark.parametrize("name", NAMES)
def test_there_is_one_loop_over_the_cascade_axis_and_everything_along_it_is_read_there(name: str) -> None:
    func = fused_workload(name)
    (loop,) = tile_loops(func)
    assert isinstance(loop, tirx.For) and int(loop.extent) == 4
    assert isinstance(loop.body, tirx.SeqStmt), "the tile loop holds its blocks as siblings"
    along = ALONG_THE_AXIS[workloads.get(name).family] & {param.name for param in func.params}
    assert along & loaded(loop) == along
    if name not in READS_AGAIN:  # nor do guards, but of rows that fail
        others = [nest for nest in nests(func) if not nest.same_as(loop)]
        assert not any(loaded(nest) & along for nest in others if blocks(nest)[0].annotations.get(ROLE) != GUARD)


@pytest.mark.parametrize("name", NAMES)
def test_every_block_of_the_loop_says_its_role_and_walks_its_own_nest(name: str) -> None:
    (loop,) = tile_loops(fused_workload(name))
    for nest in loop.body.seq:
        (block,) = blocks(nest)
        assert block.annotations[ROLE] in ("producer", "element", "lanes", "partial", "reference", "update")
        if block.annotations[ROLE] in ("update", "reference"):
            assert any(iv.iter_type == tirx.IterVar.CommReduce for iv in block.iter_vars)
            assert block.init is not None


SEGMENTED = [*((name, 2) for name in NAMES), ("attention", 1), ("variance", 1), ("softmax", 1)]
QUICK = [one for one in SEGMENTED if one[0] in ("attention", "layernorm_gemm", "mla", "kl_divergence", "variance")]
"""A product inside, one behind, a state that is shared, three sums, and moments."""


@pytest.mark.parametrize(("name", "segments"), slow_but(QUICK, SEGMENTED))
def test_temporaries_do_not_grow_with_the_cascade_axis(name: str, segments: int) -> None:
    short, long = (temporary_bytes(fused_workload(name, length, segments)) for length in (32, 96))
    assert short == long > 0


def test_temporaries_of_the_unfused_program_do_grow() -> None:
    assert temporary_bytes(sized("attention", 96)) > 2 * temporary_bytes(sized("attention", 32))


def test_bytes_of_temporaries_are_those_of_the_buffers_allocated() -> None:
    attention = Attention()
    func = attention.program(attention.out())
    shapes = {one.name: tuple(map(int, one.ty.shape)) for one in func.body.block.alloc_buffers}
    assert shapes["scores"] == (2, 6, 37)
    assert temporary_bytes(func) == 4 * sum(map(math.prod, shapes.values()))


@pytest.mark.parametrize("name", NAMES)
def test_the_fused_function_is_well_formed_and_the_pass_leaves_it_alone_from_then_on(name: str) -> None:
    once = tvm.IRModule({"main": fused_workload(name, segments=2)})
    assert s_tir.analysis.verify_well_formed(once["main"])
    twice = FuseCascadedReductions(tile=4, force=True)(once)
    assert twice["main"].same_as(once["main"])


@pytest.mark.parametrize("name", ["attention", "variance", "softmax", "inertia"])
def test_the_module_that_goes_in_comes_back_unchanged(name: str) -> None:
    module = tvm.IRModule({"main": sized(name)})
    before = module.script()
    FuseCascadedReductions(tile=8, force=True)(module)
    assert module.script() == before
    assert tvm_ffi.structural_equal(module["main"], sized(name))


def test_other_functions_of_the_module_are_the_same_objects() -> None:
    @T.prim_func(private=True)
    def plain(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(8):
            b[i] = a[i] + T.float32(1)

    x = array("x")
    single = program(x, each("doubled", lambda i, j: x[i, j] * 2)).with_attr("global_symbol", "single")
    module = tvm.IRModule({"main": softmax_stats(), "plain": plain, "single": single})
    after = FuseCascadedReductions(tile=8, force=True)(module)
    assert not after["main"].same_as(module["main"])
    assert after["plain"].same_as(module["plain"])
    assert after["single"].same_as(module["single"])


def test_parameters_attributes_and_names_are_kept() -> None:
    func = softmax_stats().with_attr("mine", "kept")
    after = fused(func, tile=8)
    assert [param.name for param in after.params] == [param.name for param in func.params]
    assert all(a.same_as(b) for a, b in zip(after.params, func.params, strict=True))
    for attribute, value in func.attrs.items():
        assert after.attrs[attribute] == value


def test_a_fused_function_carries_its_folds() -> None:
    outcome = fuse_function(softmax_stats(), FuseOptions(tile=8, force=True))
    (carried,), (decision,) = carried_folds(outcome.func), outcome.decisions
    assert carried.results == ("row_max", "row_sum")
    assert decision.candidate.group is not None
    assert carried.formulas == tuple(
        (section, str(left), formula(right)) for section, left, right in decision.candidate.group.fold.formulas()
    )
    assert ("reference (running)", "c_row_max'", "row_max_0") in carried.formulas
    assert carried.latex.count(r"\text{") == len(carried.formulas) and r"\Delta" in carried.latex


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no formulas": lambda fold: fold.pop("formulas"),
    "no results": lambda fold: fold.pop("results"),
    "no LaTeX": lambda fold: fold.pop("latex"),
    "a formula without a side": lambda fold: fold.update(formulas=[["finish", "row_sum"]]),
    "a number for a text": lambda fold: fold.update(formulas=[["finish", "row_sum", 1]]),
    "nothing at all": lambda fold: fold.clear(),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_attribute_that_tells_of_no_fold_is_bad_input(edit: Callable[[dict[str, Any]], object]) -> None:
    func = fused(softmax_stats(), tile=8)
    folds = [dict(fold) for fold in func.attrs[FUSED]]
    edit(folds[0])
    with pytest.raises(InputError, match="results and formulas"):
        carried_folds(func.with_attr(FUSED, folds))


def test_the_references_that_it_carries_are_those_of_its_blocks() -> None:
    func = fused_workload("attention")
    (carried,) = carried_folds(func)
    moved = [left.replace("'", "") for section, left, _ in carried.formulas if section.startswith("reference")]
    emitted = {role: [b.name_hint for b in blocks(func.body) if b.annotations.get(ROLE) == role] for role in LOOP_ROLES}
    assert emitted["element"] == ["weights"]
    assert moved == [name for name in emitted["reference"] if not name.startswith("scale_")] != []


def test_one_block_asks_for_our_schedule_and_every_other_for_none() -> None:
    func = fused_workload("attention")
    rules = [str(block.annotations.get("schedule_rule")) for block in blocks(func.body)]
    assert rules.count(SCHEDULE_RULE) == 1
    assert set(rules) == {SCHEDULE_RULE, "None"}


def test_options_come_from_the_environment_where_the_call_does_not_give_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CASCADE_TILE", "5")
    monkeypatch.setenv("TVM_CASCADE_FORCE", "1")
    module = tvm.IRModule({"main": softmax_stats(40)})
    (loop,) = tile_loops(FuseCascadedReductions()(module)["main"])
    assert int(loop.extent) == 8
    (loop,) = tile_loops(FuseCascadedReductions(tile=10)(module)["main"])
    assert int(loop.extent) == 4


@pytest.mark.parametrize(
    ("tile", "segments", "loops"),
    [(8, 1, (5,)), (8, 2, (2, 3)), (8, 5, (5, 1)), (8, 99, (5, 1)), (37, 1, (1,)), (100, 4, (1,)), (1, 3, (3, 13))],
)
def test_the_axis_is_cut_into_tiles_and_segments_as_asked(tile: int, segments: int, loops: tuple[int, ...]) -> None:
    func = fused(softmax_stats(37), tile=tile, segments=segments)
    found: list[tirx.Stmt] = tile_loops(func)
    extents = []
    inner = found[0]
    while isinstance(inner, tirx.For):
        extents.append(int(inner.extent))
        inner = inner.body
    assert tuple(extents) == loops


def test_a_product_behind_a_norm_multiplies_two_operands_whose_sums_take_no_lanes() -> None:
    func = fused(sized("rmsnorm_gemm"))
    readers = [block for block in blocks(tile_loops(func)[0]) if "weight" in loaded(block.body)]
    assert [block.annotations[ROLE] for block in readers] == ["partial"]
    scaled = loaded(readers[0].body) - {"weight", str(readers[0].writes[0].source.name)}
    (temporary,) = [block for block in blocks(tile_loops(func)[0]) if {b.source.name for b in block.writes} == scaled]
    assert temporary.annotations[ROLE] == "element" and loaded(temporary.body) == {"x", "gain"}


@pytest.mark.parametrize(("columns", "tile"), [(64, 512), (512, 256), (1024, 128), (4096, 128)])
def test_tiles_are_short_where_a_position_of_an_operand_is_wide(columns: int, tile: int) -> None:
    func = fused(workloads.get("rmsnorm_gemm").with_shape(tokens=4, hidden=2048, columns=columns).build())
    assert int(tile_loops(func)[0].extent) == 2048 // tile


def test_points_that_lie_apart_are_gathered_once_for_all_that_reads_them() -> None:
    func = fused(sized("inertia"), tile=8)
    readers = [block for block in blocks(tile_loops(func)[0]) if "position" in loaded(block.body)]
    assert [block.annotations[ROLE] for block in readers] == ["element"] * 3


@pytest.mark.parametrize(("lanes", "vector"), [(32, [8]), (16, [8]), (8, []), (6, [2])])
def test_lanes_of_a_tile_are_combined_as_vectors_until_few_are_left(lanes: int, vector: list[int]) -> None:
    func = fused(softmax_stats(96), tile=48 if lanes == 6 else 32, lanes=lanes)
    narrow = [b for b in blocks(tile_loops(func)[0]) if b.name_hint.endswith("_vector")]
    assert {int(b.iter_vars[-2].dom.extent) for b in narrow} == set(vector)
    given = [np.random.default_rng(0).standard_normal((4, 96), dtype=np.float32)]
    unfused = softmax_stats(96)
    assert_close(run(build(func), func, given), unfused, given, run(build(unfused), unfused, given), 96)


FORMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "softmax_stats": lambda: fused(softmax_stats(rows=2), tile=16, lanes=1),
    "variance_in_two_segments": lambda: fused(variance(32), tile=8, segments=2, lanes=1),
}


def without_folds(func: tirx.PrimFunc) -> tirx.PrimFunc:
    def plain(block: s_tir.SBlock, mutator: object) -> s_tir.SBlock:
        block = mutator.default_mutate(block)  # type: ignore[attr-defined]
        fields = (block.iter_vars, block.reads, block.writes, block.name_hint, block.body, block.init)
        notes = {name: note for name, note in block.annotations.items() if name != FUSED}
        return s_tir.SBlock(*fields, block.alloc_buffers, block.match_buffers, notes)

    return func.with_body(tvm_ffi.structural_mutate(func.body, (s_tir.SBlock, plain))).without_attr(FUSED)


@pytest.mark.parametrize("name", FORMS)
def test_the_fused_ir_is_the_approved_one(name: str) -> None:
    assert_golden(f"ir_{name}", without_folds(FORMS[name]()).script())  # the folds are goldens of their own


def test_two_cascades_in_one_function_are_two_loops() -> None:
    x, y = array("x"), array("y")
    func = program(x, y, *softmax_stages(x, suffix="_x"), *softmax_stages(y, suffix="_y"))
    after = fused(func, tile=8)
    assert len(tile_loops(after)) == 2
    given = [np.random.default_rng(k).standard_normal((4, 37), dtype=np.float32) for k in (0, 1)]
    baseline = run(build(func), func, given)
    assert_close(run(build(after), after, given), func, given, baseline, 37)
