"""The kernels of a plan as data and text: what each computes, moves and is estimated to take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepReport:
    """One kernel of a plan, or an S-TIR schedule of some of a function's nests.

    Attributes
    ----------
    skeleton : of the kernel; empty where no skeleton takes what it computes.
    kernel : its configuration, or why no skeleton takes it.
    reads, writes : names of buffers.
    bytes : to and from memory, at least.
    flops : of matrix products.
    microseconds : estimated, with the launch; of a plan's kernels, after the one before.
    """

    skeleton: str
    kernel: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    bytes: float
    flops: float
    microseconds: float

    @property
    def amounts(self) -> str:
        """Bytes, products where there are any, and time in words."""
        products = f"{count_text(self.flops)}flop of products, " if self.flops else ""
        return f"{count_text(self.bytes)}B, {products}{self.microseconds:.1f} us"

    @property
    def computes(self) -> str:
        """What it writes, and from what."""
        return f"{', '.join(self.writes)} from {', '.join(self.reads)}"

    def __str__(self) -> str:
        return f"{self.computes}: {self.amounts}\n     {self.kernel}"


def count_text(count: float) -> str:
    """A number with a decimal prefix: `1.2 G`."""
    for prefix, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= unit:
            return f"{count / unit:.1f} {prefix}"
    return f"{count:.0f} "
