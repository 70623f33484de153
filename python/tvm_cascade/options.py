"""The options of the pass, as one typed dataclass; each may be preset by an environment variable TVM_CASCADE_<NAME>.

What an option means stands beside it, once: the flags of the command line, `python -m tvm_cascade options` and the
messages about values outside a domain are made of these fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, TypeVar, get_args

from typing_extensions import Unpack

from tvm_cascade.errors import OptionError, near

ENVIRONMENT_PREFIX = "TVM_CASCADE_"
Cast = Literal["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
Reference = Literal["exact", "lazy", "power_of_two"]
Guards = Literal["auto", "always", "off"]


def _option(
    default: Any,
    meaning: str,
    *,
    remedy: str = "",
    choices: Sequence[str] = (),
    most: int = 2**31 - 1,
    tuned: bool = True,
) -> Any:
    """A field with what it means, what to do where a value is outside its domain, and the words that it takes.

    Parameters
    ----------
    most : that a count may be: by default what an index of 32 bits reaches.
    tuned : one kernel, as a tuning session measures it, depends on it.
    """
    metadata = {"meaning": meaning, "remedy": remedy, "choices": tuple(choices), "most": most, "tuned": tuned}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class FuseOptions:
    """How cascades are fused: a field for each option, with its default and its meaning.

    Raises
    ------
    OptionError
        When a value is outside its domain.
    """

    tile: int | None = _option(
        None,
        "positions of the cascade axis that a step of the loop folds; chosen by shape where it is left out",
        remedy="leave it out to have it chosen by shape, or pass a number of positions, such as 128",
    )
    segments: int = _option(
        1,
        "parts that the axis is cut into, each of which is folded by itself before all are merged",
        most=65535,
        remedy="leave it out for one loop over the axis, or pass a number of parts, such as 2",
    )
    lanes: int | None = _option(
        None,
        "partial results side by side in a vector (SIMD); chosen by target where it is left out",
        remedy="leave it out to have it chosen by target, or pass a number of partial results, such as 16",
    )
    rescalable_casts: tuple[Cast, ...] = _option(
        ("float16", "bfloat16"),
        "dtypes to which an element may be rounded at another scale than the program does",
        choices=get_args(Cast),
    )
    reference: Reference = _option("exact", "how running references move", choices=get_args(Reference))
    guards: Guards = _option(
        "auto",
        "which results are checked at run time, and reduced as written where they fail: those in doubt, all, none",
        choices=get_args(Guards),
    )
    vector_math: bool = _option(True, "compute exp, log, tanh, … by polynomials that vectorise, within a few ulp (CPU)")
    force: bool = _option(False, "fuse even where the cost model declines")
    schedule: bool = _option(True, "`compile`: schedule for the target what was fused")
    buckets: int = _option(
        4,
        "`compile`: how many kernels a function of symbolic extents has at most; a call takes one by its lengths",
        remedy="leave it out, or pass a number of kernels, such as 1 for one of all lengths",
        tuned=False,
    )
    temporaries: int | None = _option(
        None,
        "`compile`: MiB that a function's temporaries may take, beyond which it is computed in chunks of an axis if it "
        "can be; where it is left out, in chunks if that saves memory on a GPU in about the same time",
        remedy="leave it out to have estimates decide, or pass a number of MiB, such as 64",
    )
    cache: bool = _option(True, "keep compiled code on disk, for later processes", tuned=False)
    progress: bool = _option(
        True,
        "tell on a terminal what a compilation of over two seconds does",
        tuned=False,
    )
    tensor_cores: bool = _option(
        True, "`compile` for CUDA: use tensor cores, for which weights are rounded to their operand's dtype"
    )
    row_kernels: bool = _option(True, "`compile` for CUDA: use kernels of ours for what needs no tensor cores")
    narrow_sums: bool = _option(False, "`compile` for CUDA: let tensor cores sum float8 products, to about twelve bits")
    narrow_positions: int | None = _option(
        None,
        "with `narrow_sums`: after how many positions float32 takes a sum over; never where it is left out",
        remedy="leave it out for sums of all positions, or pass a number of positions, such as 128",
    )
    tf32: bool = _option(False, "`compile` for CUDA: multiply float32 on tensor cores, with operands cut off to TF32")

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            expected = _expected(option, getattr(self, option.name))
            if expected:
                found, where = repr(getattr(self, option.name)), f"option `{option.name}`"
                raise OptionError(expected, found, where, option.metadata["remedy"])

    @classmethod
    def from_environment(cls, **given: Unpack[Options]) -> FuseOptions:
        """Options from TVM_CASCADE_* variables, overridden by the keyword arguments that are given.

        Raises
        ------
        OptionError
            When a keyword is unknown, or a variable or a value is outside its domain.
        """
        known = {field.name: field for field in dataclasses.fields(cls)}
        if unknown := given.keys() - known.keys():
            name = min(unknown)
            raise OptionError(
                "an option of tvm_cascade.FuseOptions", repr(name), "keyword arguments", near(name, known)
            )
        preset = {
            name: _parse(option, text)
            for name, option in known.items()
            if (text := os.environ.get(ENVIRONMENT_PREFIX + name.upper()))
        }
        return cls(**{**preset, **given})  # type: ignore[arg-type]


class Options(TypedDict, total=False):
    """The fields of `FuseOptions` as keywords of a call: checkers of types derive neither of the two from the other."""

    tile: int | None
    segments: int
    lanes: int | None
    rescalable_casts: tuple[Cast, ...]
    reference: Reference
    guards: Guards
    vector_math: bool
    force: bool
    schedule: bool
    buckets: int
    temporaries: int | None
    cache: bool
    progress: bool
    tensor_cores: bool
    row_kernels: bool
    narrow_sums: bool
    narrow_positions: int | None
    tf32: bool


def meaning_of(option: dataclasses.Field[Any]) -> str:
    """What an option means, and the words that it takes."""
    choices = option.metadata["choices"]
    return str(option.metadata["meaning"]) + (f"; of {', '.join(choices)}" if choices else "")


_MEANINGS = [f"{one.name} : {meaning_of(one)}" for one in dataclasses.fields(FuseOptions)]
if FuseOptions.__doc__:  # none under `python -OO`
    FuseOptions.__doc__ = "\n".join([inspect.cleandoc(FuseOptions.__doc__), "", "Attributes", "-" * 10, *_MEANINGS])

Called = TypeVar("Called", bound=Callable[..., Any])


def takes_options(function: Called) -> Called:
    """A function of `**options: Unpack[Options]` whose signature and docstring list them, with their meanings."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in dataclasses.fields(FuseOptions)
    ]
    if function.__doc__:
        before, listed, behind = inspect.cleandoc(function.__doc__).partition(_LISTED)
        function.__doc__ = "\n    ".join([before + listed, *_MEANINGS]) + behind
    function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
    return function


_LISTED = "**options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables."


def _expected(option: dataclasses.Field[Any], value: object) -> str:
    """The domain of an option, in words, where a value is outside it; empty where it is inside."""
    words, default = option.metadata["choices"], option.default
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "True or False"
    if isinstance(default, str):
        return "" if value in words else f"one of {', '.join(words)}"
    if isinstance(default, tuple):
        listed = isinstance(value, (tuple, list, set, frozenset)) and set(value) <= set(words)
        return "" if listed else f"a tuple of dtypes among {', '.join(words)}"
    if value is None and default is None:
        return ""
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= option.metadata["most"]
    return "" if counts else f"a positive integer, at most {option.metadata['most']}"


_TRUTH = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


def _parse(option: dataclasses.Field[Any], text: str) -> object:
    """The value that a variable's text stands for; whether it is inside the domain is looked at later."""
    variable = f"environment variable {ENVIRONMENT_PREFIX}{option.name.upper()}"
    if isinstance(option.default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if isinstance(option.default, str):
        return text.strip()
    if isinstance(option.default, bool):
        if text.lower() not in _TRUTH:
            raise OptionError("1 or 0", repr(text), variable)
        return _TRUTH[text.lower()]
    try:
        return int(text)
    except ValueError:
        raise OptionError("an integer", repr(text), variable) from None
