"""The calls of PrimFuncs in a dataflow block of a Relax function, and who reads whose result."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import tvm
import tvm_ffi
from tvm import ir, relax, sym, tirx
from tvm.ir import transform

from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import Extent, extent_of, loads_of, same, uses, variables_of, within, without_casts
from tvm_cascade.relax.views import keeps_order
from tvm_cascade.tile.estimate import NOMINAL
from tvm_cascade.transform.fuse_function import read_function

MOST_AGAIN = 16
"""Operators that a reader computes by itself, those that several of these read each time."""

CALL_TIR = ir.Op.get("relax.call_tir")


@dataclass(eq=False)
class Result:
    """A tensor that a node makes.

    Attributes
    ----------
    var : what it is bound to: the call itself, or a part of its tuple.
    part : which part of the tuple that is; None where the call has one result.
    readers : nodes that read it.
    escapes : something that is no node reads it.
    """

    var: relax.Var
    part: int | None = None
    readers: list[Node] = field(default_factory=list)
    escapes: bool = False


@dataclass(eq=False)
class Node:
    """A call of a PrimFunc.

    Attributes
    ----------
    place : among the nodes of the block, in its order.
    call : what is bound.
    operator : what is called.
    results : the tensors that are read of it.
    reads : nodes whose results it reads.
    """

    place: int
    call: relax.Call
    operator: Operator
    results: list[Result] = field(default_factory=list)
    reads: list[Node] = field(default_factory=list)

    @property
    def readers(self) -> list[Node]:
        return [reader for result in self.results for reader in result.readers]

    @property
    def only(self) -> relax.Var | None:
        """What its result is bound to, where it has one alone."""
        return self.results[0].var if len(self.results) == 1 else None

    @property
    def escapes(self) -> bool:
        """Whether something that is no node reads a result."""
        return any(result.escapes for result in self.results)

    @property
    def kind(self) -> Kind:
        return self.operator.kind

    @property
    def moves_alone(self) -> bool:
        """Whether it moves elements, as they are or into a wider dtype: what narrows them goes to who stores them."""
        if self.kind is not Kind.MOVEMENT or self.only is None:
            return False
        sizes = [int(tvm.DataType(str(tensor.ty.dtype)).itemsize) for tensor in (*self.arguments, self.only)]
        return max(sizes) == sizes[-1]

    @property
    def arguments(self) -> list[relax.Expr]:
        """The tensors that it reads; lengths that are handed over by themselves are left out."""
        return [argument for argument in self.call.args[1].fields if is_tensor(argument)]


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
        self._results: dict[relax.Var, Result] = {}
        self.unread: list[tuple[str, str]] = []
        """Calls that are no nodes: the PrimFunc, and why."""
        operators: dict[ir.GlobalVar, Operator] = {}
        whole = _read_whole(block, outside := list(outside))
        for binding in block.bindings:
            if _is_node(binding, mod) and binding.var in whole:
                self.unread.append((binding.value.args[0].name_hint, "its results are read as one tuple"))
            elif _is_node(binding, mod):
                callee = binding.value.args[0]
                if callee not in operators:
                    operators[callee] = operator_of(mod[callee])
                node = Node(len(self.nodes), binding.value, operators[callee])
                self.nodes.append(node)
                self._of[binding.var] = node
                if not isinstance(binding.var.ty, relax.TupleType):
                    self._add(node, Result(binding.var))
            elif (made := self.node(_tuple_of(binding))) is not None:
                self._add(made, Result(binding.var, binding.value.index))
        self._used = [(one.var, self._of.get(one.var), relax.analysis.all_vars(one.value)) for one in block.bindings]
        self._connect(outside)
        self.free = self._free()
        """Nodes that read no tensor but such nodes' results, as masks and positions."""
        self.again = self._again()
        """Nodes that each reader computes by itself: those, and what is longer in memory than what it is made of."""

    def node(self, var: object) -> Node | None:
        return self._of.get(var) if isinstance(var, relax.Var) else None

    def readers_of(self, result: Result) -> list[Node]:
        """The nodes that read a result, or what each of them computes of it by itself."""
        found = dict[Node, None]()
        for reader in result.readers:
            beyond = (other for one in reader.results for other in self.readers_of(one))
            found.update(dict.fromkeys(beyond if reader in self.again else [reader]))
        return list(found)

    def _add(self, node: Node, result: Result) -> None:
        node.results.append(result)
        self._of[result.var], self._results[result.var] = node, result

    def _connect(self, outside: Iterable[relax.Var]) -> None:
        for _, reader, used in self._used:
            for var in dict.fromkeys(used):
                result = self._results.get(var)
                if result is None:
                    continue
                if reader is None:
                    result.escapes = True
                else:
                    result.readers.append(reader)
                    reader.reads.append(self._of[var])
        for var in outside:
            if (result := self._results.get(var)) is not None:
                result.escapes = True

    def _free(self) -> frozenset[Node]:
        found: set[Node] = set()
        for node in self.nodes:
            plain = node.kind in (Kind.ELEMENTWISE, Kind.MOVEMENT)
            if plain and all(self.node(argument) in found for argument in node.arguments):
                found.add(node)
        return frozenset(found)

    def _again(self) -> frozenset[Node]:
        """Casts to wider dtypes, broadcasts, and few operators on them that cost nothing beside memory."""
        found, read = set[Node](), dict[Node, tuple[dict[relax.Expr, float], int]]()
        for node in self.nodes:
            if (made := node.only) is None or node.kind not in (Kind.ELEMENTWISE, Kind.MOVEMENT):
                continue
            given, operators = dict[relax.Expr, float](), 1
            for argument in node.arguments:
                source = self.node(argument)
                if source in found:
                    given |= read[source][0]
                    operators += read[source][1]
                else:
                    given[argument] = bytes_of(argument)
            shorter = sum(given.values()) < bytes_of(made) and operators <= MOST_AGAIN and node.operator.is_cheap
            if node in self.free or shorter:
                found.add(node)
                read[node] = given, operators
        return frozenset(found)

    def convex(self, members: frozenset[Node]) -> frozenset[Node] | None:
        """The members with all nodes on paths between them; None where such a path leaves the nodes."""
        places = [node.place for node in members]
        within = range(min(places), max(places) + 1)  # what a path between members leads through
        below, above = _reached(members, "readers", within), _reached(members, "reads", within)
        between = (below & above) - members
        whole = members | between
        if any(node.kind is Kind.OPAQUE for node in between) or self._leaves(whole):
            return None
        return whole

    def is_convex(self, members: frozenset[Node]) -> bool:
        """Whether no path between members leads through others, but through what each reader computes by itself."""
        return (self.convex(members) or self.again) - self.again == members - self.again

    def _leaves(self, members: frozenset[Node]) -> bool:
        """Whether something that is no node reads a member's result and is read, in the end, by a member."""
        if not any(node.escapes for node in members):
            return False
        tainted: set[relax.Var] = set()
        for var, node, used in self._used:
            if node in members:
                if any(one in tainted for one in used):
                    return True
            elif any(one in tainted or (node is None and self._of.get(one) in members) for one in used):
                tainted.add(var)
        return False


def graphs_of(mod: tvm.IRModule, func: relax.Function) -> Iterator[tuple[int, Graph]]:
    """The dataflow blocks of a function, each with its place among its blocks."""
    blocks = func.body.blocks if isinstance(func.body, relax.SeqExpr) else []
    for place, block in enumerate(blocks):
        if isinstance(block, relax.DataflowBlock):
            others = [b for k, one in enumerate(blocks) if k != place for b in one.bindings]
            outside = [var for binding in others for var in relax.analysis.all_vars(binding.value)]
            yield place, Graph(block, mod, outside + relax.analysis.all_vars(func.body.body))


def _is_node(binding: relax.Binding, mod: tvm.IRModule) -> bool:
    value = binding.value
    called = isinstance(binding, relax.VarBinding) and isinstance(value, relax.Call) and value.op == CALL_TIR
    return called and isinstance(mod[value.args[0]], tirx.PrimFunc)


def is_tensor(expression: relax.Expr) -> bool:
    """Whether an argument of a call is a tensor, not a length."""
    return isinstance(expression.ty, relax.TensorType)


def bytes_of(tensor: relax.Expr) -> float:
    """What a tensor takes in memory, where its symbolic extents are long ones; infinite of one of unknown shape."""
    if not isinstance(tensor.ty.shape, relax.ShapeExpr):
        return math.inf
    extents = (extent_of(extent) for extent in tensor.ty.shape.values)
    elements = math.prod(extent if isinstance(extent, int) else NOMINAL for extent in extents)
    return elements * int(tvm.DataType(str(tensor.ty.dtype)).itemsize)


def _tuple_of(binding: relax.Binding) -> relax.Expr | None:
    """The tuple of which a binding names a part."""
    is_part = isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.TupleGetItem)
    return binding.value.tuple_value if is_part else None


def _read_whole(block: relax.DataflowBlock, outside: Iterable[relax.Var]) -> set[relax.Var]:
    """The tuples that are read otherwise than part by part."""
    found = {var for var in outside if isinstance(var.ty, relax.TupleType)}
    for binding in block.bindings:
        if _tuple_of(binding) is None:
            found.update(var for var in relax.analysis.all_vars(binding.value) if isinstance(var.ty, relax.TupleType))
    return found


def _reached(start: Iterable[Node], along: str, within: range) -> set[Node]:
    found: set[Node] = set()
    todo = list(start)
    while todo:
        for node in getattr(todo.pop(), along):
            if node.place in within and node not in found:
                found.add(node)
                todo.append(node)
    return found


def in_order(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.place)


# What is found out about PrimFuncs, remembered by structure: equal layers of a model are looked at once.


T = TypeVar("T")


class Remembered(Generic[T]):
    """A function of PrimFuncs, computed once for those that are equal in structure.

    Parameters
    ----------
    find : that function.
    """

    def __init__(self, find: Callable[[tirx.PrimFunc], T]) -> None:
        self.find = find
        self._known: dict[tvm_ffi.StructuralKey, T] = {}

    def values(self) -> Iterable[T]:
        """Those of the functions that were asked for so far."""
        return self._known.values()

    def of(self, func: tirx.PrimFunc) -> T:
        key = tvm_ffi.StructuralKey(func)  # type: ignore[call-arg]
        if key not in self._known:
            self._known[key] = self.find(func)
        return self._known[key]


# What the PrimFunc of an operator does: reduce, compute each element, move data, or something that is not read.


class Kind(enum.Enum):
    """What a PrimFunc does."""

    REDUCTION = "reduces"
    ELEMENTWISE = "computes each element by itself"
    MOVEMENT = "moves elements, one axis of the source to one of the result"
    RESHAPE = "moves elements, and joins or splits axes"
    OPAQUE = "is not read"


_BY_ELEMENT = (Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.RESHAPE)

_PATTERN, _INJECTIVE, _UNREAD = "op_pattern", 2, 8
"""The attribute that `FuseOps` reads, and TVM's numbers for functions of which each element is computed by itself, and
for those that it cannot read."""


@transform.module_pass(opt_level=0, name="AnnotateGathers")
class AnnotateGathers:
    """Gathers as what computes each element by itself, so that `FuseOps` merges them with what is around them.

    `AnnotateTIROpPattern` cannot read a function whose indices are data.
    """

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        for var, func in mod.functions_items():
            pattern = func.attrs.get(_PATTERN) if isinstance(func, tirx.PrimFunc) and func.attrs else None
            if pattern == _UNREAD and (operator := operator_of(func)).gathers and operator.kind in _BY_ELEMENT:
                mod.update_func(var, func.with_attr(_PATTERN, _INJECTIVE))
        return mod


@dataclass(frozen=True)
class Operator:
    """The PrimFunc of a `call_tir`, as it is read.

    Attributes
    ----------
    func : itself.
    kind : what it does.
    reduced : the extents of each of its reductions, rows and the axis that is reduced.
    casts : it does nothing but cast elements.
    """

    func: tirx.PrimFunc
    kind: Kind
    reduced: tuple[tuple[Extent, ...], ...] = ()
    casts: bool = False

    @cached_property
    def views(self) -> bool:
        """Whether it copies a tensor as it lies in memory."""
        return self.kind in (Kind.MOVEMENT, Kind.RESHAPE) and keeps_order(self.func)

    @cached_property
    def is_cheap(self) -> bool:
        """Whether it computes an element of few by sums, products and selections, whose places no data say."""
        return not self.gathers and not within(self.func.body, ir.Call)

    @cached_property
    def gathers(self) -> bool:
        """Whether it reads at indices that are data."""
        return any(loads_of(index) for load in loads_of(self.func.body) for index in load.indices)


def _takes_sizes(func: tirx.PrimFunc) -> bool:
    """Whether a parameter is a size that no tensor tells, which `FuseTIR` loses."""
    extents = [extent for param in func.params if tirx.is_buffer_var(param) for extent in param.ty.shape]
    sizes = [param for param in func.params if not tirx.is_buffer_var(param)]
    return any(not any(uses(extent, [size]) for extent in extents) for size in sizes)


def operator_of(func: tirx.PrimFunc) -> Operator:
    """What a PrimFunc does; never raises on one."""
    program = read_function(func)
    if _takes_sizes(func) or not isinstance(program, Program) or program.opaque:
        return Operator(func, Kind.OPAQUE)
    if reduced := tuple(tuple(one.extents.values()) for one in program.stages if one.reducer is not None):
        return Operator(func, Kind.REDUCTION, reduced)
    if not all(isinstance(without_casts(stage.value), ir.TensorLoad) for stage in program.stages):
        return Operator(func, Kind.ELEMENTWISE)
    casts = len(program.stages) == 1 and _keeps_places(program.stages[0])
    return Operator(func, Kind.MOVEMENT if all(map(_keeps_axes, program.stages)) else Kind.RESHAPE, casts=casts)


def _keeps_places(stage: Stage) -> bool:
    source = without_casts(stage.value)
    return len(source.indices) == len(stage.indices) and all(map(same, source.indices, stage.indices))


def _keeps_axes(stage: Stage) -> bool:
    """Whether each index of what is read has one variable at most: a reshape that joins axes is a view for TVM's VM."""
    analyzer = sym.Analyzer()
    for variable, extent in stage.extents.items():
        analyzer.bind(variable, ir.Range(0, extent_of(extent)))
    indices = [analyzer.simplify(index) for load in loads_of(stage.value) for index in load.indices]
    return all(len({variable.name for variable in variables_of(index)}) <= 1 for index in indices)
