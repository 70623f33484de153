"""The faults of TVM that are worked around, each with the minor releases in which its reproducer fails.

A workaround does nothing in a release that its row leaves out. `tests/tvm_faults` asks of each row whether its
reproducer fails in the release that is installed, and in no other: a row loses what is mended, and at last its file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import tvm

INSTALLED = ".".join(tvm.__version__.split(".")[:2])

FAULTS: dict[str, frozenset[str]] = {
    "affine maps": frozenset({"0.27"}),  # `analysis.index_sets`
    "bfloat16": frozenset({"0.27"}),
    "bfloat16 in a Bind": frozenset({"0.27"}),
    "float8": frozenset({"0.27"}),
    "half constants": frozenset({"0.27"}),
    "integer lets": frozenset({"0.27"}),  # `float_bits.Bindings`
    "local cells": frozenset({"0.27"}),  # `stack`
    "nested lets": frozenset({"0.27"}),  # `stack`
    "offset divisions": frozenset({"0.27"}),
    "partitioned storage": frozenset({"0.27"}),
    "partitioned tuples": frozenset({"0.27"}),  # `schedule.cpu`
    "shared sequences": frozenset({"0.27"}),  # `copies`
}
"""By name the releases that have it."""

Pass = TypeVar("Pass", bound=Callable[..., Any])


def stands(fault: str) -> bool:
    """Whether the TVM that is installed has the fault."""
    return INSTALLED in FAULTS[fault]


def against(fault: str) -> Callable[[Pass], Pass]:
    """Marks a function of code that works around a fault: without the fault it gives its first argument."""

    def marked(around: Pass) -> Pass:
        @functools.wraps(around)
        def only_there(code: Any, *rest: Any) -> Any:
            return around(code, *rest) if stands(fault) else code

        return only_there  # type: ignore[return-value]

    return marked
