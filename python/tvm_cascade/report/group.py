"""The outcome of one group of reductions, of one function with the kernels of its plan, and of operators not merged."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import tvm
from tvm import tirx

from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.extract import Candidate
from tvm_cascade.analysis.passes import passes_for
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import loads_of
from tvm_cascade.report.levels import LevelReport

INTERMEDIATES = "intermediates along it"
"""What temporaries of a function are called that grow with its cascade axis."""


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
    levels : of a kernel's time, that of each level of the memory and of what computes; none of a schedule.
    """

    skeleton: str
    kernel: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    bytes: float
    flops: float
    microseconds: float
    levels: tuple[LevelReport, ...] = ()

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
        return "\n     ".join([f"{self.computes}: {self.amounts}", self.kernel, *self.by_level])

    @property
    def amounts_by_level(self) -> list[str]:
        """What is moved or computed at each level, in words."""
        return [f"{count_text(one.amount)}{one.unit}" for one in self.levels]

    @property
    def by_level(self) -> list[str]:
        """The levels as lines of columns."""
        return [
            f"{one.name:<14}{one.microseconds:>8.1f} us  {amount}"
            for one, amount in zip(self.levels, self.amounts_by_level, strict=True)
        ]


def count_text(count: float) -> str:
    """A number with a decimal prefix: `1.2 G`."""
    for prefix, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= unit:
            return f"{count / unit:.1f} {prefix}"
    return f"{count:.0f} "


@dataclass(frozen=True)
class Formula:
    """left = right, in one section of a fold: element, lift, reference, merge or finish; `mathml` is it typeset."""

    section: str
    left: str
    right: str
    mathml: str = ""

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(frozen=True)
class GroupReport:
    """The outcome of one group of reductions, in the names of the user's buffers.

    Attributes
    ----------
    function : name of the function that holds it.
    reason : code, law, detail and hint; the verdict goes with the code.
    buffers : result buffers of the reductions, in order; empty where the function could not be read.
    formulas : the fold, in order of computation; empty where there is none.
    latex : the same formulas as one LaTeX `aligned` block.
    references : by quantity that elements read of earlier results, how the reference for it moves.
    ranges : by the same quantity, why lifts keep their digits there: the argument for how it moves.
    certificate : bounded or guarded, with the argument for each result; empty where there is no fold.
    infinities : the results whose class is another where data are infinite, or at how many points it is the same;
        a check at points, not a proof; empty where there is no fold.
    passes_before, passes_after : loops over the cascade axis, unfused and fused; None where not known.
    bytes_before, bytes_after : bytes of temporaries that grow with the cascade axis; None where not known.
    us_before, us_after : estimated time on the target, in microseconds; None where its verdict compares no times.
    obligations : what was checked of the fold, with the number of comparisons at random points.
    passes : over the cascade axis, as the program is written; none of a function that is fused already.
    inside : other reductions, such as matrix products, that the loop computes for each position.
    """

    function: str
    reason: Reason
    buffers: tuple[str, ...] = ()
    formulas: tuple[Formula, ...] = ()
    latex: str = ""
    references: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, str] = field(default_factory=dict)
    certificate: str = ""
    infinities: str = ""
    passes_before: int | None = None
    passes_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    us_before: float | None = None
    us_after: float | None = None
    obligations: Mapping[str, int] = field(default_factory=dict)
    passes: tuple[PassReport, ...] = ()
    inside: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Fused, refused, unknown, declined, or nothing to fuse."""
        return self.reason.verdict

    @property
    def state(self) -> list[str]:
        """The names of the fold's components, and of the references that they are relative to."""
        components = [formula.left for formula in self.formulas if formula.section == "lift"]
        moved = [formula.left for formula in self.formulas if formula.section.startswith("reference")]
        return components + [name.replace("'", "") for name in moved]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Facts besides the formulas: (label, sentence) rows for text and HTML."""

        def change(before: int | None, after: int | None, told: Callable[[int], str] = str) -> str:
            return "" if before is None or after is None else f"{told(before)} before, {told(after)} after"

        rows = [
            ("why", str(self.reason)),
            ("computed inside", ", ".join(self.inside)),
            ("passes over the axis", change(self.passes_before, self.passes_after)),
            (INTERMEDIATES, change(self.bytes_before, self.bytes_after, bytes_text)),
            ("references", ", ".join(f"{quantity}: {policy}" for quantity, policy in self.references.items())),
            *((f"range at {quantity}", argument) for quantity, argument in self.ranges.items()),
            ("certificate", self.certificate),
            ("checked at infinities", self.infinities),
            ("checked at random points", "; ".join(f"{name} ({n})" for name, n in self.obligations.items() if n)),
        ]
        return [row for row in rows if row[1]] + self.reason.facts

    def to_dict(self) -> dict[str, Any]:
        """The group in JSON's types."""
        reason = {name: getattr(self.reason, name) for name in ("code", "law", "detail", "hint")}
        return {
            "function": self.function,
            "verdict": self.verdict.value,
            **dataclasses.asdict(self),
            "reason": {**reason, "counterexample": _counterexample(self.reason)},
            "formulas": [{"section": f.section, "left": f.left, "right": f.right} for f in self.formulas],
            "obligations": dict(self.obligations),
        }

    @property
    def heading(self) -> str:
        """The function, the verdict and the buffers."""
        return f"{self.function}: {self.verdict}" + (f": {', '.join(self.buffers)}" if self.buffers else "")

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is told below the heading: labels and sentences, the formulas behind the reason."""
        return self.facts[:1] + [(f.section, str(f)) for f in self.formulas] + self.facts[1:]

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows)
        return "\n".join([self.heading, *(f"  {label:<{width}}  {sentence}" for label, sentence in self.rows)])


def _counterexample(reason: Reason) -> dict[str, Any] | None:
    shown = reason.counterexample
    if shown is None:
        return None
    return {
        "claim": shown.claim,
        "at": {name: list(values) for name, values in shown.at},
        "outcomes": list(shown.outcomes),
        "data": [{name: list(values) for name, values in elements} for elements in shown.data],
    }


@dataclass(frozen=True)
class FunctionReport:
    """The outcome of one function.

    Attributes
    ----------
    name : in its module.
    status : "fused", "already fused", "unchanged", or "skipped" for what is no PrimFunc.
    note : why, in a few words.
    lowering : what the target runs it as, and why; empty where no target was named.
    design : where its configuration comes from: the model, a tuning session, the shipped database; empty where neither
        a target nor a database was named.
    tile_program : what its kernel does to one tile, or to a chunk of a row; empty where it has none.
    plan : its kernels in order, with estimates; none where it has no kernel of a skeleton.
    whole : why they are not one: the reasons of every skeleton, or the estimate that was declined.
    buckets : of a function with symbolic extents that is several kernels, for which lengths each is, and why.
    """

    name: str
    status: str
    note: str
    lowering: str = ""
    tile_program: str = ""
    plan: tuple[StepReport, ...] = ()
    whole: str = ""
    design: str = ""
    buckets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.status} ({self.note})", *self.lowering_lines])

    @property
    def reasons(self) -> list[str]:
        """Why its kernels are not one: what is said of one kind of kernel, or of several alike, by itself."""
        return re.split(r"; (?=no `)", self.whole) if self.whole else []

    @property
    def lowering_lines(self) -> list[str]:
        """The lowering and its design as indented lines; none where neither a target nor a database was named."""
        lines = [f"lowered to  {self.lowering}"] if self.lowering else []
        lines += [f"chosen by   {self.design}"] if self.design else []
        lines += [f"  {bucket}" for bucket in self.buckets]
        if len(self.plan) == 1:
            lines += [f"estimated   {self.plan[0].amounts}", *(f"  {one}" for one in self.plan[0].by_level)]
        else:
            lines += [line for k, step in enumerate(self.plan, 1) for line in f"  {k}. {step}".splitlines()]
        first, *others = self.reasons or [""]
        lines += [f"not as one kernel: {first}", *(f"  {other}" for other in others)] if first else []
        return [f"  {line}" for line in [*lines, *self.tile_program.splitlines()]]


def bytes_text(count: int) -> str:
    """A number of bytes with a binary unit: `8.0 MiB`."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


@dataclass(frozen=True)
class Apart:
    """Operators of a graph that stay functions of their own, though one reads what another reduces.

    Attributes
    ----------
    operators : their functions before they were grouped.
    why : they are not merged.
    """

    operators: tuple[str, ...]
    why: str

    @property
    def heading(self) -> str:
        return f"{' and '.join(self.operators)}: not merged"

    def __str__(self) -> str:
        return f"{self.heading}\n  why  {self.why}"


@dataclass(frozen=True)
class ExchangeReport:
    """One exchange between the ranks of a group that was considered for a sharded function.

    Attributes
    ----------
    bytes : that a rank receives; None for one that cannot be taken.
    steps : collectives, one after another.
    seconds : estimated, on top of a rank's own work.
    why : it was taken, or not.
    """

    name: str
    bytes: int | None
    steps: int | None
    seconds: float | None
    why: str

    @property
    def cells(self) -> tuple[str, ...]:
        """A row under `EXCHANGES`."""
        if self.bytes is None or self.seconds is None:
            return self.name, "", "", "", self.why
        return self.name, bytes_text(self.bytes), str(self.steps), f"{self.seconds * 1e6:.0f} us", self.why


EXCHANGES = ("exchange", "to each rank", "steps", "estimated", "")
"""Headings of exchanges; times are on top of a rank's own work."""


@runtime_checkable
class OnRanks(Protocol):
    """A function whose axis is sharded over ranks.

    Attributes
    ----------
    module : the functions that ranks call.
    exchanges : those that were considered, with the one that is taken.
    """

    @property
    def module(self) -> tvm.IRModule: ...

    @property
    def exchanges(self) -> tuple[ExchangeReport, ...]: ...


def exchanges_text(exchanges: Sequence[ExchangeReport]) -> str:
    """Exchanges as a table."""
    return in_columns([EXCHANGES, *(one.cells for one in exchanges)])


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of a table as lines, with the cells of a column below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


# The passes over a cascade axis that a program makes as it is written, and which of them read which.


@dataclass(frozen=True)
class PassReport:
    """One pass.

    Attributes
    ----------
    writes : names of the buffers that it writes.
    reducer : what it reduces by; empty where it computes an element for each position.
    reads : names of the inputs that it reads, in order.
    waits_for : places in the list of the passes that it reads, directly or by maps of their results.
    after : it stays behind the loop of the fused program.
    """

    writes: tuple[str, ...]
    reducer: str
    reads: tuple[str, ...]
    waits_for: tuple[int, ...]
    after: bool


def dependences(program: Program, candidate: Candidate) -> tuple[PassReport, ...]:
    """The passes of a candidate's reductions, in order; of those that are no group, found by their names."""
    if candidate.group is not None:
        members = [member.stage for member in candidate.group.members if not member.is_slice]
    else:
        members = [stage for stage in program.stages if stage.reducer and stage.buffer.name in candidate.names]
    passes = passes_for(program, members)
    listed = (*passes.inside, *passes.after)
    return tuple(_report(program, stage, listed, k >= len(passes.inside)) for k, stage in enumerate(listed))


def _report(program: Program, stage: Stage, listed: Sequence[Stage], after: bool) -> PassReport:
    parts = program.together(stage)
    reads, waits = dict[str, None](), set[int]()
    pending = [load.source for part in parts for load in loads_of(part.value)]
    seen: list[tirx.Var] = [part.buffer for part in parts]
    while pending:
        buffer = pending.pop(0)
        if any(buffer.same_as(other) for other in seen):
            continue
        seen.append(buffer)
        writer = program.writer(buffer)
        place = next((k for k, other in enumerate(listed) if writer and other.block.same_as(writer.block)), None)
        if writer is None:
            reads[buffer.name] = None
        elif place is not None:
            waits.add(place)
        else:
            pending += [load.source for load in loads_of(writer.value)]
    reducer = "" if stage.reducer is None else (stage.reducer.whole or stage.reducer).name
    return PassReport(tuple(part.buffer.name for part in parts), reducer, tuple(reads), tuple(sorted(waits)), after)
