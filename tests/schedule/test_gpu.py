"""The GPU schedule without a GPU: the structure computes the right thing, and compiles to kernels as meant."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.script import tirx as T
from tvm_ffi import StructuralKey

from corpus import workloads
from corpus.workload import Workload
from tvm_cascade.analysis.statements import ROLE, read_nests
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.schedule.gpu import launch_serial
from tvm_cascade.transform.nest import OPAQUE

from ..analysis.programs import fold, maximum, program
from ..tiers import slow_but
from .gpu_programs import (
    NVCC,
    cuda_source,
    fused,
    kernels,
    ptxas_report,
    run_in_turn,
    scheduled,
)
from .test_shapes_of_functions import map_beside_two_scalars, nested_temporaries, scalars, truth_beside, two_fused_loops

ONE_OF_EACH = (
    "H1", "H7", "PF_ALIBI", "PF_GQA", "PF_SOFTCAP", "PF_WINDOWED", "attention_mask", "mla", "softmax", "softmax_stats",
    "cross_entropy", "entropy", "kl_divergence", "variance", "inertia", "covariance", "third_moment", "rmsnorm_gemm",
    "R4", "Q1", "sum_sum",
)  # fmt: skip
"""A workload of every program; the others differ in their extents alone."""

DIFFERENT = (
    "H1", "PF_WINDOWED", "attention_mask", "mla", "softmax", "cross_entropy", "variance", "inertia", "rmsnorm_gemm",
    "R4", "Q1", "sum_sum",
)  # fmt: skip
"""Of these, one of each structure: other maps of scores, and other sums over a row, are in the same nests."""


def _assert_right(func: tirx.PrimFunc, inputs: list[np.ndarray], results: dict[str, np.ndarray]) -> None:
    exact, rounded = oracle.evaluate(func, inputs), oracle.evaluate(func, inputs, rounding=True)
    for name, value in results.items():
        dtype = str(next(param for param in func.params if param.name == name).ty.dtype)
        length = max(int(extent) for param in func.params for extent in param.ty.shape)
        tolerance.assert_close(value, exact[name], rounded[name], length=length, dtype=dtype)


def small(name: str) -> Workload:
    """The small twin of a workload, which selects two at most."""
    return workloads.get(name).cpu.within({"topk": 2})


@pytest.mark.parametrize("name", slow_but(DIFFERENT, ONE_OF_EACH))
def test_every_program_compiles_and_its_structure_computes_it(name: str) -> None:
    job = small(name)
    func, inputs = job.build(), job.inputs(np.random.default_rng(0))
    lowered = scheduled(fused(func).func)
    assert kernels(cuda_source(lowered))
    _assert_right(func, inputs, run_in_turn(lowered, inputs))


TILINGS = {"ragged": {"tile": 7}, "segments": {"tile": 16, "segments": 3}, "lanes": {"lanes": 4}}


@pytest.mark.slow
def test_every_workload_compiles_to_cuda() -> None:
    """Those that are the same program at the size of a test, once."""
    seen = {StructuralKey(small(name).build()) for name in ONE_OF_EACH}
    for name in workloads.names():
        func = workloads.get(name).cpu.build()
        if StructuralKey(func) not in seen:
            seen.add(StructuralKey(func))
            assert kernels(cuda_source(scheduled(fused(func).func))), name


@pytest.mark.parametrize(
    ("name", "tiling"),
    slow_but(
        [("variance", "ragged"), ("attention", "segments"), ("attention", "lanes")],
        product(["attention", "variance"], TILINGS),
    ),
)
def test_any_tiling_computes_the_same(name: str, tiling: str) -> None:
    job = workloads.get(name).cpu.with_length(45)
    func, inputs = job.build(), job.inputs(np.random.default_rng(0))
    lowered = scheduled(fused(func, **TILINGS[tiling]).func)
    assert kernels(cuda_source(lowered))
    _assert_right(func, inputs, run_in_turn(lowered, inputs))


@pytest.mark.parametrize("name", ["attention", "softmax_stats", "inertia"])
def test_a_fused_function_whose_results_its_loop_finishes_is_one_kernel(name: str) -> None:
    source = cuda_source(scheduled(fused(workloads.get(name).cpu.build()).func))
    assert len(kernels(source)) == 1
    assert "__shfl_down_sync" in source or "inertia" in name  # rows are folded by whole warps


def test_a_product_goes_through_shared_memory_and_registers() -> None:
    func = workloads.get("attention").build()
    lowered = scheduled(fused(func).func)
    script = lowered.script()
    for buffer in ("q_shared", "k_shared", "v_shared", "scores_tile_shared_local"):
        assert buffer in script
    assert "out_local" in script  # the state stays in registers
    assert len(kernels(cuda_source(lowered))) == 1


def test_unfused_functions_have_a_kernel_for_every_nest() -> None:
    job = workloads.get("attention").cpu
    func, inputs = job.build(), job.inputs(np.random.default_rng(0))
    lowered = scheduled(func)
    assert len(kernels(cuda_source(lowered))) == len(read_nests(func))
    _assert_right(func, inputs, run_in_turn(lowered, inputs))


UNUSUAL = {f.__name__: f for f in (scalars, two_fused_loops, map_beside_two_scalars, truth_beside, nested_temporaries)}


@pytest.mark.parametrize(
    ("name", "segments"),
    slow_but(
        [
            ("scalars", 2),
            ("two_fused_loops", 1),
            ("map_beside_two_scalars", 2),
            ("truth_beside", 1),
            ("nested_temporaries", 2),
        ],
        product(UNUSUAL, (1, 2)),
    ),
)
def test_unusual_functions_compile_and_agree(name: str, segments: int) -> None:
    func = UNUSUAL[name]()
    rng = np.random.default_rng(0)
    lowered = scheduled(fused(func, tile=4, segments=segments).func)
    assert kernels(cuda_source(lowered))
    inputs = []
    for param in oracle.signature(func).inputs:
        values = rng.standard_normal([int(extent) for extent in param.ty.shape])
        inputs.append(values > 0 if param.ty.dtype == "bool" else values.astype(str(param.ty.dtype)))
    _assert_right(func, inputs, run_in_turn(lowered, inputs))


def softmax_sum(rows: int | tirx.Var, length: int | tirx.Var) -> tirx.PrimFunc:
    x = te.placeholder((rows, length), "float32", name="x")
    row_max = fold("row_max", lambda i, j: x[i, j], maximum, length, (rows,))
    return program(x, fold("row_sum", lambda i, j: te.exp(x[i, j] - row_max[i]), length=length, rows=(rows,)))


@pytest.mark.parametrize(("rows", "length"), [(3, 5), (70, 600)])
def test_symbolic_extents(rows: int, length: int) -> None:
    symbolic = softmax_sum(tirx.Var("m", "int32"), tirx.Var("n", "int32"))
    lowered = scheduled(fused(symbolic).func)
    assert len(kernels(cuda_source(lowered))) == 1
    x = np.random.default_rng(0).standard_normal((rows, length)).astype("float32")
    _assert_right(softmax_sum(rows, length), [x], run_in_turn(lowered, [x]))


def test_a_loop_that_has_no_room_on_a_block_runs_nest_by_nest() -> None:
    job = workloads.get("layernorm_gemm").cpu  # a state of columns alone, so that no row is common
    func, inputs = job.build(), job.inputs(np.random.default_rng(0))
    lowered = scheduled(fused(func, tile=64).func)
    assert len(kernels(cuda_source(lowered))) > 2
    _assert_right(func, inputs, run_in_turn(lowered, inputs))


def test_state_is_never_in_shared_memory() -> None:
    """TVM would put a barrier between its start and its update, within a condition on the thread."""
    for name in ("attention", "inertia", "rmsnorm_gemm"):
        script = scheduled(fused(workloads.get(name).cpu.build()).func).script()
        blocks = script.split("with T.sblock(")
        states = [b for b in blocks if f'"{ROLE}": "update"' in b or f'"{ROLE}": "reference"' in b]
        assert states
        assert not any("_shared" in line for b in states for line in b.splitlines() if "T.writes(" in line)


def test_a_nest_that_cannot_be_read_runs_on_one_thread() -> None:
    text = _MARKED.replace("ROLE", ROLE).replace("OPAQUE", OPAQUE)
    marked = tvm.script.from_source(text, extra_vars={"T": T, "range": range}, s_tir=True)
    lowered = scheduled(marked)
    assert lowered.script().count('thread="threadIdx.x"') == 1
    x_value = np.arange(8, dtype="float32")
    np.testing.assert_array_equal(run_in_turn(lowered, [x_value])["o"], np.cumsum(x_value))
    assert len(kernels(cuda_source(lowered))) == 1


_MARKED = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((8,), "float32"), o: T.Buffer((8,), "float32")):
    T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
    for i in range(8):
        with T.sblock("scan"):
            T.sblock_attr({"ROLE": "OPAQUE"})
            vi = T.axis.opaque(8, i)
            o[vi] = x[vi] + T.if_then_else(vi > 0, o[T.max(vi - 1, 0)], T.float32(0))
"""


def test_a_nest_that_launches_its_threads_is_left_as_it_is() -> None:
    """As those of TVM's own sorting do, by attributes and not by loops."""

    @T.prim_func(s_tir=True)
    def doubled(x: T.Buffer((64,), "int64"), y: T.Buffer((64,), "int64")):  # type: ignore[no-untyped-def, valid-type]
        with T.sblock("root"):
            T.reads()
            T.writes()
            with T.sblock("launches"):
                T.reads()
                T.writes()
                with T.launch_thread("threadIdx.x", 64) as thread:
                    y[thread] = x[thread] * T.int64(2)

    assert launch_serial(doubled).same_as(doubled)


@pytest.mark.skipif(NVCC is None, reason="nvcc is not on the path")
@pytest.mark.parametrize("name", slow_but(["H1"], ["H1", "PF_CAUSAL", "softmax_stats", "I3", "R5", "rmsnorm_gemm"]))
def test_kernels_of_full_size_keep_everything_in_registers(name: str, tmp_path: Path) -> None:
    report = ptxas_report(cuda_source(scheduled(fused(workloads.get(name).build()).func)), tmp_path)
    assert "Used " in report
    assert "0 bytes stack frame" in report
    assert report.count("bytes stack frame") == report.count(
        "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    )
