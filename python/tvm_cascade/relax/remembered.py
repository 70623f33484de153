"""What is found out about PrimFuncs, remembered by structure: equal layers of a model are looked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import tvm_ffi
from tvm import tirx

T = TypeVar("T")


class Remembered(Generic[T]):
    """A function of PrimFuncs, computed once for those that are equal in structure.

    Parameters
    ----------
    find : that function.
    """

    def __init__(self, find: Callable[[tirx.PrimFunc], T]) -> None:
        self.find = find
        self._known: dict[int, list[tuple[tirx.PrimFunc, T]]] = {}

    def values(self) -> Iterator[T]:
        """Those of the functions that were asked for so far."""
        return (value for alike in self._known.values() for _, value in alike)

    def of(self, func: tirx.PrimFunc) -> T:
        alike = self._known.setdefault(tvm_ffi.structural_hash(func), [])
        for known, value in alike:
            if tvm_ffi.structural_equal(known, func):
                return value
        alike.append((func, value := self.find(func)))
        return value
