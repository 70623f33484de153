"""Progress messages on standard error, of what takes longer than a moment, and then every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tvm_cascade.options import FuseOptions

FIRST_SECONDS = 1.5
"""How long nothing is said."""
COMPILING_SECONDS = 2.0
"""How long nothing is said of a compilation."""
NEXT_SECONDS = 10.0

_STEPS: ContextVar[list[str] | None] = ContextVar("steps", default=None)
"""The steps that the innermost wait was told of, the present one last; None where nothing prints progress."""


def tell(step: str) -> None:
    """Notes the step that a compilation begins, for whoever prints its progress."""
    if (steps := _STEPS.get()) is not None:
        steps.append(step)


@contextmanager
def compiling(options: FuseOptions) -> Iterator[None]:
    """Prints what the body tells of, where standard error is a terminal and nothing else tells of progress."""
    if not options.progress or not sys.stderr.isatty() or _STEPS.get() is not None:
        yield
        return
    steps = ["compiling"]
    with waiting(lambda: f"tvm-cascade: {steps[-1]}", COMPILING_SECONDS, steps):
        yield


@contextmanager
def waiting(
    step: str | Callable[[], str], first: float = FIRST_SECONDS, steps: list[str] | None = None
) -> Iterator[None]:
    """Prints what is being waited for while the body runs.

    Parameters
    ----------
    step : what is done meanwhile; a function is asked each time that it is told.
    first : seconds in which nothing is printed.
    steps : to which compilations add what they do.
    """
    done, start = threading.Event(), time.monotonic()

    def say() -> None:
        pause = first
        while not done.wait(pause):
            text = step if isinstance(step, str) else step()
            print(f"{text} … {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
            pause = NEXT_SECONDS

    teller = threading.Thread(target=say, daemon=True)
    teller.start()
    before = _STEPS.set([] if steps is None else steps)
    try:
        yield
    finally:
        _STEPS.reset(before)
        done.set()
        teller.join()
