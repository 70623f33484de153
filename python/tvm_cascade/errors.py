"""Every error that tvm-cascade raises: what was expected, what was found, where, and what to do next.

A program that merely cannot be fused raises nothing: it gets a verdict (`tvm_cascade.algebra.verdict`).
Errors are for misuse, for an environment that cannot work, and for broken invariants of our own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CascadeError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    expected : what the call needs.
    found : what it got.
    where : the buffer, block, function, option or file concerned, in the user's own names.
    hint : the next thing to try.
    """

    def __init__(self, expected: str, found: str, where: str = "", hint: str = "") -> None:
        self.expected, self.found, self.where, self.hint = expected, found, where, hint
        lines = [f"expected {expected}", f"found {found}"]
        if where:
            lines.append(f"where: {where}")
        if hint:
            lines.append(f"what to do: {hint}")
        super().__init__("\n  ".join(lines))

    def __reduce__(self) -> tuple[type[CascadeError], tuple[str, str, str, str]]:
        """So that processes can tell each other."""
        return type(self), (self.expected, self.found, self.where, self.hint)


class VersionError(CascadeError, ImportError):
    """The installed apache-tvm or apache-tvm-ffi is one that this package cannot work with."""


class OptionError(CascadeError, ValueError):
    """An option has a value outside its domain."""


class InputError(CascadeError, TypeError):
    """An argument is not a program, function, block or array of the kind that the call takes."""


class ScheduleError(CascadeError, ValueError):
    """`fuse_cascade` cannot rewrite the blocks it was given on an open schedule."""


class SplitError(CascadeError, ValueError):
    """A function cannot be split into one that leaves partial states and one that merges them."""


class GradientError(CascadeError, ValueError):
    """A function has no gradient, or none that can be written as a function of its own."""


class FoldError(CascadeError, RuntimeError):
    """A derived fold failed one of its obligations: a defect of ours, never of the program."""


class RewriteError(CascadeError, RuntimeError):
    """A rewrite produced a function that is not well formed: a defect of ours; the module is unchanged."""


class OracleError(CascadeError, ValueError):
    """The float64 oracle cannot evaluate a program."""


class DeviceError(CascadeError, RuntimeError):
    """A GPU cannot run what was asked of it: no driver, no device, or a failure of the device."""


class CompilerError(CascadeError, RuntimeError):
    """A compiler of C or CUDA, or a linker, is missing or failed."""


class ModelError(CascadeError, ValueError):
    """A PyTorch model, or a call of one, that cannot be compiled or run as it is."""


class PositionError(ModelError, IndexError):
    """A call of a PyTorch model with positions that a tensor of it does not have."""


class DistributedError(CascadeError, RuntimeError):
    """A rank of a process group is gone, does not come in time, or failed: no rank has results."""


class DependencyError(CascadeError, ImportError):
    """An optional package that a call needs is not installed."""


MOST_LISTED = 30
"""Names that a message lists."""


def near(name: object, known: Iterable[str]) -> str:
    """What to do about a name that is unknown: those that are like it, or all."""
    by_lower_case = {one.lower(): one for one in known}
    found = [by_lower_case[one] for one in difflib.get_close_matches(str(name).lower(), by_lower_case, n=5)]
    if found:
        return f"did you mean {', '.join(found)}?"
    return f"one of {', '.join(by_lower_case.values())}" if len(by_lower_case) <= MOST_LISTED else ""
