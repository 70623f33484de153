"""Operators around a large tensor as one function, where nobody then needs all of the tensor at once.

s = matmul(x, w);  m = max(s);  t = sum(exp(s − m))                  →  m, t = fused(x, w)
p = map(matmul(x, w));  o = matmul(p, v);  g = matmul(pᵀ, y)         →  o, g = fused(x, w, v, y), in chunks of p
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm import relax, tirx

from tvm_cascade.analysis.tir import extent_of
from tvm_cascade.plan.chunked import MOST_BYTES, MOST_TIME, Chunks, Cost, in_chunks, least_bytes
from tvm_cascade.plan.plan import bytes_of
from tvm_cascade.relax.graph import Graph, Kind, Node
from tvm_cascade.relax.graph import bytes_of as tensor_bytes
from tvm_cascade.relax.grouping import MOST_NODES, Cluster
from tvm_cascade.relax.outline import Merger, outline
from tvm_cascade.relax.surroundings import Plans


def sparing_memory(graph: Graph, merger: Merger, plans: Plans, clusters: Sequence[Cluster]) -> list[Cluster]:
    """Clusters, with those around large tensors as one where that spares memory in about the same time."""
    found, tried, least = list(clusters), {*clusters, None}, least_bytes(plans.setting.options)
    for node in graph.nodes:
        if node in graph.again or _bytes(node) <= least:
            continue
        whole = _around(graph, node, clusters, least)
        if whole not in tried and whole is not None and _spares(graph, merger, plans, whole, clusters):
            found = [cluster for cluster in found if not cluster & whole] + [whole]
        tried.add(whole)
    return found


def _bytes(node: Node) -> float:
    """Of the results that nodes alone read, where their shapes are known."""
    tensors = [result.var for result in node.results if not result.escapes]
    return sum(tensor_bytes(tensor) for tensor in tensors if _is_static(tensor))


def _is_static(tensor: relax.Expr) -> bool:
    shape = tensor.ty.shape
    return isinstance(shape, relax.ShapeExpr) and all(isinstance(extent_of(one), int) for one in shape.values)


def _around(graph: Graph, node: Node, clusters: Sequence[Cluster], least: float) -> Cluster | None:
    """A node with all that read its result, what is large of what these read, and so on; None where that is not one.

    Of a cluster of several reductions come all.
    """
    own, todo = set[Node](), [node]
    while todo:
        one = todo.pop()
        if one in own:
            continue
        if one.kind in (Kind.OPAQUE, Kind.RESHAPE) or len(own) >= MOST_NODES:
            return None
        own.add(one)
        todo += [other for cluster in clusters if one in cluster and _reduces(cluster) > 1 for other in cluster]
        todo += [source for source in _sources(graph, one) if _bytes(source) > least]
        if _bytes(one) > least:
            todo += [reader for result in one.results for reader in graph.readers_of(result)]
    return graph.convex(frozenset(own))


def _reduces(cluster: Cluster) -> int:
    return sum(node.kind is Kind.REDUCTION for node in cluster)


def _sources(graph: Graph, node: Node) -> Iterator[Node]:
    """What a node reads, but through what it computes by itself."""
    for source in node.reads:
        if source in graph.again:
            yield from _sources(graph, source)
        else:
            yield source


def _spares(graph: Graph, merger: Merger, plans: Plans, whole: Cluster, clusters: Sequence[Cluster]) -> bool:
    """Whether a cluster as one function has few bytes of temporaries, at once or in chunks, in about the same time.

    Its reductions apart take that of their own at least; the maps between them are not counted.
    """
    search = plans.search(func := merger.of(outline(graph, whole)))
    if search is None or search.outcome.program is None:
        return False
    parts = [cluster for cluster in clusters if cluster <= whole]
    alone = (node for node in whole - set[Node]().union(*parts) if node.kind is Kind.REDUCTION)
    apart = [*parts, *(frozenset([node]) for node in alone)]
    options, cost = plans.setting.options, _cost(plans, func)
    if cost.seconds > MOST_TIME * sum(plans.seconds(merger.of(outline(graph, part))) for part in apart):
        return False
    limit, least = None if options.temporaries is None else least_bytes(options), least_bytes(options)
    if cost.bytes <= least:
        return cost.bytes <= MOST_BYTES * least
    return isinstance(in_chunks(search.outcome.program, lambda one: _cost(plans, one), cost, limit), Chunks)


def _cost(plans: Plans, func: tirx.PrimFunc) -> Cost:
    search = plans.search(func)
    return Cost(0.0, 0) if search is None else Cost(search.plan.seconds, bytes_of(search.plan.temporaries) or 0)
