"""`python -m tvm_cascade build-native`: builds the optional native library into the user's cache folder."""

from __future__ import annotations

import argparse

from tvm_cascade import native
from tvm_cascade.driver.progress import waiting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(_args: argparse.Namespace) -> int:
    """Build it, or say why that is skipped; returns the exit code."""
    reason = native.why_not_buildable()
    if native.library_path() is None and reason is not None:
        print(reason)
        return 0
    with waiting("nvcc compiles the native library, which takes a minute or two"):
        print(native.build())
    return 0
