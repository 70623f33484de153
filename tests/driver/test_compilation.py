"""`tvm_cascade.compile`: what runs is right, says what was done to it, and leaves the caller's program alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax, s_tir, te, tirx
from tvm.target import Target

import tvm_cascade
from corpus import workloads
from corpus.workload import Workload
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.devices import host
from tvm_cascade.devices.host import host_target
from tvm_cascade.driver import compilation, gpu, llvm
from tvm_cascade.driver.arguments import of_any_address
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.schedule.vector_math import ULP_BOUNDS
from tvm_cascade.transform import fuse_function
from tvm_cascade.transform.cost import Estimate
from tvm_cascade.transform.handoff import is_fused

from ..tiers import slow_but

Array = NDArray[Any]


pytestmark = pytest.mark.usefixtures("optimised")


def outputs_of(compiled: Any, func: tirx.PrimFunc, inputs: list[Array]) -> dict[str, Array]:
    """What a compiled program writes into outputs that hold NaN beforehand."""
    tensors = [tvm.runtime.tensor(array) for array in inputs]
    written = {}
    for buffer in oracle.signature(func).outputs:
        shape = tuple(int(extent) for extent in buffer.ty.shape)
        written[buffer.name] = tvm.runtime.tensor(np.full(shape, np.nan).astype(str(buffer.ty.dtype)))
    compiled(*tensors, *written.values())
    return {name: tensor.numpy() for name, tensor in written.items()}


def assert_right(compiled: Any, workload: Workload, func: tirx.PrimFunc) -> None:
    """Every output within the tolerance that TVM's own code for the unfused program sets."""
    inputs = workload.inputs(np.random.default_rng(0))
    exact = oracle.evaluate(func, inputs)
    usual = outputs_of(tvm.compile(func, target=host_target())["main"], func, inputs)
    length = workload.shape[workload.length_extents[-1]]
    for name, actual in outputs_of(compiled, func, inputs).items():
        tolerance.assert_close(actual, exact[name], usual[name], length=length, dtype=actual.dtype.name)


def stats() -> Workload:
    return workloads.get("softmax_stats").cpu


def plain(name: str = "y") -> tirx.PrimFunc:
    """y = exp(x): nothing to fuse."""
    x = te.placeholder((32,), "float32", name="x")
    return te.create_prim_func([x, te.compute((32,), lambda i: te.exp(x[i]), name=name)])


@pytest.fixture(scope="module")
def compiled_stats() -> Compiled:
    return tvm_cascade.compile(stats().build())


FUSED = [
    (name, dtype)
    for name in ("attention", "attention_gqa", "softmax", "variance", "layernorm_gemm", "cross_entropy")
    for dtype in ("float32", "float16")
]
QUICK = [("attention", "float16"), ("attention_gqa", "float32"), ("softmax", "float16"), ("variance", "float32")]
QUICK += [("layernorm_gemm", "float32"), ("cross_entropy", "float16")]
"""Each program in one of both dtypes."""


@pytest.mark.parametrize(("name", "dtype"), slow_but(QUICK, FUSED))
def test_the_fused_program_is_right(name: str, dtype: str) -> None:
    workload = workloads.get(name).cpu.with_dtype(dtype)
    func = workload.build()
    compiled = tvm_cascade.compile(func, force=True)
    assert compiled.report.fused
    assert_right(compiled, workload, func)


@pytest.mark.parametrize("length", slow_but([1, 2, 131], [1, 2, 97, 128, 131]))
def test_it_is_right_at_lengths_that_no_tile_divides(length: int) -> None:
    workload = workloads.get("attention").cpu.with_length(length)
    func = workload.build()
    assert_right(tvm_cascade.compile(func, force=True, tile=32), workload, func)


def test_options_reach_the_pass_and_the_result_stays_right() -> None:
    workload = stats()
    func = workload.build()
    compiled = tvm_cascade.compile(func, tile=64, segments=4, force=True)
    assert_right(compiled, workload, func)
    assert not tvm_ffi.structural_equal(compiled.mod, tvm_cascade.compile(func, force=True).mod)


@pytest.mark.parametrize("name", ["attention", "softmax", "layernorm_gemm"])
def test_the_same_program_unfused_is_right_too(name: str) -> None:
    workload = workloads.get(name).cpu
    func = workload.build()
    compiled = compile_unfused(func)
    assert not compiled.report.groups
    assert_right(compiled, workload, func)


def test_a_declined_program_is_built_unfused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_function, "estimate", lambda *_: Estimate(2, 1, 0, 0, ns_before=1e6, ns_after=2e6))
    workload = stats()
    func = workload.build()
    compiled = tvm_cascade.compile(func)
    assert [group.verdict for group in compiled.report.groups] == [Verdict.DECLINED]
    assert_right(compiled, workload, func)


def test_what_was_done_is_told(compiled_stats: Compiled) -> None:
    assert compiled_stats.report.groups[0].buffers == ("row_max", "row_sum")
    assert compiled_stats.replaced_math == {"exp": ULP_BOUNDS["exp"]}
    assert compiled_stats.target.kind.name == "llvm"
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(compiled_stats.mod["main"].body, (tirx.For, lambda loop: loops.append(loop)))
    assert {tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED} <= {loop.kind for loop in loops}


def test_vector_math_can_be_switched_off() -> None:
    compiled = tvm_cascade.compile(plain(), vector_math=False)
    assert compiled.replaced_math == {}
    assert "T.exp(" in compiled.mod.script()


def test_without_a_schedule_the_fused_program_still_runs() -> None:
    workload = stats()
    func = workload.build()
    compiled = tvm_cascade.compile(func, schedule=False, force=True)
    assert compiled.replaced_math == {} and compiled.report.fused
    assert_right(compiled, workload, func)


@pytest.mark.parametrize("name", ["attention", "softmax", "Q7"])
def test_the_callers_module_is_not_changed(name: str) -> None:
    mod = tvm.IRModule({"main": workloads.get(name).cpu.build()})
    func, text, copy = mod["main"], mod.script(), tvm.ir.load_json(tvm.ir.save_json(mod))
    tvm_cascade.compile(mod)
    compile_unfused(mod)
    assert mod.script() == text and tvm_ffi.structural_equal(mod, copy) and mod["main"].same_as(func)


def test_every_function_of_a_module_is_built() -> None:
    workload = stats()
    mod = tvm.IRModule({"stats": workload.build(), "plain": plain()})
    compiled = tvm_cascade.compile(mod)
    assert_right(compiled["stats"], workload, workload.build())
    x = np.linspace(-1, 1, 32, dtype="float32")
    y = outputs_of(compiled["plain"], plain(), [x])["y"]
    tolerance.assert_close(y, np.exp(x.astype("f8")), length=1, dtype="float32")
    with pytest.raises(InputError, match="plain"):  # two functions, none of them `main`
        compiled()
    with pytest.raises(InputError, match="other"):
        compiled["other"]


@pytest.mark.parametrize("build", [tvm_cascade.compile, compile_unfused])
def test_more_elements_than_indices_count_are_told_with_the_way_out(build: Any) -> None:
    rows, columns = 1 << 20, 1 << 30
    x = te.placeholder((rows, columns), "float32", name="x")
    func = te.create_prim_func([x, te.compute((rows, columns), lambda i, j: x[i, j] + x[i, j], name="y")])
    with pytest.raises(InputError, match=r"(?s)2\^31.*`x` of 1125899906842624.*main.*int64"):
        build(func)


def test_a_function_that_is_scheduled_is_built_as_it_is() -> None:
    schedule = s_tir.Schedule(plain())
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    schedule.vectorize(loop)
    func = schedule.mod["main"]
    compiled = tvm_cascade.compile(func)
    assert tvm_ffi.structural_equal(compiled.mod["main"].body, of_any_address(func).body, map_free_vars=True)
    assert [group.reason.code for group in compiled.report.groups] == ["scheduled"]


def failing(*_: object) -> None:
    raise ValueError("The loop no longer exists in the IRModule")


def test_a_fused_function_that_cannot_be_scheduled_runs_unfused_under_its_own_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = workloads.get("softmax_stats").cpu
    monkeypatch.setattr(llvm, "schedule_cpu", failing)
    compiled = tvm_cascade.compile(workload.build(), force=True)
    told = "before fusing: our schedule of the fused function does not apply: ValueError: The loop no longer exists"
    assert told in str(compiled.report)
    assert "T.parallel" in compiled.mod["main"].script() and not is_fused(compiled.mod["main"])
    assert_right(compiled, workload, workload.build())


def test_a_schedule_that_does_not_apply_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "schedule_unfused_cpu", failing)
    compiled = tvm_cascade.compile(plain())
    assert "as it is: our schedule does not apply: ValueError: The loop no longer exists" in str(compiled.report)
    x = np.linspace(-1, 1, 32, dtype="float32")
    y = outputs_of(compiled, plain(), [x])["y"]
    tolerance.assert_close(y, np.exp(x.astype("f8")), length=1, dtype="float32")


def test_a_schedule_that_does_not_apply_on_a_gpu_leaves_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "schedule_gpu", failing)
    compiled = tvm_cascade.compile(plain(), {"kind": "cuda", "arch": "sm_90a"}, row_kernels=False)
    assert "in one thread, as the schedule failed: ValueError" in str(compiled.report)
    assert compiled.mod.script().count('thread="threadIdx.x"') == 1


def test_a_function_that_no_code_is_generated_for_is_built_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other functions of the module stay as they were lowered."""

    def refusing(mod: tvm.IRModule, *given: Any) -> Any:
        if "y" in [v.name_hint for v in mod.get_global_vars()] and "T.vectorized" in mod["y"].script():
            raise tvm.error.InternalError("if_then_else can only take scalar condition")
        return generate(mod, *given)

    generate = compilation.generate
    monkeypatch.setattr(compilation, "generate", refusing)
    compiled = tvm_cascade.compile(tvm.IRModule({"y": plain(), "z": plain()}))
    assert "T.vectorized" not in compiled.mod["y"].script() and "T.vectorized" in compiled.mod["z"].script()
    told = {report.name: report.lowering for report in compiled.report.functions}
    assert "if_then_else can only take scalar condition" in told["y"] and "vectors of" in told["z"]
    x = np.linspace(-1, 1, 32, dtype="float32")
    for name in ("y", "z"):
        y = outputs_of(compiled[name], plain(), [x])["y"]
        tolerance.assert_close(y, np.exp(x.astype("f8")), length=1, dtype="float32")


def test_a_function_that_cannot_be_read_is_built_unfused_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_function, "canonical", failing)
    x = np.linspace(-1, 1, 32, dtype="float32")
    y = outputs_of(compile_unfused(plain()), plain(), [x])["y"]
    tolerance.assert_close(y, np.exp(x.astype("f8")), length=1, dtype="float32")


def test_a_function_fused_before_is_scheduled_and_runs() -> None:
    workload = stats()
    func = workload.build()
    fused = tvm.s_tir.transform.FuseCascadedReductions(force=True)(tvm.IRModule({"main": func}))
    compiled = tvm_cascade.compile(fused)
    assert compiled.report.functions[0].status == "already fused"
    assert compiled.replaced_math
    assert_right(compiled, workload, func)


@pytest.mark.parametrize("value", [None, "softmax", 3, [], Target("llvm")])
def test_what_is_no_program_is_an_input_error(value: Any) -> None:
    with pytest.raises(InputError, match="IRModule or a tirx"):
        tvm_cascade.compile(value)


def test_an_empty_module_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no function"):
        tvm_cascade.compile(tvm.IRModule({}))


def test_relax_functions_are_an_input_error_that_names_the_pipeline() -> None:
    x = relax.Var("x", relax.TensorType((8,), "float32"))
    graph = relax.Function([x], x, ret_ty=relax.TensorType((8,), "float32"))
    with pytest.raises(InputError, match=r"(?s)`graph`, a Function.*relax.get_pipeline"):
        tvm_cascade.compile(tvm.IRModule({"graph": graph}))


@pytest.mark.parametrize("target", ["llvm -mcpu=znver4", "nonsense", {"kind": "nonsense"}, 3, None])
def test_what_is_no_target_is_an_input_error(target: Any) -> None:
    with pytest.raises(InputError, match="target"):
        tvm_cascade.compile(plain(), target)


def test_a_target_that_has_no_schedule_of_ours_is_an_input_error() -> None:
    with pytest.raises(InputError, match="of kind llvm"):
        tvm_cascade.compile(plain(), {"kind": "opencl"})


@pytest.mark.parametrize("target", ["auto", "llvm", {"kind": "llvm", "num-cores": 1}, Target({"kind": "llvm"})])
def test_targets_may_be_given_in_any_form(target: Any) -> None:
    assert tvm_cascade.compile(plain(), target).target.kind.name == "llvm"


def test_the_host_target_names_the_processor_and_its_cores() -> None:
    attributes = dict(host_target().attrs)
    assert attributes["mcpu"] == tvm.target.codegen.llvm_get_system_cpu() and attributes["num-cores"] >= 1


def test_vector_extensions_that_a_virtual_machine_hides_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    features = tvm.target.codegen.llvm_get_cpu_features
    if "avx2" not in features(host_target()):
        pytest.skip("a processor without AVX2 has nothing to hide")
    monkeypatch.setattr(host, "_cpu_flags", lambda: frozenset({"sse2", "avx"}))
    hidden = features(host_target.__wrapped__())
    assert "avx" in hidden and not {"avx2", "avx512f"} & set(hidden)


def test_an_unknown_option_is_an_option_error() -> None:
    with pytest.raises(OptionError, match="tiles"):
        tvm_cascade.compile(plain(), tiles=3)


@pytest.mark.parametrize("trials", [-1, 1.5, "8", True])
def test_a_number_of_trials_is_a_count(trials: Any) -> None:
    with pytest.raises(OptionError, match="tune_trials"):
        tvm_cascade.compile(plain(), tune_trials=trials)


def test_a_database_is_a_folder_or_a_database() -> None:
    with pytest.raises(InputError, match="database"):
        tvm_cascade.compile(plain(), database=3)  # type: ignore[arg-type]
