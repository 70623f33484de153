"""Progress messages on standard error, after a second and a half and then every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_SECONDS = 1.5
"""How long nothing is said."""
NEXT_SECONDS = 10.0


@contextmanager
def waiting(step: str | Callable[[], str]) -> Iterator[None]:
    """Prints what is being waited for while the body runs.

    Parameters
    ----------
    step : what is done meanwhile; a function is asked each time that it is told.
    """
    done, start = threading.Event(), time.monotonic()

    def tell() -> None:
        pause = FIRST_SECONDS
        while not done.wait(pause):
            text = step if isinstance(step, str) else step()
            print(f"{text} … {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
            pause = NEXT_SECONDS

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
