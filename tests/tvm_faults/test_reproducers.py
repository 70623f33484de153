"""Every fault of TVM that is worked around goes wrong without the workaround."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import ir, s_tir, sym, te, tirx, topi
from tvm.ir import prim

from tvm_cascade.devices.host import host_target
from tvm_cascade.schedule.vector_math import vectorise_math
from tvm_cascade.transform.nest import Iter, NestBuilder

from ..schedule.fused_programs import attention
from ..schedule.test_cpu import scheduled
from ..tiers import quick_but
from ..transform.test_tuples import unfused
from .test_offset_divisions import picked
from .test_stack import asks_the_workspace, with_cell

Array = NDArray[np.generic]
REPRODUCERS: dict[str, Callable[[], bool]] = {}
"""Whether TVM is right, without the workaround."""


def reproducer(fault: str) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    return lambda one: REPRODUCERS.setdefault(fault, one)


FAULTS = (
    "affine maps", "bfloat16", "bfloat16 in a Bind", "float8", "half constants", "integer lets", "local cells",
    "nested lets", "offset divisions", "partitioned storage", "partitioned tuples", "shared sequences",
)  # fmt: skip
"""What is worked around."""

AROUND: dict[str, tuple[str, object]] = {
    "integer lets": ("tvm_cascade.tvm_faults.float_bits._FLOATS", {}),
    "partitioned storage": ("tvm_cascade.schedule.roles.keeps_storage", lambda *_: True),
    "partitioned tuples": ("tvm_cascade.schedule.cpu.keeps_tuples", lambda _: True),
}
"""What is off while a reproducer runs code of ours."""


@pytest.mark.parametrize("fault", quick_but(["nested lets"], FAULTS))  # that one goes by time
def test_tvm_has_the_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault in AROUND:
        monkeypatch.setattr(*AROUND[fault])
    assert not REPRODUCERS[fault](), f"TVM {tvm.__version__} has it no more: its workaround goes"


def test_every_reproducer_is_of_a_fault() -> None:
    assert set(REPRODUCERS) == set(FAULTS) >= set(AROUND)


def elementwise(dtype: str, element: Callable[[tirx.Expr], tirx.Expr], length: int = 256) -> tirx.PrimFunc:
    x = te.placeholder((length,), dtype, name="x")
    return te.create_prim_func([x, te.compute((length,), lambda i: element(x[i]), name="y")])


def result(func: tirx.PrimFunc, given: Array, dtype: str = "float32") -> Array:
    written = tvm.runtime.tensor(np.full(given.shape, 7, dtype))
    tvm.compile(func, target=host_target())["main"](tvm.runtime.tensor(given), written)
    return written.numpy()


def compiles(func: tirx.PrimFunc, refusal: str) -> bool:
    """Whether code is generated for a function; what TVM raises must be the refusal."""
    try:
        tvm.compile(func, target=host_target())
    except Exception as error:
        assert re.search(refusal, str(error)), error
        return False
    return True


@reproducer("bfloat16")
def _() -> bool:
    x = np.random.default_rng(0).normal(size=256).astype("float32")
    func = elementwise("float32", lambda value: value.astype("bfloat16").astype("float32"))
    return np.array_equal(result(func, x), x.astype(ml_dtypes.bfloat16).astype("float32"))


@reproducer("bfloat16 in a Bind")
def _() -> bool:
    x, y = (tirx.decl_buffer([8], "float32", name=name, layout=None) for name in "xy")
    bound = tirx.Var("bound", "float32")

    def body(at: dict[object, ir.Expr]) -> list[tirx.Stmt]:
        rounded = tirx.BufferLoad(x, [at["i"]]).astype("bfloat16").astype("float32")
        return [tirx.Bind(bound, rounded), tirx.BufferStore(y, bound + bound, [at["i"]])]

    nest = NestBuilder(annotated=False).nest("y", "", [Iter("i", "i", 8)], body)
    root = s_tir.SBlock([], [], [], "root", nest)
    func = tirx.PrimFunc([x, y], s_tir.SBlockRealize([], True, root)).with_attrs({"s_tir": True})
    return compiles(func.with_attr("global_symbol", "main"), "BF16 needs to be storaged lowered first")


@reproducer("float8")
def _() -> bool:
    every = np.arange(256, dtype="uint8").view(ml_dtypes.float8_e4m3fn)
    func = elementwise("float8_e4m3fn", lambda value: value.astype("float32"))
    return np.array_equal(result(func, every), every.astype("float32"), equal_nan=True)


@reproducer("half constants")
def _() -> bool:
    half = prim.Div(tirx.const(1, "float16"), tirx.const(2, "float16"))
    return isinstance(sym.Analyzer().simplify(half), prim.FloatImm)


@reproducer("integer lets")
def _() -> bool:
    func, _replaced = vectorise_math(elementwise("float32", lambda value: te.log(value).astype("int32")))
    return compiles(func, "Detected bound for .*conflicts with memorization")


@reproducer("local cells")
def _() -> bool:
    return not asks_the_workspace(with_cell("local", 4))


@reproducer("nested lets")
def _() -> bool:
    def seconds(lets: int) -> float:
        def chain(value: tirx.Expr) -> tirx.Expr:
            for _ in range(lets):
                var = tirx.Var("t", "float32")
                bits = tirx.reinterpret("int32", var)
                value = tirx.Let(var, value, tirx.reinterpret("float32", tirx.Select(bits > 0, bits + bits, bits)))
            return value

        func = elementwise("float32", chain)
        begun = time.perf_counter()
        tvm.compile(func, target=host_target())
        return time.perf_counter() - begun

    return seconds(6) < 10 * seconds(3)  # 16 times for each further one


@reproducer("offset divisions")
def _() -> bool:
    given, found = np.random.default_rng(0).normal(size=(2, 3, 16)), tvm.runtime.tensor(np.zeros((2, 6, 16), "float32"))
    x = tvm.runtime.tensor(given.astype("float32"))
    tvm.compile(picked(6, 2, 1), target=host_target())["main"](x, found)
    places = np.arange(6) + 1
    expected = np.where((places < 6)[:, None], x.numpy()[:, np.minimum(places, 5) // 2], 0)
    return np.array_equal(found.numpy(), expected)


@reproducer("partitioned storage")
def _() -> bool:
    def forget(select: tirx.Select) -> tirx.Select:
        return tirx.Select(tirx.EQ(tirx.const(0), tirx.const(0)), select.true_value, select.false_value)

    func = scheduled(tvm_ffi.structural_map(attention(1, 4, 20, 8, 8), (tirx.Select, forget)))
    return compiles(func, "declaration of .* occurred multiple times")


@reproducer("partitioned tuples")
def _() -> bool:
    return compiles(scheduled(unfused("router").fuse(tile=8)), "outside a statement scope")


@reproducer("shared sequences")
def _() -> bool:
    x = te.placeholder((64, 256), name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    before, schedule = func.script(), s_tir.Schedule(func)
    schedule.annotate(schedule.get_sblock("root"), "note", 1)
    schedule.vectorize(schedule.get_loops("T_softmax_norm")[-1])
    return func.script() == before


@reproducer("affine maps")
def _() -> bool:
    var = tirx.Var("v", "int32")
    values, level = [(var + 1) // 2, (var + 1) % 2], sym.iter_affine_map.IterMapLevel.Bijective
    maps = sym.detect_iter_map(values, {var: ir.Range(0, 8)}, True, level, False).indices
    return not maps or sym.Analyzer().can_prove_equal(sym.inverse_affine_iter_map(list(maps), values)[var], var)
