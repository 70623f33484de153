"""Running functions: compiled by LLVM, outputs poisoned first, compared with the oracle and the unfused program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import tirx

from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.read import ANY_CPU
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import rewrite

Array = NDArray[Any]
Arrays = Sequence[Array]
Results = dict[str, Array]


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


UNOPTIMISED = {"kind": "llvm", "opt-level": 0}
"""LLVM's optimiser would be most of a test's time. test_fused_numbers.py holds that it changes no bit of results."""


def build(func: tirx.PrimFunc, target: Any = UNOPTIMISED) -> tvm.runtime.Module:
    """Code that does not check its arguments, as `run` does: checks are half of what LLVM is given."""
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        return tvm.compile(func, target=target)


def shape_of(buffer: tirx.Var) -> tuple[int, ...]:
    return tuple(int(extent) for extent in buffer.ty.shape)


def poison(buffer: tirx.Var) -> Array:
    """An array that no program would give: NaN, or the largest integer."""
    dtype, shape = numpy_dtype(str(buffer.ty.dtype)), shape_of(buffer)
    if dtype.kind in "iu":
        return np.full(shape, np.iinfo(dtype).max, dtype)
    return np.full(shape, np.nan, np.float64).astype(dtype)


def run(executable: tvm.runtime.Module, func: tirx.PrimFunc, inputs: Arrays) -> Results:
    """The outputs of a compiled function by buffer name; the inputs must come back as they went in."""
    written = oracle.signature(func).outputs
    given = iter(inputs)
    arguments, outputs, kept = [], {}, []
    for param in func.params:
        is_output = any(param.same_as(buffer) for buffer in written)
        array = poison(param) if is_output else next(given)
        assert array.dtype == numpy_dtype(str(param.ty.dtype)) and array.shape == shape_of(param), param.name
        tensor = tvm.runtime.tensor(array)
        arguments.append(tensor)
        if is_output:
            outputs[param.name] = tensor
        else:
            kept.append((array, tensor))
    executable["main"](*arguments)
    for array, tensor in kept:
        np.testing.assert_array_equal(np.asarray(tensor.numpy(), array.dtype), array)
    return {name: tensor.numpy() for name, tensor in outputs.items()}


@dataclass
class Unfused:
    """A program that was read and whose cascades were found once, to be rewritten with many options."""

    func: tirx.PrimFunc
    program: Program
    groups: list[Group]
    executable: tvm.runtime.Module
    _fused: dict[FuseOptions, tuple[tirx.PrimFunc, tvm.runtime.Module]] = field(default_factory=dict)
    _expected: tuple[list[Array], Results, Results] | None = None

    @property
    def length(self) -> int:
        """The longest cascade axis."""
        return max(group.frame.length for group in self.groups)

    def fuse(self, **options: object) -> tirx.PrimFunc:
        return self._built(options)[0]

    def _built(self, options: dict[str, object]) -> tuple[tirx.PrimFunc, tvm.runtime.Module]:
        chosen = FuseOptions(force=True, **options)  # type: ignore[arg-type]
        if chosen not in self._fused:
            func = rewrite(self.program, self.groups, chosen, ANY_CPU)
            self._fused[chosen] = func, build(func)
        return self._fused[chosen]

    def results(self, inputs: Arrays) -> Results:
        return run(self.executable, self.func, inputs)

    def fused_results(self, inputs: Arrays, **options: object) -> Results:
        func, executable = self._built(options)
        return run(executable, func, inputs)

    def check(self, inputs: Arrays, **options: object) -> None:
        """The fused program is as exact as the unfused one, by the rule of `evaluate.tolerance`."""
        _assert_close(self.fused_results(inputs, **options), *self._expected_of(inputs), self.length)

    def _expected_of(self, inputs: Arrays) -> tuple[Results, Results]:
        """What the oracle gives, and the unfused program; once for one data after the other."""
        if self._expected is None or not all(map(_same, self._expected[0], inputs)):
            kept = [array.copy() for array in inputs]
            self._expected = kept, oracle.evaluate(self.func, inputs), self.results(inputs)
        return self._expected[1:]


def _same(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def assert_close(results: Results, func: tirx.PrimFunc, inputs: Arrays, baseline: Results, length: int) -> None:
    """Each output against the oracle of `func`, allowed what `baseline` needs."""
    _assert_close(results, oracle.evaluate(func, inputs), baseline, length)


def _assert_close(results: Results, expected: Results, baseline: Results, length: int) -> None:
    for name, exact in expected.items():
        comparison = tolerance.check(
            results[name], exact, baseline[name], length=length, dtype=str(results[name].dtype)
        )
        assert comparison.ok, f"{name}: {comparison.message}"


def read(func: tirx.PrimFunc) -> Unfused:
    """The program, in which there is a cascade."""
    program = read_program(func)
    assert isinstance(program, Program), str(program)
    candidates = Reductions(program).cascades()
    groups = [candidate.group for candidate in candidates if candidate.group is not None]
    assert groups, [str(candidate.reason) for candidate in candidates]
    return Unfused(func, program, groups, build(func))


def drawn(func: tirx.PrimFunc, **numbers: int) -> list[Any]:
    """Arguments for all parameters, outputs among them; `numbers` are those that are no buffers."""
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal([int(n) for n in param.ty.shape]).astype(numpy_dtype(str(param.ty.dtype)))
        if tirx.is_buffer_var(param)
        else numbers[param.name]
        for param in func.params
    ]


def after(executable: Any, given: Sequence[Any]) -> list[Array]:
    """All buffers once the function has run."""
    tensors = [tvm.runtime.tensor(one) if isinstance(one, np.ndarray) else one for one in given]
    executable(*tensors)
    return [tensor.numpy() for tensor in tensors if not isinstance(tensor, int)]


def assert_same_after(compiled: Any, func: tirx.PrimFunc, given: Sequence[Any], length: int) -> None:
    """All buffers are what the function itself leaves in them, whichever it reads, writes, or writes over."""
    unfused = after(build(func)[str(func.attrs["global_symbol"])], given)
    for one, other in zip(after(compiled, given), unfused, strict=True):
        tolerance.assert_close(one, other.astype("float64"), length=length, dtype=str(one.dtype))
