"""The cache of compiled code on disk: a file for each program, target and options; the least recently used go first.

It is a folder of the user's, `$XDG_CACHE_HOME/tvm-cascade/code` (`~/.cache/…` by default), of at most
`TVM_CASCADE_CACHE_MIB` MiB. A file is written under a name of its own and renamed when it is whole, so that processes
need not wait for each other, and one that dies leaves nothing that others stumble upon.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import tvm
import tvm_ffi
from tvm.target import Target

from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.bundle import Files, packed, unpacked, write_whole
from tvm_cascade.driver.targets import lacking
from tvm_cascade.errors import OptionError
from tvm_cascade.options import FuseOptions

T = TypeVar("T")

VARIABLE = "TVM_CASCADE_CACHE_MIB"
DEFAULT_MIB = 4096
"""Of the files together; 0 is no cache."""

_ABANDONED_SECONDS = 3600.0
"""After which a file under a name of its own is none that a process still writes."""

_LEFT_BY_EVICTION = 0.9
"""Of the limit, so that not every further file makes one go."""


class CacheWarning(UserWarning):
    """Compiled code cannot be kept on disk, or what was kept is damaged: the program is compiled instead."""


def key_of(target: Target, options: FuseOptions, texts: Callable[[], Sequence[str] | None]) -> str | None:
    """The key of a program, a digest of all that its code depends on; None where the code is not kept.

    That is where the cache is off, and of code that this machine cannot load: for another kind of processor, or for a
    GPU that is not there.

    Parameters
    ----------
    texts : what tells the program from all others; None where nothing does.
    """
    if not options.cache or not _limit_bytes() or lacking(target) or (program := texts()) is None:
        return None
    context = tvm.transform.PassContext.current()
    told = [
        *(str(target), str(target.host), str(device_of(target)), str(dataclasses.replace(options, progress=True))),
        *(str(one) for one in (context.opt_level, context.required_pass, context.disabled_pass, context.config)),
        *(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("TVM_CUDA_")),
        str(shutil.which("nvcc")),
    ]
    return _digest(_sources(), *told, *program)


def texts_of(mod: tvm.IRModule) -> tuple[str, str]:
    """What tells a module from all others, wherever in a file it was written down."""
    return mod.script(show_meta=True), str(tvm_ffi.structural_hash(mod))


def kept(key: str | None, make: Callable[[], T], save: Callable[[T], Files], load: Callable[[Files], T]) -> T:
    """What is kept under a key; where nothing is, what is made, which is kept from then on.

    Parameters
    ----------
    make : compiles.
    save : the files that stand for what was made.
    load : makes it of them again; whatever it raises is damage of the files.

    Returns
    -------
    found : as `load` makes it, also where it was made now, so that later processes find nothing else.
    """
    if key is None:
        return make()
    path = _folder() / f"{key}.zip"
    try:
        found = load(unpacked(path.read_bytes()))
        with suppress(OSError):  # of a folder that others fill, or a file that has just gone
            os.utime(path)
        return found
    except (FileNotFoundError, NotADirectoryError):  # nothing was kept yet
        pass
    except Exception as error:  # of a file that is damaged, or of a library that does not load
        _warn(f"{path} is damaged, and made anew: {type(error).__name__}: {error}")
    made = make()
    try:
        files = save(made)
        _write(path, packed(files))
        return load(files)
    except Exception as error:  # of a full disk, of a folder that is read-only, of a missing linker
        _warn(f"compiled code is not kept in {path.parent} ({VARIABLE}=0 turns that off): {error}")
    return made


def _write(path: Path, data: bytes) -> None:
    if len(data) > _limit_bytes():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _evict(path.parent, _limit_bytes() - len(data))
    write_whole(path, data)


def _evict(folder: Path, allowed: int) -> None:
    """Remove the files that were used longest ago, where there are more bytes than allowed."""
    files = list[tuple[float, int, Path]]()
    for path in folder.iterdir():
        try:
            found = path.stat()
        except FileNotFoundError:  # another process was first
            continue
        if path.suffix == ".part" and found.st_mtime < time.time() - _ABANDONED_SECONDS:
            path.unlink(missing_ok=True)
        elif path.suffix == ".zip":
            files.append((found.st_mtime, found.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= allowed:
        return
    for _, size, path in sorted(files):
        path.unlink(missing_ok=True)
        total -= size
        if total <= allowed * _LEFT_BY_EVICTION:
            return


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tvm-cascade" / "code"


def _limit_bytes() -> int:
    text = os.environ.get(VARIABLE, "").strip() or str(DEFAULT_MIB)
    if not text.isdecimal():
        raise OptionError("a number of MiB, 0 for no cache", repr(text), f"environment variable {VARIABLE}")
    return int(text) << 20


@cache
def _sources() -> str:
    """A digest of this package, its data included, and of the TVM that it runs on."""
    root = Path(__file__).parents[1]
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".so"))
    return _digest(
        tvm.__version__, tvm_ffi.__version__, *(f"{path.relative_to(root)} {_of_file(path)}" for path in files)
    )


def _of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(*texts: str) -> str:
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def _warn(told: str) -> None:
    warnings.warn(told, CacheWarning, stacklevel=4)
