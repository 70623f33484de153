"""Which calls of a block are one cascade: found by trying, on the PrimFunc that they are merged into.

A reduction joins a reduction that it feeds through maps, with all that lies between, where the pass makes one fold of
all their reductions. A matrix product is an element of such a fold where it has a value for each row and position of
its own: a projection that all rows share would be computed again by each of them. Nothing goes by the names of
operators.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.analysis.program import Program, Stage, at_sizes
from tvm_cascade.devices.device import Cpu, Device
from tvm_cascade.options import FuseOptions
from tvm_cascade.relax.graph import Graph, Kind, Node, Remembered, in_order
from tvm_cascade.relax.narrowing import narrowed
from tvm_cascade.relax.outline import Merger, outline
from tvm_cascade.report.group import Apart
from tvm_cascade.tile.estimate import NOMINAL
from tvm_cascade.transform.fuse_function import Decision, Outcome, fuse_function

MOST_NODES = 40
"""Calls of a cascade: longer chains are not tried."""

MOST_TRIED = 8
"""Others that a cluster is tried with in vain: the steps of an unrolled loop feed one product each by itself."""

Cluster = frozenset[Node]


@dataclass(frozen=True)
class Trial:
    """What the pass makes of a merged function.

    Attributes
    ----------
    whole : all its reductions are in one fold.
    gains : the cost model would fuse it too; or it computes less, as parts of what its nodes give are read nowhere.
    why : what stands against merging; empty where it gains.
    """

    whole: bool
    gains: bool
    why: str = ""


def outcomes_of(options: FuseOptions, device: Device) -> Remembered[Outcome]:
    """What the pass makes of merged functions, which are called alike."""
    return Remembered(lambda func: fuse_function(func.with_attr("global_symbol", "main"), options, device))


class Trials:
    """Trials of merged functions, remembered by structure: equal layers of a model are tried once.

    Parameters
    ----------
    options, device : as of the pass.
    outcomes : as of `outcomes_of`.
    """

    def __init__(self, options: FuseOptions, device: Device, outcomes: Remembered[Outcome]) -> None:
        self.options, self.device, self._outcomes = options, device, outcomes
        self._known = Remembered(self._try)

    def of(self, func: tirx.PrimFunc) -> Trial:
        return self._known.of(func)

    def _try(self, func: tirx.PrimFunc) -> Trial:
        needed = narrowed(func)
        outcome = self._outcomes.of(needed)
        found = [d for d in outcome.found if d.candidate.group is not None]
        by_law = [d for d in found if d.reason.verdict in (Verdict.FUSED, Verdict.DECLINED)]
        refused = [d.reason for d in outcome.found if d.reason.verdict not in (Verdict.FUSED, Verdict.DECLINED)]
        if len(by_law) != 1 or outcome.program is None or by_law[0].candidate.group is None:
            return Trial(False, False, _first(refused) or "their reductions are not all in one fold")
        whole = _is_whole(outcome.program, by_law[0].candidate.group)
        if not whole:
            return Trial(
                False, False, _first(refused) or "a loop for both would compute one of them again for each row"
            )
        reason = self._priced(needed, by_law[0])
        gains = reason.verdict is Verdict.FUSED or not needed.same_as(func)
        return Trial(True, gains, "" if gains else str(reason))

    def _priced(self, func: tirx.PrimFunc, decision: Decision) -> Reason:
        """The reason of a decision; for a CPU, where symbolic extents left it without an estimate, by nominal ones."""
        if decision.estimate is not None or not isinstance(self.device, Cpu):
            return decision.reason
        shapes = [param.ty.shape for param in func.params if tirx.is_buffer_var(param)]
        sizes = {extent.name: NOMINAL for shape in shapes for extent in shape if isinstance(extent, ir.Var)}
        priced = fuse_function(at_sizes(func, sizes), self.options, self.device).found
        same = (one.reason for one in priced if one.candidate.names == decision.candidate.names)
        return next(same, decision.reason)


def _first(reasons: Sequence[Reason]) -> str:
    return str(reasons[0]) if reasons else ""


def _is_whole(program: Program, group: Group) -> bool:
    """Whether a group has all reductions of a program, and computes none of them more often than the program."""
    inside = passes_of(program, group).inside
    members = [member.stage for member in group.members]
    for stage in (stage for stage in program.stages if stage.reducer is not None):
        if any(stage.block.same_as(member.block) for member in members):
            continue
        if not any(stage.block.same_as(other.block) for other in inside) or not _has_own_rows(stage, members, group):
            return False
    return True


def _has_own_rows(stage: Stage, members: Iterable[Stage], group: Group) -> bool:
    """Whether an element has a value for each row and position of the members, at least."""
    rows = [[member.extents[v] for v in member.spatial] for member in members]
    own = [stage.extents[v] for v in stage.spatial]
    if not all(isinstance(extent, int) for extents in (own, *rows) for extent in extents):
        return len(own) > min(map(len, rows))  # of symbolic extents: by axes
    length = group.frame.length
    return math.prod(own) >= min(map(math.prod, rows)) * (length if isinstance(length, int) else 1)


def cascades_of(graph: Graph, merger: Merger, trials: Trials, apart: list[Apart]) -> list[Cluster]:
    """The calls that are merged, in the order of the block.

    Parameters
    ----------
    apart : to which those are added that were looked at and are not merged.
    """
    clusters = {node: frozenset([node]) for node in graph.nodes if node.kind is Kind.REDUCTION}
    refused: dict[Cluster, str] = {}
    tried = Counter[Cluster]()
    feeds = {node: _fed(node, clusters) for node in in_order(clusters)}
    while (joined := _joined(graph, merger, trials, clusters, feeds, refused, tried)) is not None:
        for node in joined:
            if node.kind is Kind.REDUCTION:
                clusters[node] = joined
    found = {cluster for cluster in clusters.values() if len(cluster) > 1}
    taken = set[Node]().union(*found)
    kept = []
    for cluster in sorted(found, key=lambda one: min(node.place for node in one)):
        grown = _grown(graph, cluster, taken)
        if trials.of(merger.of(outline(graph, grown))).gains:
            kept.append(grown)
        elif (alone := trials.of(merger.of(outline(graph, cluster)))).gains:
            kept.append(cluster)
        else:
            refused[cluster] = alone.why
    within = [cluster for cluster in refused if not any(cluster <= whole for whole in kept)]
    apart += dict.fromkeys(Apart(_reductions(cluster), refused[cluster]) for cluster in within)
    return kept


def _reductions(cluster: Cluster) -> tuple[str, ...]:
    """The names of the reductions of a cluster, in the order of the block."""
    return tuple(node.call.args[0].name_hint for node in in_order(cluster) if node.kind is Kind.REDUCTION)


def _joined(
    graph: Graph,
    merger: Merger,
    trials: Trials,
    clusters: dict[Node, Cluster],
    feeds: Mapping[Node, Sequence[Node]],
    refused: dict[Cluster, str],
    tried: Counter[Cluster],
) -> Cluster | None:
    """The next two clusters that are one; None where none are left.

    Parameters
    ----------
    feeds : the reductions that each one feeds.
    refused, tried : to which those are added that are not one, and how often each was tried.
    """
    for node, readers in feeds.items():
        for other in dict.fromkeys(clusters[reader] for reader in readers):
            if other == clusters[node]:
                continue
            wanted = clusters[node] | other
            if wanted in refused:
                continue
            whole = graph.convex(wanted)
            if whole is None:
                refused[wanted] = "a path between them leads through what is not read as a map"
            elif why := _why_not_tried(graph, whole, (clusters[node], other), clusters):
                refused[wanted] = why
            elif max(tried[one] for one in (clusters[node], other)) >= MOST_TRIED:
                refused[wanted] = f"one of them was tried with {MOST_TRIED} others in vain"
            elif (trial := trials.of(merger.of(outline(graph, whole)))).whole:
                return whole
            else:
                refused[wanted] = trial.why
                tried.update((clusters[node], other))
    return None


def _why_not_tried(graph: Graph, whole: Cluster, parts: tuple[Cluster, Cluster], clusters: dict[Node, Cluster]) -> str:
    """Why two clusters are not tried as one; empty where they are."""
    if foreign := [node for node in in_order(whole) if node in clusters and clusters[node] not in parts]:
        return f"{foreign[0].call.args[0].name_hint} lies between them"
    if len(whole) > MOST_NODES:
        return f"they are {len(whole)} operators together, and {MOST_NODES} at most are tried"
    before, given = [outline(graph, part).outputs for part in parts], outline(graph, whole).outputs
    stored = len(given) <= max(map(len, before)) or all(any(one in part for part in before) for one in given)
    return "" if stored else "what lies between them is read elsewhere too"


def _fed(node: Node, clusters: dict[Node, Cluster]) -> list[Node]:
    """The reductions that a node feeds through maps."""
    found: dict[Node, None] = {}
    seen, todo = {node}, [node]
    while todo:
        for reader in todo.pop().readers:
            if reader in clusters:
                found[reader] = None
            elif reader.kind not in (Kind.OPAQUE, Kind.RESHAPE) and reader not in seen:
                seen.add(reader)
                todo.append(reader)
    return list(found)


def _grown(graph: Graph, cluster: Cluster, taken: set[Node]) -> Cluster:
    """A cluster with the moves and masks that it alone reads, and with the maps of its one result."""
    own = set(cluster)
    while more := [node for node in (*_before(graph, own, taken), *_behind(graph, own, taken)) if node not in own]:
        own |= {more[0]}
        taken |= {more[0]}
    return frozenset(own)


def _before(graph: Graph, own: set[Node], taken: set[Node]) -> Iterable[Node]:
    for node in in_order(own):
        for source in node.reads:
            alone = not source.escapes and all(reader in own for reader in source.readers)
            if source.moves_alone and alone and source not in taken:
                yield source


def _behind(graph: Graph, own: set[Node], taken: set[Node]) -> Iterable[Node]:
    outputs = outline(graph, own).outputs
    if len(outputs) != 1 or outputs[0].escapes or len(set(outputs[0].readers)) != 1:
        return
    (reader, *_) = outputs[0].readers
    if (
        reader.kind is Kind.ELEMENTWISE
        and reader not in taken
        and graph.convex(frozenset(own | {reader})) == frozenset(own | {reader})
    ):
        yield reader
