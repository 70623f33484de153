"""Calls of compiled functions: arguments by position or by name, and outputs that a call leaves out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tvm

from tvm_cascade.driver.arguments import (
    ON_GPUS,
    Parameter,
    as_tensor,
    check_apart,
    is_cpu,
    misfit,
    numpy_dtype,
    on_cpus,
    problem,
)
from tvm_cascade.errors import CascadeError, InputError, near


@dataclass(frozen=True)
class Entry:
    """A compiled function that takes arrays of any library; see `Compiled.__call__`.

    Attributes
    ----------
    name : of the function.
    device : that it runs on.
    """

    function: Callable[..., Any]
    name: str
    parameters: tuple[Parameter, ...]
    device: tvm.runtime.Device

    @cached_property
    def _alignments(self) -> list[int]:
        """Bytes that compiled code takes each tensor to be aligned to."""
        on_cpu = is_cpu(self.device)
        return [0 if one.shape is None else on_cpus(one.dtype) if on_cpu else ON_GPUS for one in self.parameters]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if not named and len(arguments) == len(self.parameters):
            return self._run(arguments)
        given = bound(self.name, self.parameters, arguments, named)
        taken = [self.parameters[place] for place in given]
        if unfit := misfit(self.name, taken, given.values()):
            raise unfit
        extents = extents_of(zip(taken, given.values(), strict=True))
        array = next((one for one in given.values() if hasattr(one, "__dlpack__")), None)
        for place, one in enumerate(self.parameters):
            if place not in given:
                given[place] = _new_array(array, shape_of(one, extents, self.name), one.dtype, self.device)
        whole = [given[place] for place in range(len(self.parameters))]
        self._run(whole)
        return results_of(self.parameters, whole)

    def _run(self, arguments: Sequence[Any]) -> Any:
        name, parameters = self.name, self.parameters
        try:
            passed = [
                as_tensor(*three, self.device) for three in zip(parameters, arguments, self._alignments, strict=True)
            ]
            check_apart(name, parameters, arguments, passed)
            returned = self.function(*(tensor for tensor, _ in passed))
        except CascadeError:
            raise
        except Exception as error:
            if told := problem(name, parameters, self.device, arguments):
                raise told from error
            raise
        for _, copy_back in passed:
            if copy_back is not None:
                copy_back()
        return returned


def bound(
    name: str, parameters: Sequence[Parameter], arguments: Sequence[Any], named: Mapping[str, Any]
) -> dict[int, Any]:
    """The arguments of a call by the place of their parameter; outputs may be missing.

    Those by position are of all parameters, or of those that a call may not leave out; the others go by name.

    Raises
    ------
    InputError
        When there are too many or too few, or a name is not one parameter's, or one that has an argument already.
    """
    where = f"call of `{name}`"
    needed = [place for place, one in enumerate(parameters) if not one.replaced]
    places = list(range(len(parameters))) if len(arguments) == len(parameters) else needed
    if len(arguments) > len(places):
        raise InputError(_told(parameters, needed), f"{len(arguments)} arguments", where)
    given = dict(zip(places, arguments, strict=False))
    by_name = {one.name: place for place, one in enumerate(parameters)}
    for word, argument in named.items():
        if word not in by_name:
            raise InputError(f"names among {', '.join(by_name)}", repr(word), where, near(word, by_name))
        if given.setdefault(by_name[word], argument) is not argument:
            raise InputError(f"one argument for `{word}`", "one by position and one by name", where)
    if missing := [str(parameters[place]) for place in needed if place not in given]:
        raise InputError(_told(parameters, needed), f"none for {', '.join(missing)}", where)
    return given


def results_of(parameters: Sequence[Parameter], arguments: Sequence[Any]) -> Any:
    """The outputs among the arguments of a call: one array, or a tuple."""
    results = tuple(one for parameter, one in zip(parameters, arguments, strict=True) if parameter.written)
    return results[0] if len(results) == 1 else results


def _told(parameters: Sequence[Parameter], needed: Sequence[int]) -> str:
    told = f"arguments for {', '.join(str(parameters[place]) for place in needed) or 'nothing'}"
    further = [str(one) for place, one in enumerate(parameters) if place not in needed]
    return told + (f", and for {', '.join(further)} where those are to be filled" if further else "")


def extents_of(given: Iterable[tuple[Parameter, Any]]) -> dict[str, int]:
    """The symbolic extents of a call by their text: of tensors, and of numbers that are passed."""
    known = dict[str, int]()
    for one, argument in given:
        if one.shape is None:
            known |= {one.name: argument} if isinstance(argument, int) else {}
        else:
            known |= {e: n for e, n in zip(one.shape, argument.shape, strict=True) if isinstance(e, str)}
    return known


def shape_of(output: Parameter, extents: Mapping[str, int], name: str) -> tuple[int, ...]:
    """The shape of an output of a call.

    Raises
    ------
    InputError
        When an extent is no extent of an input.
    """
    shape = output.shape or ()
    if unknown := [extent for extent in shape if isinstance(extent, str) and extent not in extents]:
        hint = f"pass an array for `{output.name}`, to be filled"
        raise InputError("outputs of the extents of inputs", f"{unknown[0]} of {output}", f"call of `{name}`", hint)
    return tuple(extents[extent] if isinstance(extent, str) else extent for extent in shape)


def _new_array(example: Any, shape: tuple[int, ...], dtype: str, device: tvm.runtime.Device) -> Any:
    """An array of the example's library on its device; a tensor of TVM where that is neither NumPy nor torch."""
    if isinstance(example, np.ndarray):
        return np.empty(shape, numpy_dtype(dtype))
    if hasattr(example, "new_empty"):
        return example.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype))
    return tvm.runtime.empty(shape, dtype, device)
