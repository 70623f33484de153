"""Reductions that read a tensor in common as one function, where one kernel of a GPU computes them in one pass over it.

    g = x·Wᵀ;  u = x·Vᵀ;  y = silu(g)·u     →  y = fused(x, W, V)

What lies between their results and where these meet is computed in registers, and is no tensor in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import tvm_ffi
from tvm import relax

from tvm_cascade.relax.graph import Graph, Node
from tvm_cascade.relax.grouping import MOST_NODES, Cluster
from tvm_cascade.relax.kinds import Kind
from tvm_cascade.relax.outline import Merger, outline
from tvm_cascade.relax.surroundings import Plans, following


def with_siblings(graph: Graph, merger: Merger, plans: Plans, taken: Iterable[Node]) -> list[Cluster]:
    """The pairs of reductions that are merged, each with the maps of their results.

    Parameters
    ----------
    taken : nodes that are merged already.
    """
    found, taken = list[Cluster](), set(taken)
    for one, other in _pairs(graph):
        if one in taken or other in taken:
            continue
        cluster = _met(graph, frozenset([one, other]), taken)
        together = plans.in_one_kernel(merger.of(outline(graph, cluster)))
        apart = [_seconds(graph, merger, plans, _alone(graph, node, cluster)) for node in (one, other)]
        if together is not None and together < sum(apart):
            found.append(cluster)
            taken |= cluster
    return found


def _pairs(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Reductions of results of one shape that read a tensor in common, neither of which the other waits for."""
    reductions = [node for node in graph.nodes if node.kind is Kind.REDUCTION]
    for place, one in enumerate(reductions):
        for other in reductions[place + 1 :]:
            shared = any(argument.same_as(read) for argument in one.arguments for read in other.arguments)
            pair = frozenset([one, other])
            if shared and _are_alike(one.only, other.only) and graph.convex(pair) == pair:
                yield one, other


def _are_alike(one: relax.Var | None, other: relax.Var | None) -> bool:
    """Whether two reductions have one result each, of one shape and dtype."""
    return one is not None and other is not None and tvm_ffi.structural_equal(one.ty, other.ty)


def _met(graph: Graph, own: Cluster, taken: set[Node]) -> Cluster:
    """The reductions with the maps that follow, as far as these leave the fewest results."""
    found, fewest = own, len(outline(graph, own).outputs)
    while len(own) < MOST_NODES and (more := _reading(graph, own, taken)) is not None:
        own |= {more}
        if (results := len(outline(graph, own).outputs)) <= fewest:
            found, fewest = own, results
    return found


def _reading(graph: Graph, own: Cluster, taken: set[Node]) -> Node | None:
    """A map that computes on a result of a cluster, and on nothing that waits for it."""
    for output in outline(graph, own).outputs:
        for reader in output.readers:
            if reader.kind is not Kind.REDUCTION and _may_follow(graph, own, reader, taken):
                return reader
    return None


def _may_follow(graph: Graph, own: Cluster, reader: Node, taken: set[Node]) -> bool:
    fits = reader.kind in (Kind.ELEMENTWISE, Kind.MOVEMENT) and reader not in own | taken
    return fits and graph.convex(own | {reader}) == own | {reader}


def _alone(graph: Graph, node: Node, cluster: Cluster) -> Cluster:
    """One of a cluster's reductions with the maps that follow it alone."""
    own, outside = frozenset([node]), set(graph.nodes) - cluster
    while more := following(graph, own, outside):
        own |= {more[0]}
    return own


def _seconds(graph: Graph, merger: Merger, plans: Plans, cluster: Cluster) -> float:
    return plans.seconds(merger.of(outline(graph, cluster)))
