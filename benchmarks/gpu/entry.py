"""A workload of a GPU suite, with the groups that its figures count in."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_cascade.corpus.workload import Workload


@dataclass(frozen=True)
class GpuEntry:
    """A workload of a GPU suite.

    Attributes
    ----------
    label : what its table is called.
    workload : the program with its shape.
    groups : the groups whose geometric means it counts in, besides that of the suite.
    smallest : whether programs that are hundreds of times slower are measured too.
    """

    label: str
    workload: Workload
    groups: tuple[str, ...]
    smallest: bool
