"""The versions of TVM that this package works with, checked before TVM is loaded.

A wrong pair does not fail where it is wrong: TVM renames its Python modules between minor releases, and an
unsuitable apache-tvm-ffi ends the process with a segmentation fault deep inside a schedule. So we say it at import.
"""

from __future__ import annotations

import re
from importlib import metadata

from tvm_cascade.errors import VersionError

RELEASE = "0.1.0"
"""Of this package."""


_REQUIREMENTS = (
    ("apache-tvm", ">=0.27,<0.28", r"0\.27(\.|$)", "TVM's Python interface changes between minor releases"),
    (
        "apache-tvm-ffi",
        ">=0.1.14.post0,<0.1.15",
        r"0\.1\.14\.post\d+(\+|$)",
        "with TVM 0.27, newer ones end the process with a segmentation fault in Schedule.tensorize and in MetaSchedule",
    ),
)
"""Distributions, what pip is asked for, how a version of that begins, and why."""


def check() -> None:
    """Check the installed apache-tvm and apache-tvm-ffi, without importing them.

    Raises
    ------
    VersionError
        When one is missing or has a version that this package cannot work with.
    """
    install = "python -m pip install " + " ".join(f"'{name}{asked}'" for name, asked, *_ in _REQUIREMENTS)
    for name, asked, accepted, reason in _REQUIREMENTS:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = None
        if found is None or not re.match(accepted, found):
            expected, there = f"{name}{asked} ({reason})", f"{name} {found}" if found else f"no {name}"
            raise VersionError(expected, there, "the Python environment", f"run: {install}")
