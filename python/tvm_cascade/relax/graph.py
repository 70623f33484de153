"""The calls of PrimFuncs in a dataflow block of a Relax function, and who reads whose result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import tvm
from tvm import ir, relax, tirx

from tvm_cascade.relax.kinds import Kind, Operator, operator_of

_CALL_TIR = ir.Op.get("relax.call_tir")


@dataclass(eq=False)
class Node:
    """A call of a PrimFunc with one result.

    Attributes
    ----------
    place : among the nodes of the block, in its order.
    var, call : the binding.
    operator : what is called.
    reads, readers : nodes whose results it reads, and that read its own.
    escapes : something that is no node reads the result.
    """

    place: int
    var: relax.Var
    call: relax.Call
    operator: Operator
    reads: list[Node] = field(default_factory=list)
    readers: list[Node] = field(default_factory=list)
    escapes: bool = False

    @property
    def kind(self) -> Kind:
        """What it does."""
        return self.operator.kind

    @property
    def arguments(self) -> list[relax.Expr]:
        """The tensors that it reads."""
        return list(self.call.args[1].fields)


class Graph:
    """The nodes of a dataflow block.

    Parameters
    ----------
    block : of a function of the module.
    mod : whose PrimFuncs are called.
    outside : the variables that are read beyond the block.
    """

    def __init__(self, block: relax.DataflowBlock, mod: tvm.IRModule, outside: Iterable[relax.Var]) -> None:
        self.block = block
        self.nodes: list[Node] = []
        self._of: dict[relax.Var, Node] = {}
        operators: dict[ir.GlobalVar, Operator] = {}
        for binding in block.bindings:
            if _is_node(binding, mod):
                callee = binding.value.args[0]
                if callee not in operators:
                    operators[callee] = operator_of(mod[callee])
                node = Node(len(self.nodes), binding.var, binding.value, operators[callee])
                self.nodes.append(node)
                self._of[binding.var] = node
        self._connect(outside)
        self.indices = self._closed(lambda node: True)
        """Nodes that read no tensor but such nodes' results: masks and positions, which each reader may compute."""

    def node(self, var: object) -> Node | None:
        """The node that binds a variable."""
        return self._of.get(var) if isinstance(var, relax.Var) else None

    def _connect(self, outside: Iterable[relax.Var]) -> None:
        for binding in self.block.bindings:
            reader = self._of.get(binding.var)
            for var in dict.fromkeys(variables_in(binding.value)):
                node = self._of.get(var)
                if node is None:
                    continue
                if reader is None:
                    node.escapes = True
                else:
                    node.readers.append(reader)
                    reader.reads.append(node)
        for var in outside:
            if (node := self._of.get(var)) is not None:
                node.escapes = True

    def _closed(self, accepted: Callable[[Node], bool]) -> frozenset[Node]:
        found: set[Node] = set()
        for node in self.nodes:
            plain = node.kind in (Kind.ELEMENTWISE, Kind.MOVEMENT) and accepted(node)
            if plain and all(self.node(argument) in found for argument in node.arguments):
                found.add(node)
        return frozenset(found)

    def convex(self, members: frozenset[Node]) -> frozenset[Node] | None:
        """The members with all nodes on paths between them; None where such a path leaves the nodes."""
        below, above = _reached(members, "readers"), _reached(members, "reads")
        between = (below & above) - members
        whole = members | between
        if any(node.kind is Kind.OPAQUE for node in between) or self._leaves(whole):
            return None
        return whole

    def _leaves(self, members: frozenset[Node]) -> bool:
        """Whether something that is no node reads a member's result and is read, in the end, by a member."""
        tainted: set[relax.Var] = set()
        for binding in self.block.bindings:
            node = self._of.get(binding.var)
            used = variables_in(binding.value)
            if node in members:
                if any(var in tainted for var in used):
                    return True
            elif any(var in tainted or (node is None and self._of.get(var) in members) for var in used):
                tainted.add(binding.var)
        return False


def _is_node(binding: relax.Binding, mod: tvm.IRModule) -> bool:
    value = binding.value
    called = isinstance(binding, relax.VarBinding) and isinstance(value, relax.Call) and value.op == _CALL_TIR
    if not called or len(value.args) != 2 or isinstance(binding.var.ty, relax.TupleType):
        return False  # with a third argument, lengths are handed over by themselves
    return isinstance(mod[value.args[0]], tirx.PrimFunc)


def variables_in(expression: relax.Expr) -> list[relax.Var]:
    """The variables that an expression reads."""
    found: list[relax.Var] = []
    relax.analysis.post_order_visit(expression, lambda e: found.append(e) if isinstance(e, relax.Var) else None)
    return found


def _reached(start: Iterable[Node], along: str) -> set[Node]:
    found: set[Node] = set()
    todo = list(start)
    while todo:
        for node in getattr(todo.pop(), along):
            if node not in found:
                found.add(node)
                todo.append(node)
    return found


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """Nodes in the order of the block."""
    return sorted(nodes, key=lambda node: node.place)
