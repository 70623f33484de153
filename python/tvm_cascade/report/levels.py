"""What a kernel moves and computes at each level of a GPU, and the time of each, by the one cost model of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.skeleton import Kernel, Setting


@dataclass(frozen=True)
class LevelReport:
    """One level.

    Attributes
    ----------
    name : "memory", "shared memory" (bytes that copies bring there), "registers" (bytes that threads load from it for
        tensor cores), "tensor cores" or "CUDA cores".
    amount : of the whole kernel, or of its busiest multiprocessor, as the unit says.
    unit : "B", "op", "B a multiprocessor" or "flop a multiprocessor".
    microseconds : that the kernel would take if this level were all that it waits for; levels overlap.
    """

    name: str
    amount: float
    unit: str
    microseconds: float


@dataclass(frozen=True)
class _Level:
    """A level by the counts that are its own: the amount of the kernel's, and the fields of `Counts` and `Work`."""

    name: str
    unit: str
    amount: Callable[[Counts], float]
    counts: Sequence[str] = ()
    work: Sequence[str] = ()


_LEVELS = (
    _Level("memory", "B", lambda c: max(c.bytes, c.work.bytes), ("bytes",), ("bytes",)),
    _Level(
        "shared memory",
        "B a multiprocessor",
        lambda c: c.steps * (c.copied + c.unaligned + c.gathered + c.realigned),
        ("steps", "copied", "unaligned", "gathered", "realigned", "copies_rate", "unshared", "under_way", "paced"),
    ),
    _Level("registers", "B a multiprocessor", lambda c: c.steps * c.fragments, ("steps", "fragments")),
    _Level(
        "tensor cores",
        "flop a multiprocessor",
        lambda c: c.steps * c.products,
        ("steps", "products", "products_rate", "instructions"),
        ("flops",),
    ),
    _Level(
        "CUDA cores",
        "op",
        lambda c: max(c.issued, c.work.operations + c.work.functions),
        ("steps", "cores", "issued"),
        ("operations", "functions"),
    ),
)


def levels_of(kernel: Kernel, setting: Setting) -> tuple[LevelReport, ...]:
    """The levels that a kernel uses, farthest first: the model asked for the time of the counts of each alone."""
    counts = kernel.skeleton.counts(kernel.program, kernel.config, kernel.work, setting)
    found = []
    for level in _LEVELS:
        own = Counts(**{name: getattr(counts, name) for name in level.counts})
        alone = own._replace(work=Work(**{name: getattr(counts.work, name) for name in level.work}))
        if amount := level.amount(counts):
            found.append(LevelReport(level.name, amount, level.unit, seconds(alone, setting.gpu) * 1e6))
    return tuple(found)
