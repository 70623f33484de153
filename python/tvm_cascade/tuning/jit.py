"""`tvm_cascade.jit`: a function that writes a program in TE, compiled for the arrays that it is called with."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import tvm
from tvm import te, tirx
from tvm.target import Target
from typing_extensions import Unpack

from tvm_cascade.driver.arguments import dtype_name
from tvm_cascade.driver.backends import BACKENDS
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.options import FuseOptions, Options, takes_options
from tvm_cascade.tuning.compilation import compile as compile_program
from tvm_cascade.tuning.known import LookUp


class Jitted:
    """A function of arrays that is compiled when it is first called with such; `jit` makes it.

    Called with arrays it returns arrays, of the library of the first one, as a `Compiled` does; nothing is recorded for
    gradients. Called with tensors of TE, as in another such function, it is what it was made of.
    """

    def __init__(
        self, function: Callable[..., Any], dynamic: Mapping[str, Mapping[int, str]], how: Callable[..., Compiled]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._signature, self._how = function, inspect.signature(function), how
        self._dynamic, self._compiled, self._lock = dynamic, dict[Hashable, Compiled](), threading.Lock()
        named = [one.name for one in self._signature.parameters.values() if one.kind not in _LISTS]
        if len(named) < len(self._signature.parameters):
            raise InputError("a function whose parameters have names", str(self._signature), self._where)
        if unknown := sorted(dynamic.keys() - {*named}):
            raise OptionError(f"parameters among {', '.join(named)}", repr(unknown[0]), "dynamic")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given = self._bound(arguments, named)
        if any(isinstance(one, te.Tensor) for one in given.values()):
            return self._function(**given)
        return self._compiled_for(given)(*(one for one in given.values() if _is_array(one)))

    def compiled(self, *arguments: Any, **named: Any) -> Compiled:
        """What a call with these arguments runs: its `report` tells what was fused."""
        return self._compiled_for(self._bound(arguments, named))

    def program(self, *arguments: Any, **named: Any) -> tirx.PrimFunc:
        """The program of a call with these arguments, unfused: for `explain`, `gradient` and all others."""
        return self._program(self._bound(arguments, named))

    @property
    def _where(self) -> str:
        return f"tvm_cascade.jit of `{getattr(self._function, '__name__', self._function)}`"

    def _bound(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        try:
            call = self._signature.bind(*arguments, **named)
        except TypeError as error:
            raise InputError(f"arguments for {self._signature}", str(error), self._where) from error
        call.apply_defaults()
        return call.arguments

    def _compiled_for(self, given: Mapping[str, Any]) -> Compiled:
        key = tuple(
            (dtype_name(one), self._shape(name, one)) if _is_array(one) else ("a constant", type(one), one)
            for name, one in given.items()
        )
        kind = _kind_of(given)
        try:
            known = self._compiled.get((kind, key))
        except TypeError as error:
            hint = "pass a number, a text or a tuple: a program is compiled for each value"
            raise InputError("arrays, and constants that can be hashed", str(error), self._where, hint) from error
        if known is None:
            with self._lock:
                known = self._compiled.get((kind, key)) or self._how(self._program(given), kind)
                self._compiled[kind, key] = known
        return known

    def _shape(self, name: str, array: Any) -> tuple[int | str, ...]:
        names = self._dynamic.get(name, {})
        return tuple(names.get(axis, int(extent)) for axis, extent in enumerate(array.shape))

    def _program(self, given: Mapping[str, Any]) -> tirx.PrimFunc:
        variables = dict[str, tirx.Var]()
        values, inputs = dict(given), list[te.Tensor]()
        for name, array in given.items():
            if _is_array(array):
                shape = [
                    variables.setdefault(e, te.var(e, "int64")) if isinstance(e, str) else e
                    for e in self._shape(name, array)
                ]
                values[name] = te.placeholder(shape, dtype_name(array), name=name)
                inputs.append(values[name])
        made = self._function(**values)
        outputs = list(made) if isinstance(made, (tuple, list)) else [made]
        if not outputs or not all(isinstance(one, te.Tensor) and one.op.input_tensors for one in outputs):
            found = ", ".join(type(one).__name__ for one in outputs) or "nothing"
            hint = "return what te.compute gives of the inputs, or a tuple of that"
            raise InputError("tensors of TE that are computed of the inputs", found, self._where, hint)
        return te.create_prim_func([*inputs, *outputs]).with_attr("global_symbol", "main")


_LISTS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


@takes_options
def jit(
    function: Callable[..., Any] | None = None,
    *,
    target: str | dict[str, Any] | Target = "auto",
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    tune_trials: int = 0,
    database: LookUp = None,
    **options: Unpack[Options],
) -> Any:
    """Turns a function that writes a program in TE into one of arrays, which compiles the program at the first call.

    Parameters
    ----------
    function : takes a `te.Tensor` for each array of a call, of its shape and dtype and by its parameter's name, and all
        else as it is passed; gives a tensor or several. It is called once for each shape, dtype, constant and device.
    target : as `compile` takes it; by default the kind of device that the first array is on.
    dynamic : by parameter, the names of extents that change from call to call, by axis: {"x": {0: "rows"}}. Extents of
        one name are equal.
    tune_trials, database : as `compile` takes them: with trials, the first call of a shape measures designs first.
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Returns
    -------
    Jitted, or a decorator that makes one, where no function is passed.

    Raises
    ------
    InputError
        When the function's parameters are not named; at a call, when arguments do not fit, or it gives no tensors.
    OptionError
        When an option is unknown or outside its domain, or `dynamic` names no parameter.

    Examples
    --------
    >>> import numpy as np, tvm_cascade
    >>> from tvm import te
    >>> @tvm_cascade.jit
    ... def lse(x):
    ...     j, k = (te.reduce_axis((0, x.shape[1]), name) for name in "jk")
    ...     top = te.compute((x.shape[0],), lambda i: te.max(x[i, j], axis=j), name="top")
    ...     total = te.compute((x.shape[0],), lambda i: te.sum(te.exp(x[i, k] - top[i]), axis=k), name="total")
    ...     return te.compute((x.shape[0],), lambda i: top[i] + te.log(total[i]), name="out")
    >>> lse(np.zeros((2, 4), "float32"))
    array([1.3862944, 1.3862944], dtype=float32)
    """
    if function is None:
        given = {"target": target, "dynamic": dynamic, "tune_trials": tune_trials, "database": database}
        return functools.partial(jit, **given, **options)  # type: ignore[arg-type]
    FuseOptions.from_environment(**options)  # wrong ones are told here, and not at the first call

    def how(program: tirx.PrimFunc, kind: str) -> Compiled:
        return compile_program(program, kind if target == "auto" else target, tune_trials, database, **options)

    return Jitted(function, dynamic or {}, how)


def _is_array(value: object) -> bool:
    return hasattr(value, "__dlpack__") and hasattr(value, "shape")


def _kind_of(given: Mapping[str, Any]) -> str:
    """The kind of target of the device that the first array is on."""
    array = next((one for one in given.values() if _is_array(one)), None)
    if array is None or not hasattr(array, "__dlpack_device__"):
        return "auto"
    number = int(array.__dlpack_device__()[0])
    kinds = [kind for kind, one in BACKENDS.items() if tvm.device(one.runtime).dlpack_device_type() == number]
    return kinds[0] if kinds and BACKENDS[kinds[0]].runtime != "cpu" else "auto"
