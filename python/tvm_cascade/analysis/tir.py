"""Helpers on TensorIR expressions: dtype, loads, substitution, simplification of indices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

Node = TypeVar("Node")
Known = TypeVar("Known", bound=Hashable)

DATA_PARALLEL, REDUCTION = tirx.IterVar.DataPar, tirx.IterVar.CommReduce

CONJUNCTIONS, DISJUNCTIONS = (prim.And, prim.BitwiseAnd), (prim.Or, prim.BitwiseOr)
COMPARISONS = (prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ)


def conjuncts(condition: ir.Expr) -> list[ir.Expr]:
    """Conditions that hold all where one does."""
    if isinstance(condition, CONJUNCTIONS):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


"""Of conditions: in words, and in bits as our printer and maps of truth values write them."""

_LEAVES = (ir.Var, prim.IntImm, prim.FloatImm)
"""Most indices are one, which takes far less to look at than to walk."""

_WALK = tvm_ffi.get_global_func("ffi.StructuralWalk")
"""What `tvm_ffi.structural_walk` calls with numbers of types, which take it longer to find than most walks last."""

_LOADS, _VARIABLES = (
    tvm_ffi.core.TypeSchema.from_annotation(kind).origin_type_index for kind in (ir.TensorLoad, ir.Var)
)
_OUTERMOST_FIRST = int(tvm_ffi.structural.WalkOrder.PREORDER)

_FIELDS: dict[type, tuple[str, ...]] = {
    s_tir.SBlock: (
        "iter_vars", "reads", "writes", "name_hint", "body", "init", "alloc_buffers", "match_buffers", "annotations",
    ),
    tirx.For: ("loop_var", "min", "extent", "kind", "body", "thread_binding", "annotations", "step"),
}  # fmt: skip
"""What nodes are made of, in the order of their constructors."""


def same(left: ir.Expr, right: ir.Expr) -> bool:
    return bool(tvm_ffi.structural_equal(left, right))


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def dtype_of(expression: ir.Expr) -> str:
    """The dtype of a scalar expression or of a buffer's elements."""
    ty = expression.ty
    return str(ty.dtype)


def loads_of(expression: ir.Expr) -> list[ir.TensorLoad]:
    """Every buffer load in an expression, outermost first."""
    if isinstance(expression, _LEAVES):
        return []
    found: list[ir.TensorLoad] = []
    _WALK(expression, ((_LOADS, found.append),), (), _OUTERMOST_FIRST)
    return found


def within(whole: ir.Expr | tirx.Stmt, *kinds: type[Node]) -> list[Node]:
    """The nodes of some kinds in an expression or a statement, inner ones first."""
    found: list[Node] = []
    tvm_ffi.structural_walk(whole, (kinds, found.append))
    return found


def reached(first: Iterable[Known], behind: Callable[[Known], Iterable[Known]]) -> list[Known]:
    """Some things and all that is behind them, transitively, each once."""
    found, pending = dict[Known, None](), list(first)
    while pending:
        if (one := pending.pop()) not in found:
            found[one] = None
            pending += behind(one)
    return list(found)


def in_turn(needs: Mapping[Known, Collection[Known]]) -> tuple[list[Known], list[Known]]:
    """Things, each the first of those left that needs none of them; and those that need each other in a circle."""
    left, found = dict(needs), list[Known]()
    while (free := next((one for one, needed in left.items() if left.keys().isdisjoint(needed)), None)) is not None:
        found.append(free)
        del left[free]
    return found, list(left)


class Classes:
    """Things that are joined, one by one, into classes."""

    def __init__(self) -> None:
        self.parents: dict[Hashable, Hashable] = {}

    def of(self, one: Hashable) -> Hashable:
        """What stands for a thing's class."""
        while (above := self.parents.setdefault(one, one)) != one:
            one = above
        return one

    def join(self, one: Hashable, other: Hashable) -> None:
        self.parents[self.of(other)] = self.of(one)


def rebuilt(node: Node, **fields: object) -> Node:
    """A block or a loop with some of its fields replaced."""
    values = (fields.get(name, getattr(node, name)) for name in _FIELDS[type(node)])
    return type(node)(*values)


def zero_of(var: tirx.Var) -> ir.Expr:
    """0 in the variable's dtype."""
    return tirx.const(0, dtype_of(var))


def domain_of(var: tirx.Var, extent: Extent) -> ir.Range:
    """[0, extent) in the variable's dtype."""
    return ir.Range(zero_of(var), as_index(extent, dtype_of(var)))


def analyzer_of(extents: Mapping[tirx.Var, Extent]) -> sym.Analyzer:
    analyzer = sym.Analyzer()
    for var, extent in extents.items():
        analyzer.bind(var, domain_of(var, extent))
    return analyzer


def bound_by(realize: s_tir.SBlockRealize) -> dict[tirx.Var, ir.Expr]:
    return dict(zip((iv.var for iv in realize.block.iter_vars), realize.iter_values, strict=True))


Places = Callable[[tirx.Var, Sequence[ir.Expr]], Sequence[ir.Expr]]
"""Of a buffer and indices into it: where that is."""


def in_buffers(
    code: tirx.Stmt | ir.Expr, buffers: Mapping[tirx.Var, tirx.Var], at: Places = lambda _buffer, indices: indices
) -> Any:
    """Code that loads from and stores to other buffers, at the places there of its own."""

    def load(one: ir.TensorLoad) -> ir.Expr:
        new = buffers.get(one.source)
        return one if new is None else tirx.BufferLoad(new, list(at(one.source, one.indices)))

    def store(one: tirx.BufferStore) -> tirx.Stmt:
        new = buffers.get(one.buffer)
        return one if new is None else tirx.BufferStore(new, one.value, list(at(one.buffer, one.indices)))

    return tvm_ffi.structural_map(code, [(ir.TensorLoad, load), (tirx.BufferStore, store)])


def without_casts(expression: ir.Expr) -> ir.Expr:
    while isinstance(expression, prim.Cast):
        expression = expression.value
    return expression


def reads_buffer(expression: ir.Expr, buffer: tirx.Var) -> bool:
    return any(load.source.same_as(buffer) for load in loads_of(expression))


def variables_of(expression: ir.Expr) -> list[tirx.Var]:
    if isinstance(expression, _LEAVES):
        return [expression] if isinstance(expression, ir.Var) and not tirx.is_buffer_var(expression) else []
    found: dict[tirx.Var, None] = {}

    def note(var: tirx.Var) -> None:
        if not tirx.is_buffer_var(var):
            found[var] = None

    _WALK(expression, ((_VARIABLES, note),), (), _OUTERMOST_FIRST)
    return list(found)


def uses(expression: ir.Expr, variables: Sequence[tirx.Var]) -> bool:
    return not {*variables}.isdisjoint(variables_of(expression))


def loads_by(value: ir.Expr, variable: tirx.Var) -> bool:
    """Whether an expression has a load at an index that uses a variable."""
    return any(uses(index, [variable]) for load in loads_of(value) for index in load.indices)


def is_zero(value: ir.Expr | None) -> bool:
    """Whether an expression is the number 0 as it stands."""
    return isinstance(value, (prim.IntImm, prim.FloatImm)) and value.value == 0


def substitute(expression: ir.Expr, values: dict[tirx.Var, ir.Expr]) -> ir.Expr:
    """The expression with variables replaced, all at once."""
    if isinstance(expression, (prim.IntImm, prim.FloatImm)):
        return expression
    if isinstance(expression, ir.Var):
        return values.get(expression, expression)
    return tvm_ffi.structural_map(expression, (ir.Var, lambda var: values.get(var, var)))


def simplify_index(expression: ir.Expr, extents: dict[tirx.Var, Extent]) -> ir.Expr:
    """An integer expression simplified, with each variable in [0, extent).

    A variable of extent 1 is kept, as if it had two values: which axis an index runs along must still be seen.
    """
    seen = {var: max(extent, 2) if isinstance(extent, int) else extent for var, extent in extents.items()}
    return analyzer_of(seen).simplify(expression)


# Extents as integers where they are static, as integer expressions in shape variables elsewhere.


Extent: TypeAlias = int | ir.Expr


def extent_of(expression: ir.Expr | int) -> Extent:
    """A number for a constant, the expression itself otherwise."""
    return int(expression) if isinstance(expression, (int, prim.IntImm)) else expression


def same_extent(left: Extent, right: Extent) -> bool:
    """Whether two extents are equal whatever the shape variables are."""
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int) and isinstance(right, int) and left == right
    return bool(tvm_ffi.structural_equal(left, right)) or bool(sym.Analyzer().can_prove_equal(left, right))


def as_index(extent: Extent, dtype: str) -> ir.Expr:
    if isinstance(extent, int):
        return tirx.const(extent, dtype)
    return extent if str(extent.ty.dtype) == dtype else extent.astype(dtype)


def ceil_div(extent: Extent, by: int) -> Extent:
    """How many parts of a size cover an extent."""
    if isinstance(extent, int):
        return -(-extent // by)
    return extent if by == 1 else sym.Analyzer().simplify(tirx.floordiv(extent + (by - 1), by))


def product(extents: Iterable[Extent]) -> Extent:
    number, rest = 1, None
    for extent in extents:
        if isinstance(extent, int):
            number *= extent
        else:
            rest = extent if rest is None else rest * extent
    return number if rest is None else rest if number == 1 else rest * number


def more_than_one(extent: Extent) -> bool:
    return not isinstance(extent, int) or extent > 1
