"""Functions that write programs in TE, compiled for the arrays of a call."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import te

import tvm_cascade
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.options import FuseOptions
from tvm_cascade.tuning import jit as module

DATA = np.random.default_rng(3).standard_normal((6, 40), dtype="float32")


def softmax_parts(x: te.Tensor, scale: float = 1.0) -> tuple[te.Tensor, te.Tensor]:
    """The largest element of a row, and Σ exp(scale·(x − it))."""
    rows, length = x.shape
    j, k = te.reduce_axis((0, length), "j"), te.reduce_axis((0, length), "k")
    top = te.compute((rows,), lambda i: te.max(x[i, j].astype("float32"), axis=j), name="top")
    total = te.compute(
        (rows,),
        lambda i: te.sum(te.exp((x[i, k].astype("float32") - top[i]) * np.float32(scale)), axis=k),
        name="total",
    )
    return top, total


def expected(x: np.ndarray, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    top = x.astype("float64").max(1)
    return top, np.exp(scale * (x.astype("float64") - top[:, None])).sum(1)


def assert_right(found: Any, x: np.ndarray, scale: float = 1.0) -> None:
    assert isinstance(found, tuple)
    for one, other in zip(found, expected(x, scale), strict=True):
        assert one.shape == (len(x),) and one.dtype == np.float32
        np.testing.assert_array_less(np.abs(one - other), 1e-5 * np.abs(other))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that were compiled."""
    programs, whole = list[Any](), module.compile_program

    def counted(program: Any, *how: Any, **options: object) -> Any:
        programs.append(program)
        return whole(program, *how, **options)

    monkeypatch.setattr(module, "compile_program", counted)
    return programs


def test_one_program_for_each_shape_dtype_and_constant(built: list[Any]) -> None:
    parts = tvm_cascade.jit(softmax_parts)
    for _ in range(2):
        assert_right(parts(DATA), DATA)
        assert_right(parts(x=DATA[:3, :8]), DATA[:3, :8])
        assert_right(parts(DATA, 0.5), DATA, 0.5)
        half = DATA.astype(ml_dtypes.bfloat16)
        assert_right(parts(half), half.astype("float32"))
    assert len(built) == 4
    assert parts.__name__ == "softmax_parts"


def test_what_a_call_runs_is_fused_and_can_be_explained() -> None:
    parts = tvm_cascade.jit(softmax_parts)
    assert "fused: top, total" in str(parts.compiled(DATA).report)
    assert "fused: top, total" in str(tvm_cascade.explain(parts.program(DATA)))


def test_one_function_may_call_another(built: list[Any]) -> None:
    parts = tvm_cascade.jit(softmax_parts)

    @tvm_cascade.jit
    def log_sum(x: te.Tensor) -> te.Tensor:
        top, total = parts(x)
        return te.compute(top.shape, lambda i: top[i] + te.log(total[i]), name="out")

    top, total = expected(DATA)
    np.testing.assert_array_less(np.abs(log_sum(DATA) - top - np.log(total)), 1e-5)
    assert len(built) == 1


def test_extents_that_change_are_of_one_program(built: list[Any]) -> None:
    @tvm_cascade.jit(dynamic={"x": {0: "rows", 1: "length"}})
    def parts(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        return softmax_parts(x)

    for given in (DATA, DATA[:2, :7].copy(), np.repeat(DATA, 9, axis=1)):
        assert_right(parts(given), given)
    assert len(built) == 1


def test_options_and_budgets_are_those_of_compile(tmp_path: Any) -> None:
    parts = tvm_cascade.jit(softmax_parts, tune_trials=2, database=str(tmp_path), tile=8, progress=False)
    assert_right(parts(DATA), DATA)
    assert list(tmp_path.rglob("*.json")), "the first call leaves records of what it has measured"


def test_arrays_of_torch() -> None:
    torch = pytest.importorskip("torch")
    top, total = tvm_cascade.jit(softmax_parts)(torch.from_numpy(DATA))
    assert isinstance(top, torch.Tensor)
    assert_right((top.numpy(), total.numpy()), DATA)


WRONG = {
    "no tensor": (lambda: tvm_cascade.jit(lambda x: 3)(DATA), InputError, "tensors of TE.*found int"),
    "an input": (lambda: tvm_cascade.jit(lambda x: x)(DATA), InputError, "computed of the inputs.*found Tensor"),
    "no result": (lambda: tvm_cascade.jit(lambda x: ())(DATA), InputError, "tensors of TE.*found nothing"),
    "a missing argument": (lambda: tvm_cascade.jit(softmax_parts)(), InputError, r"arguments for \(x.*missing.*'x'"),
    "a list": (lambda: tvm_cascade.jit(softmax_parts)(DATA, [1.0]), InputError, "constants that can be hashed.*list"),
    "no names": (lambda: tvm_cascade.jit(lambda *xs: xs[0]), InputError, r"parameters have names.*\(\*xs\)"),
    "an unknown parameter": (
        lambda: tvm_cascade.jit(softmax_parts, dynamic={"y": {0: "n"}}),
        OptionError,
        "parameters among x, scale.*'y'.*dynamic",
    ),
    "an unknown option": (lambda: tvm_cascade.jit(softmax_parts, tyle=3), OptionError, "'tyle'.*did you mean tile"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_compiled_is_told(case: str) -> None:
    make, kind, message = WRONG[case]
    with pytest.raises(kind, match="(?s)" + message):
        make()


TAKE_OPTIONS = ("compile", "compile_unfused", "explain", "jit", "numerics", "tune", "FuseCascadedReductions")


@pytest.mark.parametrize("name", TAKE_OPTIONS)
def test_options_and_their_meanings_are_in_the_help_of_a_call(name: str) -> None:
    call = getattr(tvm_cascade, name)
    parameters = inspect.signature(call).parameters
    for option in vars(FuseOptions()):
        assert parameters[option].default == getattr(FuseOptions(), option)
        assert f"\n    {option} : " in inspect.getdoc(call)


def test_what_the_package_has_is_listed() -> None:
    listed = dir(tvm_cascade)
    assert {*tvm_cascade.__all__, "optimize", "torch_operator", "distributed", "relax"} <= {*listed}
    assert not {"Any", "annotations", "importlib", "TYPE_CHECKING"} & {*listed}
