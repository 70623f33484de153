"""A program of a suite, with the groups that its figures count in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from corpus.workload import Workload


@dataclass(frozen=True)
class Entry:
    """A workload of a suite.

    Attributes
    ----------
    label : what its table is called.
    workload : the program with its shape.
    groups : the groups whose geometric means it counts in, besides that of the suite.
    smallest : whether programs that are hundreds of times slower are measured too, on a GPU.
    """

    label: str
    workload: Workload
    groups: tuple[str, ...] = ()
    smallest: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What picks it: its label first."""
        return (self.label, self.workload.name, *self.groups)


@dataclass(frozen=True)
class Model:
    """A PyTorch model of a suite.

    Attributes
    ----------
    label, shape : what it is called, and its extents.
    build : the module, in float32 on the CPU, and its inputs; equal ones for equal seeds.
    """

    label: str
    shape: Mapping[str, int]
    build: Callable[[int], tuple[Any, tuple[Any, ...]]]

    @property
    def names(self) -> tuple[str, ...]:
        """What picks it."""
        return (self.label,)
