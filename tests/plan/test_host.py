"""The functions of a plan in one module: the host function, its temporaries, launches that depend on each other."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

import tvm_cascade
from tvm_cascade.evaluate.oracle import evaluate, signature
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.plan.plan import Plan, host_function
from tvm_cascade.tile.launch.dependent import WAITS
from tvm_cascade.tile.launch.pipeline import register_mixed_pipeline

from ..tiers import slow_but
from . import functions
from .run import draw, planned

TARGET = {"kind": "cuda", "arch": "sm_90a"}


def on_the_cpu(plan: Plan) -> tvm.runtime.Executable:
    """A plan's host function, over its steps as they were written."""
    names = [f"main_{k}" for k in range(len(plan.steps))]
    steps = {name: step.func.with_attr("global_symbol", name) for name, step in zip(names, plan.steps, strict=True)}
    mod = tvm.IRModule({"main": host_function(plan, "main", names), **steps})
    target = tvm.target.Target({"kind": "llvm", "host": {"kind": "llvm"}})
    return tvm.compile(mod, target=target, tir_pipeline=register_mixed_pipeline())


@pytest.mark.parametrize(
    "name",
    slow_but(
        ["two_groups", "symmetrised", "rms_gated"], ["rms_gated", "two_groups", "attention_layer_norm", "symmetrised"]
    ),
)
def test_one_call_runs_all_steps_over_temporaries(name: str) -> None:
    func, plan = planned(name)
    run, inputs = on_the_cpu(plan), draw(func)
    exact, usual = evaluate(func, inputs), evaluate(func, inputs, rounding=True)
    for _ in range(2):  # the second call has the temporaries of the first
        outputs = {out.name: poisoned(out) for out in signature(func).outputs}
        given = iter(inputs)
        run["main"](*[outputs.get(p.name) or tvm.runtime.tensor(next(given)) for p in func.params])
        for output, tensor in outputs.items():
            found = check(tensor.numpy(), exact[output], usual[output], length=128, dtype="float16")
            assert found.ok, f"{output}: {found.message}"


def poisoned(buffer: tirx.Var) -> Any:
    """An output that holds NaN."""
    return tvm.runtime.tensor(np.full([int(e) for e in buffer.ty.shape], np.nan, str(buffer.ty.dtype)))


def test_kernels_after_the_first_wait_for_those_before() -> None:
    compiled = tvm_cascade.compile(functions.rms_gated(), TARGET)
    assert [bool(compiled.mod[f"main_{k}"].attrs[WAITS]) for k in range(3)] == [False, True, True]
    kernels = cuda_kernels(compiled)
    texts = [kernels[f"main_{k}_kernel"] for k in range(3)]
    assert ["griddepcontrol_wait();" in text for text in texts] == [False, True, True]
    assert ["__restrict__" in text for text in texts] == [True, False, False]  # else nvcc may read old values


def test_a_kernel_waits_before_anything_else() -> None:
    kernel = cuda_kernels(tvm_cascade.compile(functions.two_groups(), TARGET))["main_1_kernel"]
    body = kernel[kernel.index("{") + 1 :].lstrip()
    assert body.startswith("tvm_builtin_ptx_griddepcontrol_wait();")


def test_cards_that_know_of_no_waits_launch_as_usual() -> None:
    compiled = tvm_cascade.compile(functions.two_groups(), {"kind": "cuda", "arch": "sm_80"})
    assert compiled.report.functions[0].plan and "griddepcontrol" not in "".join(cuda_kernels(compiled).values())


def test_a_function_of_one_kernel_is_launched_as_usual() -> None:
    (kernel,) = cuda_kernels(tvm_cascade.compile(functions.lone(), TARGET)).values()
    assert "griddepcontrol" not in kernel


def cuda_kernels(compiled: tvm_cascade.Compiled) -> dict[str, str]:
    """The text of each kernel by name."""
    texts = [module.inspect_source("cuda") for module in compiled.runtime_module.mod.imports]
    parts = [part for text in texts for part in text.split('extern "C" __global__ void ')[1:]]
    found = [(re.match(r"(?:__launch_bounds__\([\d, ]+\) )?(\w+)\(", part), part) for part in parts]
    return {name[1]: part for name, part in found if name is not None}  # declarations come before definitions


def test_steps_take_no_name_that_the_caller_has() -> None:
    mod = tvm.IRModule({"main": functions.two_groups(), "main_1": functions.lone()})
    compiled = tvm_cascade.compile(mod, TARGET)
    names = {variable.name_hint for variable in compiled.mod.get_global_vars()}
    assert names == {"main", "main_1", "main__0", "main__1"}
    assert set(compiled.parameters) == {"main", "main_1"}


def test_the_callers_function_is_not_changed() -> None:
    func = functions.rms_gated()
    text, copy = func.script(), tvm.ir.load_json(tvm.ir.save_json(func))
    tvm_cascade.compile(func, TARGET)
    assert func.script() == text and tvm_ffi.structural_equal(func, copy)


def test_a_plan_that_tvm_generates_no_code_for_becomes_the_function_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm_cascade.driver import compilation

    generate = compilation.generate

    def fails_for_steps(mod: tvm.IRModule, *rest: Any) -> Any:
        if any(variable.name_hint == "main_0" for variable in mod.get_global_vars()):
            raise RuntimeError("no code for it")
        return generate(mod, *rest)

    monkeypatch.setattr(compilation, "generate", fails_for_steps)
    compiled = tvm_cascade.compile(functions.two_groups(), TARGET)
    assert [variable.name_hint for variable in compiled.mod.get_global_vars()] == ["main"]
    assert "TVM generates no code for it as it was lowered" in compiled.report.functions[0].lowering
