"""TVM's lowering of modules with S-TIR and TIRx functions, each by its own passes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim
from tvm.target import Target
from tvm.tirx import compilation_pipeline

from tvm_cascade.analysis.expression import call_name
from tvm_cascade.devices.host import core_count
from tvm_cascade.tile.launch.dependent import NO_ALIAS, is_dependent, with_dependence
from tvm_cascade.tile.launch.fast_math import is_fast, marked_fast

R = TypeVar("R")

MIXED = "tvm_cascade"
"""The pipeline's name, as `tvm.compile(…, tir_pipeline=MIXED)` takes it."""

_CORES_APIECE = 2
"""Of a thread that lowers functions: they wait for each other where passes are written in Python."""


def register_mixed_pipeline() -> str:
    """Registers the pipeline with TVM and returns its name; idempotent."""
    compilation_pipeline.register_tir_pipeline(MIXED, _mixed)
    return MIXED


def for_a_thread(work: Callable[..., R], target: Target) -> Callable[..., R]:
    """What another thread does with a target and this one's pass context: a thread has its own."""
    context = tvm.transform.PassContext.current()

    def inside(*given: Any) -> R:
        with context, target:
            return work(*given)

    return inside


def _mixed() -> tuple[Any, Any, Any]:
    s_tir, _, _ = compilation_pipeline.get_tir_pipeline("s_tir")
    tirx, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("tirx")

    @tvm.transform.module_pass(opt_level=0, name="tvm_cascade.MixedPipeline")
    def lower(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        def alone(name: ir.GlobalVar) -> tvm.IRModule:
            func = mod[name]
            pipeline = s_tir if func.attrs is not None and func.attrs.get("s_tir", False) else tirx
            found = pipeline(tvm.IRModule({name: func}, attrs=mod.attrs))
            found = with_dependence(found, func) if is_dependent(func) else found
            return marked_fast(found) if is_fast(func) else found

        lowered, threads = tvm.IRModule({}, attrs=mod.attrs), core_count() // _CORES_APIECE
        target = next((func.attrs["target"] for func in mod.functions.values()), None)
        if threads < 2 or context.instruments or target is None:  # instruments are entered once, by this thread
            found: Iterator[tvm.IRModule] = map(alone, mod.functions)
        else:
            with ThreadPoolExecutor(threads) as pool:
                found = pool.map(for_a_thread(alone, target), mod.functions)
        for one in found:
            lowered.update(one)
        return lowered

    def finish_exactly() -> tvm.transform.Pass:
        return tvm.ir.transform.Sequential([finish_device(), exact_literals, true_aliasing])

    return lower, finish_host, finish_exactly


# Kernels whose pointers the CUDA compiler must not be told to be without aliases (`__restrict__`).


_CHOICE = "if_then_else"

_Branches: TypeAlias = tuple[ir.Expr | tirx.Stmt | None, ...]


@tvm.transform.module_pass(opt_level=0, name="tvm_cascade.TrueAliasing")
def true_aliasing(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Device functions, without `noalias` where they choose between arrays that they write and others."""
    mod = mod.clone()
    for name, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc) and chooses_from_written(func):
            mod[name] = func.with_attr(NO_ALIAS, False)
    return mod


def chooses_from_written(kernel: tirx.PrimFunc) -> bool:
    """Whether one branch of a choice reads a parameter that the kernel stores to, and the other one any parameter."""
    given: dict[ir.Var, ir.Var] = {param: param for param in kernel.params}
    stored: list[ir.Var] = []
    choices: list[_Branches] = []
    tvm_ffi.structural_walk(
        kernel.body,
        [
            (tirx.DeclBuffer, lambda declared: given.update({declared.buffer: declared.data})),
            (tirx.BufferStore, lambda store: stored.append(store.buffer)),
            (tirx.IfThenElse, lambda choice: choices.append((_stores(choice.then_case), _stores(choice.else_case)))),
            (tirx.Select, lambda choice: choices.append((choice.true_value, choice.false_value))),
            (ir.Call, lambda call: choices.extend([tuple(call.args[1:])] if call_name(call) == _CHOICE else [])),
        ],
    )
    written = {given[buffer] for buffer in stored if buffer in given}
    reads = ([{given[b] for b in _sources(branch) if b in given} for branch in branches] for branches in choices)
    return any(all(branches) and bool(set().union(*branches) & written) for branches in reads)


def _stores(branch: tirx.Stmt | None) -> tirx.Stmt | None:
    """A branch of nothing but stores, which may become a choice of values; None of another one."""
    parts = branch.seq if isinstance(branch, tirx.SeqStmt) else [branch]
    return branch if all(isinstance(part, (tirx.BufferStore, tirx.Bind)) for part in parts) else None


def _sources(code: ir.Expr | tirx.Stmt | None) -> list[ir.Var]:
    read: list[ir.Var] = []
    if code is not None:
        tvm_ffi.structural_walk(code, (ir.TensorLoad, lambda load: read.append(load.source)))
    return read


# Float64 literals in CUDA text by their bits, since TVM prints fifteen decimals, 1e-32 as 0.


_FROM_BITS = "__longlong_as_double"


def _is_exact(value: float) -> bool:
    """Whether TVM's text has the value, or has no digits for it at all: infinities and NaN have names there."""
    return value - value != 0.0 or float(f"{value:.15f}") == value


def _written(constant: prim.FloatImm) -> ir.Expr:
    value = float(constant)
    if str(constant.ty.dtype) != "float64" or _is_exact(value):
        return constant
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return tirx.call_pure_extern("float64", _FROM_BITS, tirx.const(bits, "int64"))


@tvm.transform.module_pass(opt_level=0, name="tvm_cascade.ExactLiterals")
def exact_literals(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Device functions with every float64 as it is: c -> __longlong_as_double(bits of c), where text would round it."""
    changed = {
        g: f.with_body(tvm_ffi.structural_map(f.body, (prim.FloatImm, _written)))
        for g, f in mod.functions.items()
        if isinstance(f, tirx.PrimFunc)
    }
    mod = mod.clone()
    mod.update(tvm.IRModule(changed))
    return mod
