"""The versions of TVM that this package works with, checked before TVM is loaded.

A wrong pair does not fail where it is wrong: TVM renames its Python modules between minor releases, and an
unsuitable apache-tvm-ffi ends the process with a segmentation fault deep inside a schedule. So we say it at import.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from tvm_cascade.errors import VersionError

RELEASE = "0.1.0"
"""Of this package."""


@dataclass(frozen=True)
class _Requirement:
    distribution: str
    specifier: str
    accepts: Callable[[str], bool]
    reason: str


def _is_minor_release(version: str, major: int, minor: int) -> bool:
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) == (major, minor)


_REQUIREMENTS = (
    _Requirement(
        "apache-tvm",
        ">=0.27,<0.28",
        lambda version: _is_minor_release(version, 0, 27),
        "TVM's Python interface changes between minor releases",
    ),
    _Requirement(
        "apache-tvm-ffi",
        ">=0.1.14.post0,<0.1.15",
        lambda version: re.match(r"0\.1\.14\.post\d+(\+|$)", version) is not None,
        "with TVM 0.27, newer ones end the process with a segmentation fault in Schedule.tensorize and in MetaSchedule",
    ),
)


def check() -> None:
    """Check the installed apache-tvm and apache-tvm-ffi, without importing them.

    Raises
    ------
    VersionError
        When one is missing or has a version that this package cannot work with.
    """
    install = "python -m pip install " + " ".join(f"'{r.distribution}{r.specifier}'" for r in _REQUIREMENTS)
    for requirement in _REQUIREMENTS:
        try:
            found = metadata.version(requirement.distribution)
        except metadata.PackageNotFoundError:
            found = None
        if found is None or not requirement.accepts(found):
            raise VersionError(
                f"{requirement.distribution}{requirement.specifier} ({requirement.reason})",
                f"{requirement.distribution} {found}" if found else f"no {requirement.distribution}",
                "the Python environment",
                f"run: {install}",
            )
