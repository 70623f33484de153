"""The fused loops of a function, read from its blocks' roles, iterators and accesses; nothing goes by name.

Blocks are matched by what they index: an iterator that is a plain index of one dimension of a buffer is the same
*axis* as every other iterator that indexes that dimension. Axes are small integers, equal within one fused loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.dependence import independent
from tvm_cascade.analysis.extent import Extent, extent_of, product
from tvm_cascade.analysis.tir import loads_of, substitute, uses
from tvm_cascade.schedule.partition import keeps_storage
from tvm_cascade.transform.nest import OPAQUE, ROLE

LOOP_ROLES = frozenset({"producer", "element", "lanes", "partial", "update", "reference"})
"""Roles of the blocks inside a fused loop; all others stand before or after it."""

TILE_ROLES = frozenset({"producer", "element", "lanes", "partial"})
"""Roles whose results live for one tile; the others carry state from tile to tile."""


OPERAND = "operand"
"""Role of the blocks before a fused loop that copy what it reads."""


@dataclass(frozen=True)
class Access:
    """One load of a block, in the block's own variables."""

    buffer: tirx.Var
    indices: tuple[ir.Expr, ...]


@dataclass(frozen=True)
class BlockPlan:
    """A block of a nest, in terms of axes.

    Attributes
    ----------
    name, role : of the block; the role is "" where the rewrite gave none.
    variables : the block's variable of each axis.
    own : the axes of its loops below the shared ones, outermost first.
    extents : of those axes.
    reduce : the axes that it reduces.
    stores : its stores, in order.
    loads : its loads, those of its own output left out.
    binds : it names intermediate values by statements, which TVM's vectoriser loses.
    independent : its iterations may run in any order, and at once (`analysis.dependence`).
    """

    name: str
    role: str
    variables: dict[int, tirx.Var]
    own: tuple[int, ...]
    extents: dict[int, Extent]
    reduce: frozenset[int]
    stores: tuple[tirx.BufferStore, ...]
    loads: tuple[Access, ...]
    binds: bool
    independent: bool

    @property
    def spatial(self) -> tuple[int, ...]:
        """Its axes that it does not reduce."""
        return tuple(axis for axis in self.own if axis not in self.reduce)

    def axis_at(self, index: ir.Expr) -> int | None:
        """The axis that an index is, where it is a plain one."""
        return next((a for a, v in self.variables.items() if isinstance(index, ir.Var) and v.same_as(index)), None)

    def last_axis(self) -> int | None:
        """The axis along which its output is contiguous; None for a scalar."""
        indices = self.stores[0].indices
        return self.axis_at(indices[-1]) if indices else None

    def step(self, access: Access, axis: int) -> int | None:
        """Elements between two neighbours along an axis; None where that varies or is not known."""
        if axis not in self.variables:
            return 0
        shape = [extent_of(extent) for extent in access.buffer.ty.shape]
        total = 0
        for dim, index in enumerate(access.indices):
            moved, stride = _difference(index, self.variables[axis]), product(shape[dim + 1 :])
            if moved is None or (moved != 0 and not isinstance(stride, int)):
                return None
            total += moved * stride if isinstance(stride, int) else 0
        return total

    @property
    def is_static(self) -> bool:
        """Whether the extents of all its loops are numbers."""
        return all(isinstance(extent, int) for extent in self.extents.values())

    def axes_of(self, access: Access) -> frozenset[int]:
        """The axes that an access depends on."""
        return frozenset(a for a in self.own if self.step(access, a) != 0)


@dataclass(frozen=True)
class FusedLoop:
    """Blocks under one tile loop.

    Attributes
    ----------
    blocks : in order.
    outer : loops above each block's own: the segment loop, if any, and the tile loop.
    rows : axes of every block's output, in the order of the first state's: those that may run in parallel.
    guarded : some tile holds positions past the end of the axis.
    separable : TVM may take the tiles that need no guard apart from those that do.
    before : blocks outside that copy operands for this loop.
    after : blocks outside that read only parameters and what this loop, or another of them, writes; each has all rows.
    """

    blocks: tuple[BlockPlan, ...]
    outer: int
    rows: tuple[int, ...]
    guarded: bool
    separable: bool
    after: tuple[BlockPlan, ...]
    before: tuple[BlockPlan, ...] = ()

    def writer(self, buffer: tirx.Var) -> BlockPlan | None:
        """The block of this loop that writes a buffer."""
        return next((b for b in self.blocks for s in b.stores if s.buffer.same_as(buffer)), None)


def _difference(index: ir.Expr, var: tirx.Var) -> int | None:
    moved = substitute(index, {var: var + 1})
    change = sym.Analyzer().simplify(moved - index)
    return int(change) if isinstance(change, prim.IntImm) else None


@dataclass(frozen=True)
class _Nest:
    """A block with its loops, as found."""

    loops: tuple[tirx.For, ...]
    realize: s_tir.SBlockRealize

    @property
    def role(self) -> str:
        return str(self.realize.block.annotations.get(ROLE, ""))


def read_nests(func: tirx.PrimFunc) -> list[_Nest]:
    """Every block below the root, in order, with the loops around it, outermost first."""
    found: list[_Nest] = []

    def visit(statement: tirx.Stmt, loops: tuple[tirx.For, ...]) -> None:
        if isinstance(statement, tirx.For):
            visit(statement.body, (*loops, statement))
        elif isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                visit(part, loops)
        elif isinstance(statement, s_tir.SBlockRealize):
            found.append(_Nest(loops, statement))

    visit(func.body.block.body, ())
    return found


def read_fused_loops(func: tirx.PrimFunc) -> list[FusedLoop]:
    """The fused loops of a function, in order; none in a function that the rewrite did not make."""
    nests = read_nests(func)
    groups: list[list[_Nest]] = []
    for nest in nests:
        if nest.role not in LOOP_ROLES or not nest.loops:
            continue
        if groups and groups[-1][0].loops[0].same_as(nest.loops[0]):
            groups[-1].append(nest)
        else:
            groups.append([nest])
    loops: list[FusedLoop] = []
    for group in groups:
        taken = {plan.name for loop in loops for plan in loop.after}
        later = [n for n in nests[nests.index(group[-1]) + 1 :] if n.role not in LOOP_ROLES]
        loops.append(_read_loop(func, group, [n for n in later if n.realize.block.name_hint not in taken]))
    return loops


def plan_alone(func: tirx.PrimFunc) -> list[BlockPlan]:
    """Every block of a function as a nest of its own."""
    return [_plan(nest, 0, _own_axes(nest, 0)) for nest in read_nests(func) if nest.role != OPAQUE]


def _read_loop(func: tirx.PrimFunc, nests: list[_Nest], later: list[_Nest]) -> FusedLoop:
    outer = _shared_loops(nests)
    inside = [buffer for nest in nests for buffer in _written(nest)]
    axes = _Axes(inside)
    for nest in nests:
        axes.read(nest, outer)
    for nest in later:  # a finish may be the only block that reads the rows of several states together
        if nest.role != OPAQUE:
            axes.read(nest, 0)
    blocks = tuple(_plan(nest, outer, axes.of(nest, outer)) for nest in nests)
    state = next((b for b in blocks if b.role == "update"), blocks[0])
    rows = tuple(a for a in state.spatial if all(a in b.spatial for b in blocks))
    after: list[BlockPlan] = []
    others = [buffer for nest in read_nests(func) if not _among(nest, nests) for buffer in _written(nest)]
    known = [*inside, *(p for p in func.params if not any(p.same_as(b) for b in others))]
    opaque = any(nest.role == OPAQUE for nest in read_nests(func))
    for nest in later:
        if opaque and nest.role != "finish":
            continue  # what a nest that cannot be read does to a buffer is not known
        plan = _plan(nest, 0, axes.of(nest, 0))
        local = all(any(access.buffer.same_as(b) for b in known) for access in plan.loads)
        alone = outer == 1 and nest.role not in LOOP_ROLES  # another fused loop stays whole
        if local and alone and plan.independent and set(rows) <= set(plan.spatial) and not plan.reduce:
            after.append(plan)
            known += _written(nest)
    guarded = any(_is_guarded(nest, outer) for nest in nests)
    inside_blocks = [(nest.realize.block, _bound_to(nest, nest.loops[outer - 1 : outer])) for nest in nests]
    separable = keeps_storage([nest.realize.block for nest in read_nests(func)], inside_blocks, list(func.params))
    return FusedLoop(blocks, outer, rows, guarded, separable and not opaque, tuple(after), _operands(func, blocks))


def operand_copy(func: tirx.PrimFunc, buffer: tirx.Var) -> str | None:
    """The name of the block that copies an operand into a buffer, if one does."""
    copies = (nest for nest in read_nests(func) if nest.role == OPERAND)
    return next((n.realize.block.name_hint for n in copies if any(b.same_as(buffer) for b in _written(n))), None)


def _operands(func: tirx.PrimFunc, blocks: tuple[BlockPlan, ...]) -> tuple[BlockPlan, ...]:
    """Copies of operands that some of the blocks read."""
    read = [access.buffer for block in blocks for access in block.loads]
    copies = [nest for nest in read_nests(func) if nest.role == OPERAND]
    return tuple(
        _plan(nest, 0, _own_axes(nest, 0))
        for nest in copies
        if any(written.same_as(buffer) for written in _written(nest) for buffer in read)
    )


def _bound_to(nest: _Nest, loops: tuple[tirx.For, ...]) -> tuple[tirx.Var, ...]:
    """The block's variables that are plain loop variables of these loops."""
    pairs = zip(nest.realize.block.iter_vars, nest.realize.iter_values, strict=True)
    return tuple(iv.var for iv, value in pairs if any(value.same_as(loop.loop_var) for loop in loops))


def _is_guarded(nest: _Nest, outer: int) -> bool:
    """Whether a value of the block depends on a condition on the tile."""
    tile = _bound_to(nest, nest.loops[:outer])
    found: list[ir.Call] = []
    tvm_ffi.structural_walk(nest.realize.block.body, (ir.Call, found.append))
    guards = [c for c in found if isinstance(c.op, ir.Op) and c.op.name.endswith("if_then_else")]
    return any(uses(guard.args[0], tile) for guard in guards)


def _among(nest: _Nest, nests: list[_Nest]) -> bool:
    return any(nest.realize.same_as(other.realize) for other in nests)


def _written(nest: _Nest) -> list[tirx.Var]:
    return [store.buffer for store in _stores(nest.realize.block.body)]


def _shared_loops(nests: list[_Nest]) -> int:
    """How many loops all nests have in common; of a single nest, those that its reduced outer iterators allow."""
    first = nests[0].loops
    shared = 0
    while all(len(n.loops) > shared and n.loops[shared].same_as(first[shared]) for n in nests):
        shared += 1
    return shared if len(nests) > 1 else 1


def _own_axes(nest: _Nest, outer: int) -> dict[int, tirx.Var]:
    """Position of a loop below the shared ones -> the block variable bound to it."""
    found: dict[int, tirx.Var] = {}
    for position, loop in enumerate(nest.loops[outer:]):
        for iv, value in zip(nest.realize.block.iter_vars, nest.realize.iter_values, strict=True):
            if isinstance(value, ir.Var) and value.same_as(loop.loop_var):
                found[position] = iv.var
    return found


def _plan(nest: _Nest, outer: int, axes: dict[int, tirx.Var]) -> BlockPlan:
    block = nest.realize.block
    reduced = [iv.var for iv in block.iter_vars if iv.iter_type == tirx.IterVar.CommReduce]
    order = {id_: next(k for k, v in _own_axes(nest, outer).items() if v.same_as(var)) for id_, var in axes.items()}
    own = tuple(sorted(axes, key=lambda a: order[a]))
    stores = _stores(block.body)
    bound: list[tirx.Bind] = []
    tvm_ffi.structural_walk(block.body, (tirx.Bind, bound.append))
    outputs = [store.buffer for store in stores]
    accesses = [Access(load.source, tuple(load.indices)) for load in loads_of(block.body)]
    return BlockPlan(
        block.name_hint,
        nest.role,
        axes,
        own,
        {a: extent_of(nest.loops[outer + order[a]].extent) for a in own},
        frozenset(a for a, var in axes.items() if any(var.same_as(r) for r in reduced)),
        stores,
        tuple(access for access in accesses if not any(access.buffer.same_as(out) for out in outputs)),
        bool(bound),
        independent(block),
    )


def _stores(body: tirx.Stmt) -> tuple[tirx.BufferStore, ...]:
    found: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(body, (tirx.BufferStore, found.append), order="pre")
    return tuple(found)


class _Axes:
    """Union-find over block variables and the dimensions that they index, of the buffers that the loop writes.

    Parameters are left out: one input may well be read at two different axes.
    """

    def __init__(self, written: list[tirx.Var]) -> None:
        self._written = written
        self._parent: list[int] = []
        self._nodes: list[tuple[object, int]] = []

    def read(self, nest: _Nest, outer: int) -> None:
        own = _own_axes(nest, outer)
        for var in own.values():
            self._node(var, -1)
        block = nest.realize.block
        accesses = [(store.buffer, store.indices) for store in _stores(block.body)]
        accesses += [(load.source, load.indices) for load in loads_of(block.body)]
        for buffer, indices in accesses:
            if not any(buffer.same_as(other) for other in self._written):
                continue
            for dim, index in enumerate(indices):
                if any(isinstance(index, ir.Var) and index.same_as(var) for var in own.values()):
                    self._join(self._node(index, -1), self._node(buffer, dim))

    def of(self, nest: _Nest, outer: int) -> dict[int, tirx.Var]:
        """The block's variable by axis. Two of one block never share an axis: both then stand for themselves."""
        own = list(_own_axes(nest, outer).values())
        roots = [self._find(self._node(var, -1)) for var in own]
        alone = [self._node(var, -1) for var in own]
        offset = len(self._nodes) + 1
        return {
            root if roots.count(root) == 1 else offset + node: var
            for root, node, var in zip(roots, alone, own, strict=True)
        }

    def _node(self, thing: ir.Expr, dim: int) -> int:
        for number, (other, at) in enumerate(self._nodes):
            if at == dim and other.same_as(thing):  # type: ignore[attr-defined]
                return number
        self._nodes.append((thing, dim))
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def _find(self, node: int) -> int:
        while self._parent[node] != node:
            node = self._parent[node]
        return node

    def _join(self, left: int, right: int) -> None:
        self._parent[self._find(right)] = self._find(left)
