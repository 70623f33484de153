"""Compiled code as one file, on disk or in memory: named parts behind a digest, by which damage is noticed."""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import tvm

Files: TypeAlias = Mapping[str, bytes]
"""The parts of a bundle by name."""

LIBRARY = "library.so"
"""The part with the machine code."""

_DIGEST_BYTES = 32
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal parts make equal files


class DamagedError(ValueError):
    """Bytes that are no bundle, or not the whole of one."""


def packed(files: Files) -> bytes:
    """The parts as bytes: a digest, then a zip file, which other programs read too."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, part in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), part, zipfile.ZIP_DEFLATED)
    return hashlib.sha256(data.getvalue()).digest() + data.getvalue()


def unpacked(data: bytes) -> dict[str, bytes]:
    """The parts of a bundle.

    Raises
    ------
    DamagedError
        When it is none, or was changed.
    """
    if hashlib.sha256(data[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
        raise DamagedError("its digest is another one")
    with zipfile.ZipFile(io.BytesIO(data[_DIGEST_BYTES:])) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def library_of(built: tvm.runtime.Executable) -> bytes:
    """A shared library of what was built, with kernels as machine code where their device is here."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / LIBRARY
        built.export_library(str(path))
        return path.read_bytes()


def loaded(library: bytes) -> tvm.runtime.Module:
    """The library in this process; its file is gone again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / LIBRARY
        path.write_bytes(library)
        return tvm.runtime.load_module(str(path))
