"""`FuseCascades`: the pass of Relax that merges the operators of a cascade into one PrimFunc."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import transform
from tvm.target import Target
from typing_extensions import Unpack

from tvm_cascade.analysis.tir import in_turn
from tvm_cascade.devices.device import Device, Gpu
from tvm_cascade.devices.read import ANY_CPU, device_of
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.options import FuseOptions, Options, takes_options
from tvm_cascade.relax.graph import Graph, Kind, Node, bytes_of, graphs_of
from tvm_cascade.relax.grouping import MOST_NODES, Cluster, Trials, cascades_of, outcomes_of
from tvm_cascade.relax.memory import sparing_memory
from tvm_cascade.relax.outline import Merger, Outline, emit, outline
from tvm_cascade.relax.surroundings import Plans, feeding, followed, reading, with_surroundings
from tvm_cascade.report.group import Apart


@takes_options
def FuseCascades(target: str | dict[str, Any] | Target | None = None, **options: Unpack[Options]) -> transform.Pass:
    """Merges calls of PrimFuncs that make one cascade of reductions into one call, where fusing them gains.

    It belongs after LegalizeOps and before FuseOps. What it merges is a PrimFunc that `FuseCascadedReductions` fuses;
    what something else reads too stays a result. Reshapes are left outside, where they are views.

        matmul, softmax, matmul          →  attention in one function
        matmul, log_softmax, nll_loss    →  the loss in one function

    For a GPU reductions of one tensor, and a reduction and the maps around it, are merged as well, where one kernel
    computes all of it in one pass:

        matmul, matmul, silu, multiply   →  the gated half of a feed-forward layer in one function
        cast, multiply, mean, rsqrt, …   →  RMSNorm in one function
        transpose, attention, transpose  →  attention in one function

    Parameters
    ----------
    target : whose time decides; the loops of any CPU by default.
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Raises
    ------
    OptionError
        When an option is unknown or has a value outside its domain.
    InputError
        When the target is not one that we schedule for.
    """
    chosen = FuseOptions.from_environment(**options)
    device: Device = ANY_CPU
    if target is not None:
        resolved = resolve_target(target)
        device, chosen = device_of(resolved), backend_of(resolved).options(chosen)
    return cascades_fused(chosen, device, [], plans_for(chosen, device))


def plans_for(chosen: FuseOptions, device: Device) -> Plans | None:
    """The plans that functions are merged by; None where they are not for a GPU."""
    return Plans(chosen, device) if isinstance(device, Gpu) else None


def cascades_fused(chosen: FuseOptions, device: Device, apart: list[Apart], plans: Plans | None) -> transform.Pass:
    """The pass for a device.

    Parameters
    ----------
    apart : to which the operators are added that were looked at and are not merged.
    plans : to which those of functions are added that were planned.
    """

    def run(mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        trials = Trials(chosen, device, outcomes_of(chosen, device) if plans is None else plans.outcomes)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function) and not (func.attrs and "Primitive" in func.attrs):
                mod = _function(mod, var.name_hint, trials, plans, apart)
        return mod

    return transform.module_pass(run, opt_level=0, name="FuseCascades")


def _function(mod: tvm.IRModule, name: str, trials: Trials, plans: Plans | None, apart: list[Apart]) -> tvm.IRModule:
    func = mod[name]
    blocks = list(func.body.blocks) if isinstance(func.body, relax.SeqExpr) else []
    builder, changed = relax.BlockBuilder(mod), False
    for place, graph in graphs_of(mod, func):
        apart += (Apart((callee,), f"{why}, and such calls are not merged") for callee, why in graph.unread)
        merger = Merger(mod)
        found = cascades_of(graph, merger, trials, apart)
        if plans is not None:
            found += with_siblings(graph, merger, plans, set[Node]().union(*found))
            found = sparing_memory(graph, merger, plans, with_surroundings(graph, merger, plans, found))
        if found:
            blocks[place], changed = _block(graph, found, builder), True
    if not changed:
        return mod
    module = builder.finalize()
    body = relax.SeqExpr(blocks, func.body.body)
    module.update_func(
        module.get_global_var(name), relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    )
    merged = relax.transform.FuseTIR()(relax.transform.Normalize()(module))
    merged.update_func(merged.get_global_var(name), relax.analysis.remove_all_unused(merged[name]))
    return merged


def _block(graph: Graph, found: list[Cluster], builder: relax.BlockBuilder) -> relax.DataflowBlock:
    """The block with a call in place of each cluster, bound where the last of its nodes was, in an order of reading."""
    owner = {node: cluster for cluster in found for node in cluster if node not in graph.again}
    outlines = {cluster: outline(graph, cluster) for cluster in found}
    pending: list[tuple[list[relax.Binding], set[relax.Var]]] = []
    done = set[Cluster]()
    for binding in graph.block.bindings:
        node = graph.node(binding.var)
        cluster = owner.get(node) if node is not None else None
        if cluster is None:
            pending.append(([binding], {*relax.analysis.all_vars(binding.value)}))
        elif cluster not in done:
            done.add(cluster)
            one = outlines[cluster]
            calls = _calls(one, emit(builder, one, _name(one.nodes)))
            pending.append((calls, {var for e in one.inputs for var in relax.analysis.all_vars(e)}))
    place = {binding.var: k for k, (bindings, _) in enumerate(pending) for binding in bindings}
    needs = {k: {place[var] for var in read if var in place} - {k} for k, (_, read) in enumerate(pending)}
    ordered, stuck = in_turn(needs)
    assert not stuck, "clusters are convex, so that some binding is ready"
    return relax.DataflowBlock([binding for k in ordered for binding in pending[k][0]])


def _calls(one: Outline, function: relax.GlobalVar) -> list[relax.Binding]:
    call = relax.Call(function, one.arguments)
    if len(one.outputs) == 1:
        return [relax.VarBinding(one.outputs[0].var, call)]
    both = relax.DataflowVar("results", relax.TupleType([result.var.ty for result in one.outputs]))
    parts = [relax.VarBinding(result.var, relax.TupleGetItem(both, k)) for k, result in enumerate(one.outputs)]
    return [relax.VarBinding(both, call), *parts]


def _name(nodes: tuple[Node, ...]) -> str:
    """Of the functions that reduce."""
    names = dict.fromkeys(node.call.args[0].name_hint for node in nodes if node.kind is Kind.REDUCTION)
    return "_".join(("cascade", *names))[:80]


# Reductions that read a tensor in common as one function, where one kernel of a GPU computes them in one pass over it.


def with_siblings(graph: Graph, merger: Merger, plans: Plans, taken: Iterable[Node]) -> list[Cluster]:
    """The pairs of reductions that are merged, each with the maps of their results.

    Parameters
    ----------
    taken : nodes that are merged already.
    """
    found, taken = list[Cluster](), set(taken)
    for one, other in _pairs(graph, taken):
        if (one | other) & taken:
            continue
        cluster = _met(graph, one | other, taken)
        together = plans.in_one_kernel(merger.of(outline(graph, cluster)))
        outside = set(graph.nodes) - cluster
        apart = [_seconds(graph, merger, plans, followed(graph, own, outside)) for own in (one, other)]
        if together is not None and together < sum(apart):
            found.append(cluster)
            taken |= cluster
    return found


def _pairs(graph: Graph, taken: set[Node]) -> Iterator[tuple[Cluster, Cluster]]:
    """Reductions of results of one shape that read a tensor in common, neither of which waits for the other.

    Each with the maps that it alone reads; of what these read, the longest tensor counts.
    """
    reductions = [node for node in graph.nodes if node.kind is Kind.REDUCTION and node not in taken]
    fed = {node: feeding(graph, frozenset([node]), taken) for node in reductions}
    read = {node: [*node.arguments, *_longest(outline(graph, own).inputs)] for node, own in fed.items()}
    for place, one in enumerate(reductions):
        for other in reductions[place + 1 :]:
            shared = any(tensor.same_as(met) for tensor in read[one] for met in read[other])
            if shared and _are_alike(one.only, other.only) and graph.is_convex(fed[one] | fed[other]):
                yield fed[one], fed[other]


def _longest(tensors: Sequence[relax.Expr]) -> list[relax.Expr]:
    most = max(map(bytes_of, tensors), default=0)
    return [tensor for tensor in tensors if bytes_of(tensor) == most]


def _are_alike(one: relax.Var | None, other: relax.Var | None) -> bool:
    """Whether two reductions have one result each, of one shape and dtype."""
    return one is not None and other is not None and tvm_ffi.structural_equal(one.ty, other.ty)


def _met(graph: Graph, own: Cluster, taken: set[Node]) -> Cluster:
    """The reductions with the maps that follow, as far as these leave the fewest results."""
    found, fewest = own, len(outline(graph, own).outputs)
    while len(own) < MOST_NODES and (more := reading(graph, own, taken)) is not None:
        own |= {more}
        if (results := len(outline(graph, own).outputs)) <= fewest:
            found, fewest = own, results
    return found


def _seconds(graph: Graph, merger: Merger, plans: Plans, cluster: Cluster) -> float:
    return plans.seconds(merger.of(outline(graph, cluster)))
