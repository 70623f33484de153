"""`python -m corpus COMMAND`: the commands of `tvm_cascade`, where the programs that have names are workloads."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from corpus import workloads
from tvm_cascade.__main__ import script


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    return script(arguments, workloads.registry())


if __name__ == "__main__":
    sys.exit(main())
