"""Several calls as one: a function of Relax that `FuseTIR` merges into one PrimFunc.

p = call_tir(matmul, (q, k));  s = call_tir(softmax, (p,))      →  s = fused(q, k)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set
from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from tvm_cascade.relax.graph import Graph, Node, Result, in_order, is_tensor


@dataclass(frozen=True)
class Outline:
    """What a function of some nodes takes and gives.

    Attributes
    ----------
    nodes : in the order of the block.
    inputs : the tensors that it reads and does not make.
    outputs : the results that are read elsewhere.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[relax.Expr, ...]
    outputs: tuple[Result, ...]

    @property
    def lengths(self) -> list[tirx.Var]:
        """The symbolic lengths that no input tells: of n·m rows, n and m."""
        types = [argument.ty for argument in self.inputs]
        types += [result.var.ty for node in self.nodes for result in node.results]
        read = dict.fromkeys(length for ty in types for length in relax.analysis.tir_vars_in_type(ty))
        told = {length for argument in self.inputs for length in relax.analysis.definable_tir_vars_in_type(argument.ty)}
        return [length for length in read if length not in told]

    @property
    def arguments(self) -> list[relax.Expr]:
        """What the function is called with: the inputs, and then the lengths as one shape."""
        return [*self.inputs, *([relax.ShapeExpr(lengths)] if (lengths := self.lengths) else [])]

    @property
    def structure(self) -> Hashable:
        """What tells the function: the callees, and which results and inputs they are given."""
        made = [result.var for node in self.nodes for result in node.results]
        known = {var: place for place, var in enumerate(made)}

        def source(argument: relax.Expr) -> Hashable:
            if not is_tensor(argument):
                return str(argument)
            if isinstance(argument, relax.Var) and argument in known:
                return known[argument]
            return -1 - next(place for place, other in enumerate(self.inputs) if argument.same_as(other))

        calls = [(node.call.args[0], *map(source, node.call.args[1].fields)) for node in self.nodes]
        types = [argument.ty for argument in self.inputs]
        symbolic = [str(ty) for ty in types if relax.analysis.tir_vars_in_type(ty)]
        return tuple(calls), tuple(known[result.var] for result in self.outputs), tuple(symbolic)

    def params(self, name: str) -> list[relax.Var]:
        return [relax.Var(f"{name}{k}", argument.ty) for k, argument in enumerate(self.arguments)]


def outline(graph: Graph, members: Iterable[Node]) -> Outline:
    """What a function of nodes takes and gives, with what each reader computes by itself."""
    every, todo = set(members), list(members)
    while todo:
        more = [source for source in todo.pop().reads if source in graph.again and source not in every]
        every.update(more)
        todo += more
    nodes = in_order(every)
    made = {result.var for node in nodes for result in node.results}
    inputs: list[relax.Expr] = []
    for node in nodes:
        for argument in node.arguments:
            if argument not in made and not any(argument.same_as(other) for other in inputs):
                inputs.append(argument)
    givers = every - graph.again or set(members)
    own = [result for node in nodes if node in givers for result in node.results]
    outputs = [result for result in own if _is_read_outside(graph, result, every)]
    return Outline(tuple(nodes), tuple(inputs), tuple(outputs))


def _is_read_outside(graph: Graph, result: Result, nodes: Set[Node]) -> bool:
    """Whether others read a result, or what they compute of it by themselves."""
    again = [reader for reader in result.readers if reader in nodes & graph.again]
    return (
        result.escapes
        or any(reader not in nodes for reader in result.readers)
        or any(_is_read_outside(graph, one, nodes) for reader in again for one in reader.results)
    )


def emit(builder: relax.BlockBuilder, one: Outline, name: str) -> relax.GlobalVar:
    """The function, as a primitive of the builder's module."""
    params = one.params("p")
    known: dict[relax.Var, relax.Var] = {}

    def given(argument: relax.Expr) -> relax.Expr:
        if isinstance(argument, relax.Var) and argument in known:
            return known[argument]
        return next(
            (param for param, other in zip(params, one.inputs, strict=False) if argument.same_as(other)), argument
        )

    with builder.function(name, params, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            for node in one.nodes:
                arguments = relax.Tuple([given(argument) for argument in node.call.args[1].fields])
                call = relax.Call(node.call.op, [node.call.args[0], arguments], node.call.attrs, node.call.ty_args)
                whole = builder.emit(call) if any(result.part is not None for result in node.results) else None
                for result in node.results:
                    value = call if whole is None else relax.TupleGetItem(whole, result.part)
                    known[result.var] = builder.emit_output(value) if result in one.outputs else builder.emit(value)
        results = [known[result.var] for result in one.outputs]
        return builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))


class Merger:
    """The PrimFuncs that `FuseTIR` makes of nodes, each made once: the layers of a model are alike.

    Parameters
    ----------
    mod : whose PrimFuncs are called.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        self._mod = mod
        self._known: dict[Hashable, tirx.PrimFunc] = {}

    def of(self, one: Outline) -> tirx.PrimFunc:
        structure = one.structure
        if structure not in self._known:
            self._known[structure] = _merged(self._mod, one)
        return self._known[structure]


def _merged(mod: tvm.IRModule, one: Outline) -> tirx.PrimFunc:
    used = {node.call.args[0] for node in one.nodes}
    builder = relax.BlockBuilder(tvm.IRModule({callee: mod[callee] for callee in used}))
    function = emit(builder, one, "cascade")
    params = one.params("q")
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(function, params))
        builder.emit_func_output(result)
    fused = relax.transform.FuseTIR()(builder.finalize())
    (func,) = [func for func in fused.functions.values() if isinstance(func, tirx.PrimFunc)]
    return func
