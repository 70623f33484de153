"""Lone reductions with the maps around them, where one kernel of a GPU computes all of it in one pass.

    w = cast(x);  s = mean(w·w);  y = cast(w·rsqrt(s + eps)·g)      →  y = fused(x, g)

`FuseOps` takes in what follows a reduction, not what it reads: that is a kernel by itself, and a tensor in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import tvm
from tvm import tirx

from tvm_cascade.analysis.extent import extent_of
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Gpu
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.plan import Plan
from tvm_cascade.plan.search import find_plan
from tvm_cascade.relax.graph import Graph, Node, in_order
from tvm_cascade.relax.kinds import Kind
from tvm_cascade.relax.outline import merged, outline
from tvm_cascade.relax.remembered import Remembered
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.transform.fuse_function import fuse_function, read_function

Cluster = frozenset[Node]


class Plans:
    """Plans of functions for a GPU, remembered by structure.

    Parameters
    ----------
    options, gpu : as of the pass.
    """

    def __init__(self, options: FuseOptions, gpu: Gpu) -> None:
        self.setting = Setting(gpu, options)
        self._known = Remembered(self._find)

    def of(self, func: tirx.PrimFunc) -> Plan | None:
        """The plan; None of a function that cannot be read."""
        return self._known.of(func)

    def _find(self, func: tirx.PrimFunc) -> Plan | None:
        named = func.with_attr("global_symbol", "main")
        outcome = fuse_function(named, self.setting.options, self.setting.gpu)
        return None if outcome.program is None else find_plan(outcome, "main", self.setting)


def with_surroundings(graph: Graph, mod: tvm.IRModule, plans: Plans, taken: Iterable[Node]) -> list[Cluster]:
    """The reductions that are merged with what they read.

    Parameters
    ----------
    taken : nodes that are merged already.
    """
    found, taken = list[Cluster](), set(taken)
    for node in graph.nodes:
        if node.kind is Kind.REDUCTION and node not in taken and _feeding(graph, frozenset([node]), taken):
            cluster = _grown(graph, node, taken)
            if _is_one_pass(plans, graph, mod, cluster):
                found.append(cluster)
                taken |= cluster
    return found


def _is_one_pass(plans: Plans, graph: Graph, mod: tvm.IRModule, cluster: Cluster) -> bool:
    """Whether one kernel computes a cluster, in less time than its nodes are estimated to take."""
    whole = plans.of(merged(mod, outline(graph, cluster)))
    if whole is None or len(whole.steps) != 1 or not isinstance(whole.steps[0].chosen, Kernel):
        return False
    apart = [plans.of(merged(mod, outline(graph, [node]))) for node in in_order(cluster)]
    return all(plan is not None for plan in apart) and whole.seconds < sum(plan.seconds for plan in apart if plan)


def _grown(graph: Graph, node: Node, taken: set[Node]) -> Cluster:
    """A reduction with the maps of its one result, and then those that all of these alone read."""
    own = frozenset([node])
    while more := _following(graph, own, taken) or _feeding(graph, own, taken):
        own |= {more[0]}
    return own


def _feeding(graph: Graph, own: Cluster, taken: set[Node]) -> list[Node]:
    """Maps that are read by the cluster alone, and whose elements its reductions read once each."""
    sources = dict.fromkeys(source for node in in_order(own) for source in node.reads)
    size = max(_positions(node) or 0 for node in own)
    return [
        source
        for source in sources
        if source.kind in (Kind.ELEMENTWISE, Kind.MOVEMENT)
        and source not in own | taken
        and not source.escapes
        and all(reader in own for reader in source.readers)
        and _elements(source) == size
    ]


def _following(graph: Graph, own: Cluster, taken: set[Node]) -> list[Node]:
    outputs = outline(graph, own).outputs
    if len(outputs) != 1 or outputs[0].escapes:
        return []
    readers = list(dict.fromkeys(outputs[0].readers))
    fits = len(readers) == 1 and readers[0].kind is Kind.ELEMENTWISE and readers[0] not in taken
    return readers if fits and graph.convex(own | {readers[0]}) == own | {readers[0]} else []


def _elements(node: Node) -> int | None:
    """Of its one result; None where it has several, or its shape is not known."""
    shape = node.results[0].var.ty.shape if len(node.results) == 1 else None
    return None if shape is None else _product(shape.values)


def _positions(node: Node) -> int | None:
    """The rows of a node's reductions times their length: how often they read an element of all that they read."""
    program = read_function(node.operator.func)
    assert isinstance(program, Program), "a node that is read"
    reduced = [stage for stage in program.stages if stage.reducer is not None]
    counts = [_product([extent_of(e) for e in stage.extents.values()]) for stage in reduced]
    return None if not counts or None in counts else max(count for count in counts if count is not None)


def _product(extents: Iterable[object]) -> int | None:
    """None where one is symbolic."""
    whole = [extent_of(extent) for extent in extents]
    return None if not all(isinstance(extent, int) for extent in whole) else math.prod(whole)
