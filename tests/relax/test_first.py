"""The first kernel of a function waits for those of its caller, and lets the next one start then; others do at once."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tvm_cascade.relax import get_pipeline
from tvm_cascade.relax.pipeline import first_callees
from tvm_cascade.tile.launch.dependent import AT_ONCE
from tvm_cascade.tile.launch.pipeline import register_mixed_pipeline

from .test_fuse_cascades import Forward, module_of
from .test_surroundings import GPU, LENGTH, ROWS, calls_of, rms_norm


def twice(x: nn.Tensor, _: nn.Tensor) -> nn.Tensor:
    """One function, called first and again."""
    return op.softmax(op.softmax(x, axis=-1), axis=-1)


def once(x: nn.Tensor, gain: nn.Tensor) -> nn.Tensor:
    """Several functions, each called once."""
    return op.exp(rms_norm(x, gain)) + op.softmax(x, axis=-1)


def scheduled(forward: Forward, *shapes: list[int | str]) -> tvm.IRModule:
    pipeline = get_pipeline(GPU)
    return pipeline.scheduled(pipeline.grouped(module_of(forward, *shapes)))


def starts_at_once(mod: tvm.IRModule, name: str) -> bool:
    """By the code of its kernel: whether the next one is launched before it waits."""
    target = tvm.target.Target(GPU, host="llvm")
    with target:
        alone = tvm.IRModule({"main": mod[name].with_attr("global_symbol", "main")})
        built = tvm.compile(alone, target=target, tir_pipeline=register_mixed_pipeline())
    kernel = str(built.mod.imports[0].inspect_source("cuda")).split("__launch_bounds__")[-1]
    return kernel.index("griddepcontrol_launch_dependents();") < kernel.index("griddepcontrol_wait();")


def test_a_function_that_is_called_again_is_another_at_first() -> None:
    mod = scheduled(twice, [ROWS, LENGTH], [LENGTH])
    first, again = calls_of(mod)
    assert first == f"{again}_first" and first_callees(mod) == {"forward": first}
    assert not starts_at_once(mod, first) and starts_at_once(mod, again)


def test_the_first_of_different_functions_waits() -> None:
    mod = scheduled(once, [ROWS, LENGTH], [LENGTH])
    first, *others = calls_of(mod)
    assert not mod[first].attrs[AT_ONCE]
    assert others and all(mod[name].attrs[AT_ONCE] for name in others)
    assert not any(name.endswith("_first") for name in (first, *others))


def test_where_branches_leave_the_first_open_all_wait() -> None:
    mod = scheduled(twice, [ROWS, LENGTH], [LENGTH])
    builder = relax.BlockBuilder(mod)
    chosen, x = relax.Var("chosen", relax.TensorType([], "bool")), relax.Var("x", relax.TensorType([4], "float32"))
    with builder.function("branching", [chosen, x]):
        found = builder.emit(relax.If(chosen, x, x))
        builder.emit_func_output(found)
    assert first_callees(builder.finalize()) is None
