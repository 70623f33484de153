"""`python -m tvm_cascade` and the script `tvm-cascade`: see `tvm_cascade.cli`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

INTERRUPTED = 130
"""The exit code of what was stopped by Ctrl-C: 128 and the signal's number."""


def script(arguments: Sequence[str] | None = None, named: Mapping[str, Any] | None = None) -> int:
    """Run one command; returns the exit code. Loading the compiler takes seconds, and may be interrupted as well.

    Parameters
    ----------
    named : as for `tvm_cascade.cli.main`.
    """
    try:
        from tvm_cascade.cli import main

        return main(arguments, named)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(script())
