"""Compiled code as one file, on disk or in memory: named parts behind a digest, by which damage is noticed."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import secrets
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import tvm

from tvm_cascade._versions import RELEASE
from tvm_cascade.errors import InputError

Built = TypeVar("Built", bound=tvm.runtime.Executable)

Files: TypeAlias = Mapping[str, bytes]
"""The parts of a bundle by name."""

LIBRARY = "library.so"
"""The part with the machine code."""

_MODEL, _VERSIONS = "model.pickle", "versions"
"""What files of `save` hold."""

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


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that other processes see whole, or not at all."""
    own = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        own.write_bytes(data)
        os.replace(own, path)
    except BaseException:
        own.unlink(missing_ok=True)
        raise


def save(model: Any, path: str | Path) -> None:
    """Write a compiled program, or an optimised model with its parameters and buffers, into one file.

    Parameters
    ----------
    model : what `compile` or `optimize` returned.
    path : of the file, in a folder that exists. What it holds runs on processors and GPUs of this kind, with these
        releases of tvm-cascade and TVM; it is a zip file behind 32 bytes.

    Raises
    ------
    InputError
        When it is neither, or there is no such folder.
    ModelError
        When a model takes or gives values of a class that PyTorch cannot write down.
    """
    path = Path(path)
    if not hasattr(model, "bundle"):
        hint = "pass what tvm_cascade.compile or tvm_cascade.optimize returned"
        raise InputError("a compiled program or an optimised model", type(model).__name__, "tvm_cascade.save", hint)
    if not path.parent.is_dir():
        raise InputError("a path in a folder that exists", str(path), "tvm_cascade.save")
    write_whole(path, packed({_VERSIONS: _versions().encode(), _MODEL: pickle.dumps(model)}))


def load(path: str | Path) -> Any:
    """What `save` wrote into a file: call it as before. It is code: load none that you would not run.

    Raises
    ------
    InputError
        When the file is none of `save`, is damaged, or is of other releases.
    DeviceError
        When this machine's processor, or GPU, cannot run the code.
    """
    hint = "save it anew by tvm_cascade.save"
    try:
        files = unpacked(Path(path).read_bytes())
        versions, model = files[_VERSIONS].decode(), files[_MODEL]
    except (DamagedError, KeyError) as error:
        raise InputError("a file of tvm_cascade.save", f"{path}: {error}", "tvm_cascade.load", hint) from error
    if versions != _versions():
        raise InputError(f"a file of {_versions()}", f"one of {versions}", str(path), hint)
    return pickle.loads(model)


def _versions() -> str:
    return f"tvm-cascade {RELEASE}, apache-tvm {tvm.__version__}"


def with_library(built: Built, library: bytes) -> Built:
    """What was loaded, which remembers its library: TVM cannot export it again."""
    built.library = library
    return built


def library_of(built: tvm.runtime.Executable) -> bytes:
    """A shared library of what was built, with kernels as machine code where their device is here."""
    if (library := vars(built).get("library")) is not None:
        return library
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
