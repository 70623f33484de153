"""Reductions with the maps around them, where one kernel of a GPU computes all of it in one pass.

    w = cast(x);  s = mean(w·w);  y = cast(w·rsqrt(s + eps)·g)      →  y = fused(x, g)
    k = transpose(x);  a = attention(q, k, v);  y = transpose(a)    →  y = fused(q, x, v)

`FuseOps` takes in what follows a reduction, not what it reads: that is a kernel by itself, and a tensor in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import tvm_ffi
from tvm import ir, relax, s_tir, sym, tirx

from tvm_cascade.analysis.tir import Extent, as_index, extent_of, product, same_extent, substitute
from tvm_cascade.devices.device import Gpu
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.search import Search
from tvm_cascade.relax.graph import Graph, Kind, Node, Remembered, in_order
from tvm_cascade.relax.grouping import MOST_NODES, outcomes_of
from tvm_cascade.relax.outline import Merger, outline
from tvm_cascade.tile.skeleton import Setting

Cluster = frozenset[Node]


class Plans:
    """Plans of functions for a GPU, remembered by structure.

    Parameters
    ----------
    options, gpu : as of the pass.
    """

    def __init__(self, options: FuseOptions, gpu: Gpu) -> None:
        self.setting = Setting(gpu, options)
        self.outcomes = outcomes_of(options, gpu)
        self._known = Remembered(self._search)

    def search(self, func: tirx.PrimFunc) -> Search | None:
        """The plans of a function; None of one that cannot be read."""
        return self._known.of(func)

    def seconds(self, func: tirx.PrimFunc) -> float:
        """Estimated seconds of a function's plan; 0 of one that cannot be read."""
        search = self._known.of(func)
        return 0.0 if search is None else search.plan.seconds

    def in_one_kernel(self, func: tirx.PrimFunc) -> float | None:
        """Estimated seconds of a function that one kernel of a skeleton computes; None of another."""
        search = self._known.of(func)
        return None if search is None else search.alone

    def steps(self, func: tirx.PrimFunc) -> int:
        """Of a function's plan."""
        search = self._known.of(func)
        return 0 if search is None else len(search.plan.steps)

    def of(self, functions: Mapping[str, tirx.PrimFunc]) -> dict[str, Search]:
        """What is known of functions that one kernel computes and that differ in attributes at most, names included."""
        alone, found = Remembered[list[tuple[list[str], Search]]](lambda _: []), dict[str, Search]()
        for search in self._known.values():
            if search is not None and search.known_alone:
                alone.of(_without_attributes(search.outcome.given)).append((_names(search.outcome.given), search))
        for name, func in functions.items():
            alike = [search for names, search in alone.of(_without_attributes(func)) if names == _names(func)]
            found.update({name: search} if (search := next(iter(alike), None)) is not None else {})
        return found

    def _search(self, func: tirx.PrimFunc) -> Search | None:
        outcome = self.outcomes.of(func)
        return None if outcome.program is None else Search(outcome, "main", self.setting)


def _without_attributes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return tirx.PrimFunc(func.params, func.body, func.ret_type)


def _names(func: tirx.PrimFunc) -> list[str]:
    """The names of parameters, blocks, buffers and variables, wherever they are."""
    found = [param.name for param in func.params]
    kinds = [
        (s_tir.SBlock, lambda block: found.append(block.name_hint)),
        (ir.Var, lambda var: found.append(var.name)),
        (tirx.BufferStore, lambda store: found.append(store.buffer.name)),
        (ir.TensorLoad, lambda load: found.append(load.source.name)),
    ]
    tvm_ffi.structural_walk(func.body, kinds)
    return found


def with_surroundings(graph: Graph, merger: Merger, plans: Plans, clusters: Iterable[Cluster]) -> list[Cluster]:
    """Clusters and lone reductions with what they read, or moves their result, where that is one pass; clusters else.

    Lone ones too that read what nobody stores.

    Parameters
    ----------
    clusters : of nodes that are merged already.
    """
    found = {cluster: cluster for cluster in clusters}
    taken = set[Node]().union(*found)
    lone = [frozenset([node]) for node in graph.nodes if node.kind is Kind.REDUCTION and node not in taken]
    for own in (*found, *lone):
        others = taken - own
        ways = ((grown, views) for views in (True, False) for grown in _WAYS)
        for whole in dict.fromkeys(grown(graph, own, others, views) for grown, views in ways):
            if _takes_in(graph, own, whole) and _is_one_pass(plans, graph, merger, own, whole):
                found[own] = whole
                taken |= whole
                break
        else:
            found |= {own: own} if any(source in graph.again for node in own for source in node.reads) else {}
    return list(found.values())


def _takes_in(graph: Graph, own: Cluster, whole: Cluster) -> bool:
    """Whether more is merged than computations that follow the one result of a cluster, which `FuseOps` merges too.

    But those of several results, as of normalisations by batches.
    """
    first = min(node.place for node in own)
    more = any(node.place < first or node.kind is Kind.MOVEMENT or _has_several(node) for node in whole - own)
    return more or (whole != own and len(outline(graph, own).outputs) > 1)


def _has_several(node: Node) -> bool:
    """Whether a node has several results, those that nobody reads too."""
    return isinstance(node.call.ty_args[0], relax.TupleType)


def _is_one_pass(plans: Plans, graph: Graph, merger: Merger, own: Cluster, whole: Cluster) -> bool:
    """Whether one kernel computes all, in less time than a cluster and the other nodes are estimated to take.

    Or as many kernels as compute the cluster, where these are several.
    """
    func, alone = (merger.of(outline(graph, cluster)) for cluster in (whole, own))
    together = plans.in_one_kernel(func)
    if together is None and 1 < plans.steps(func) <= plans.steps(alone):
        together = plans.seconds(func)
    if together is None:
        return False
    parts = [own, *(frozenset([node]) for node in in_order(whole - own))]
    seconds = accumulate(plans.seconds(merger.of(outline(graph, part))) for part in parts)
    return any(together < so_far for so_far in seconds)


def _with_readers(graph: Graph, own: Cluster, taken: set[Node], views: bool = True) -> Cluster:
    """A cluster as `_grown`; with what computes on its results too, where these are of rows and may stay results."""
    own, size = _grown(graph, own, taken, views), _most([positions for node in own for positions in _positions(node)])
    of_rows = any(_has_elements(argument, size) for node in own for argument in node.arguments)
    if not of_rows or all(_has_elements(output.var, size) for output in outline(graph, own).outputs):
        return own
    moves = {node for node in graph.nodes if node.kind is Kind.MOVEMENT and not node.operator.casts}
    while len(own) < MOST_NODES and (more := reading(graph, own, taken | moves)) is not None:
        own |= {more}
    return feeding(graph, own, taken, views)


def _grown(graph: Graph, own: Cluster, taken: set[Node], views: bool = True) -> Cluster:
    """A cluster as `followed`, and then with the maps that all of these alone read."""
    return feeding(graph, followed(graph, own, taken), taken, views)


def followed(graph: Graph, own: Cluster, taken: set[Node], views: bool = True) -> Cluster:
    """A cluster with the maps that alone read its one result."""
    while True:
        outputs = outline(graph, own).outputs
        alone = len(outputs) == 1 and not outputs[0].escapes and len(graph.readers_of(outputs[0])) == 1
        if not alone or (more := reading(graph, own, taken)) is None:
            return own
        own |= {more}


def _turned(graph: Graph, own: Cluster, taken: set[Node], views: bool = True) -> Cluster:
    """A cluster of several results with the maps that it alone reads, and the moves that alone read one of them."""
    if len(results := outline(graph, own).outputs) == 1:
        return own
    moves = [result.readers[0] for result in results if not result.escapes and len(result.readers) == 1]
    own |= {move for move in moves if move.moves_alone and _may_follow(graph, own, move, taken)}
    return feeding(graph, own, taken, views)


def feeding(graph: Graph, own: Cluster, taken: set[Node], views: bool = True) -> Cluster:
    """A cluster with the maps that it alone reads, but views of what others make.

    Parameters
    ----------
    views : those of what the cluster makes itself are among them, though they join axes.
    """
    own, given = own, own
    while more := _givers(graph, own, taken, views):
        own |= {more[0]}
    while outer := [node for node in own - given if node.operator.views and not (own | graph.again) & {*node.reads}]:
        own -= {outer[0]}
    return own


def _givers(graph: Graph, own: Cluster, taken: set[Node], views: bool) -> list[Node]:
    """Maps that the cluster alone reads: moves, but into fewer bytes, and what its reductions read once an element.

    Those too of which it picks elements.
    """
    sources = dict.fromkeys(source for node in in_order(own) for source in node.reads)
    size = _most([positions for node in own for positions in _positions(node)])
    return [
        source
        for source in sources
        if (
            source.moves_alone
            or (views and source.operator.views and source.only is not None)
            or _is_picked(source)
            or (source.kind in (Kind.ELEMENTWISE, Kind.MOVEMENT) and _has_elements(source.only, size))
        )
        and source not in own | taken
        and not source.escapes
        and all(reader in own for reader in source.readers)
    ]


_WAYS = (_turned, _with_readers, _grown, feeding, followed)
"""In which clusters grow, the first that is one pass."""


def reading(graph: Graph, own: Cluster, taken: set[Node]) -> Node | None:
    """A map that computes on a result of a cluster, and on nothing that waits for it."""
    for output in outline(graph, own).outputs:
        for reader in graph.readers_of(output):
            if _may_follow(graph, own, reader, taken):
                return reader
    return None


def _may_follow(graph: Graph, own: Cluster, reader: Node, taken: set[Node]) -> bool:
    fits, whole = reader.kind in (Kind.ELEMENTWISE, Kind.MOVEMENT) and reader not in own | taken, own | {reader}
    fits = fits and not _is_picked(reader)
    return fits and graph.is_convex(whole)


def _is_picked(node: Node) -> bool:
    """Whether a map is read at places that are data alone, for fewer elements than it has: these are computed there."""
    if node.kind is not Kind.ELEMENTWISE or node.escapes or (made := _elements(node.only)) is None:
        return False
    return all(
        _is_picked(one) or (one.operator.gathers and (_elements(one.only) or made) < made) for one in node.readers
    )


def _elements(tensor: relax.Expr | None) -> int | None:
    """The elements of a tensor of known shape."""
    count = None if tensor is None or tensor.ty.shape is None else _product(tensor.ty.shape.values)
    return count if isinstance(count, int) else None


def _has_elements(tensor: relax.Expr | None, count: Extent | None) -> bool:
    """Whether there is one tensor, of so many elements."""
    shape = None if tensor is None else tensor.ty.shape
    return shape is not None and count is not None and same_extent(_product(shape.values), count)


def _positions(node: Node) -> list[Extent]:
    """The rows of each of a node's reductions times its length: how often they read an element of what they read."""
    lengths = _lengths(node)
    return [_product(substitute(as_index(e, "int64"), lengths) for e in extents) for extents in node.operator.reduced]


def _lengths(node: Node) -> dict[tirx.Var, ir.Expr]:
    """The symbolic lengths of a node's function in the terms of the call."""
    made = node.call.ty_args[0]
    types = [argument.ty for argument in node.arguments] + list(
        made.fields if isinstance(made, relax.TupleType) else [made]
    )
    buffers = [param for param in node.operator.func.params if tirx.is_buffer_var(param)]
    pairs = [
        pair
        for buffer, ty in zip(buffers, types, strict=True)
        if ty.shape is not None
        for pair in zip(buffer.ty.shape, ty.shape.values, strict=True)
    ]
    return {own: given for own, given in pairs if isinstance(own, ir.Var)}


def _most(counts: Sequence[Extent]) -> Extent | None:
    """The largest of several numbers; of symbolic ones where they are equal."""
    numbers = [count for count in counts if isinstance(count, int)]
    if counts and len(numbers) == len(counts):
        return max(numbers)
    return counts[0] if counts and all(same_extent(count, counts[0]) for count in counts) else None


def _product(extents: Iterable[ir.Expr]) -> Extent:
    return product(extent_of(sym.Analyzer().simplify(extent)) for extent in extents)
