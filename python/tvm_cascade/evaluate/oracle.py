"""The oracle: an interpreter of unfused, unscheduled S-TIR functions in NumPy.

Blocks run in program order. A block is evaluated over its whole iteration domain at once, or over boxes of it that
bound memory. A reduction block takes one of three ways, the first that applies:

* `acc = acc + a * b * ...`: a matrix multiplication (`einsum`);
* `acc = acc ⊕ e`, ⊕ what NumPy reduces with in any order, such as a sum or a max: ⊕ along the reduction axes;
* anything else: one reduction point after another, in lexicographic order, each for all spatial points at once.

Exact mode holds every float in float64 and makes casts between floats the identity; a program that has float64 itself
is evaluated in the machine's widest float (64 bits of mantissa on x86), for else the oracle would be as far off as the
program. Rounding mode rounds what each block writes, and each cast, to its dtype, and accumulates products as a loop
does, in the accumulator (float32 for narrower floats): far from zero, a matrix product loses digits that what reads it
may need. All other arithmetic inside a block stays as wide. Results are float64 in either mode. Literals have the
precision of their own dtype in both. Sums, max and min of NaN are NaN (TVM's own max and min of NaN depend on the order
of the operands: `drops_nan` is the other end of what they give). Floats that nobody has written are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.errors import InputError, OracleError
from tvm_cascade.evaluate.einsum import accumulate, contract
from tvm_cascade.evaluate.expression import (
    BINARY,
    DROPPING,
    EXTENDED,
    FLOAT64,
    Evaluator,
    Grid,
    accumulator_of,
    is_float,
    round_to,
    storage_dtype,
)

Array = NDArray[Any]

_POINTS = 1 << 22  # iteration points evaluated at once; a value over them takes 32 MiB

Binary = Mapping[type, Callable[[Array, Array], Array]]
"""What binary operations of TensorIR are."""

_LOGICAL: dict[type, np.ufunc] = {prim.And: np.logical_and, prim.Or: np.logical_or}


_EXTREMA = (np.maximum, np.minimum, np.fmax, np.fmin)


def _monoid(operation: type, binary: Binary) -> np.ufunc | None:
    """What NumPy may reduce with in any order, for a node of TensorIR; None where that gives something else."""
    ufunc = binary.get(operation, _LOGICAL.get(operation))
    if not isinstance(ufunc, np.ufunc):
        return None
    return ufunc if ufunc.identity is not None or ufunc in _EXTREMA else None


@dataclass(frozen=True)
class Signature:
    """The parameters of a function, in order: buffers and numbers that it only reads, and buffers that it writes."""

    inputs: tuple[ir.Var, ...]
    outputs: tuple[ir.Var, ...]


def signature(func: tirx.PrimFunc) -> Signature:
    """Split the parameters of `func` into inputs and outputs.

    Raises
    ------
    InputError
        When `func` is not a PrimFunc.
    """
    if not isinstance(func, tirx.PrimFunc):
        raise InputError("a tvm.tirx.PrimFunc", type(func).__name__, "oracle", "take one function out of the module")
    written = _stored_in(func.body)
    return Signature(
        tuple(param for param in func.params if param not in written),
        tuple(param for param in func.params if param in written),
    )


def evaluate(
    func: tirx.PrimFunc,
    inputs: Sequence[Any],
    *,
    rounding: bool = False,
    left_out: Mapping[ir.Var, range] | None = None,
) -> dict[str, Array]:
    """What `func` computes, as float64.

    Parameters
    ----------
    func : an unscheduled S-TIR function of static shapes (`te.create_prim_func`, TVMScript, Relax's LegalizeOps):
        each block in a loop nest of its own, its iteration variables bound to the loops one to one.
    inputs : one array for each parameter that `func` only reads, in order; of any float dtype for a float buffer,
        of the buffer's own dtype otherwise. A number for a parameter that is one.
    rounding : round what blocks write and cast to the dtypes of the program (see the module's text).
    left_out : variables of reductions with a range of each, counted from its first position, that is not visited:
        what the program would give if it lost that part of the axis.

    Returns
    -------
    outputs : by buffer name, each parameter that `func` writes: float64 for floats, else of the buffer's dtype.

    Raises
    ------
    InputError
        When `func` is not a PrimFunc, or the arrays do not fit its parameters.
    OracleError
        When the function is scheduled, has symbolic shapes, accesses a buffer out of bounds or uses a construct that
        the oracle does not know; it names the block and the expression.
    """
    outputs = signature(func).outputs
    if len({param.name for param in outputs}) < len(outputs):
        raise OracleError("outputs of distinct names", ", ".join(param.name for param in outputs))
    buffers = evaluate_buffers(func, inputs, rounding=rounding, left_out=left_out)
    return {param.name: buffers[param] for param in outputs}


def evaluate_buffers(
    func: tirx.PrimFunc,
    inputs: Sequence[Any],
    *,
    rounding: bool = False,
    left_out: Mapping[ir.Var, range] | None = None,
    drops_nan: bool = False,
) -> dict[ir.Var, Array]:
    """Every buffer of `func` after it has run: parameters, outputs and intermediates; otherwise as `evaluate`.

    Parameters
    ----------
    drops_nan : max and min of some NaN are those of the other numbers, as where comparisons meet the NaN first.
    """
    params, root = signature(func), _root(func)
    if len(inputs) != len(params.inputs):
        names = ", ".join(param.name for param in params.inputs)
        raise InputError(f"{len(params.inputs)} arrays ({names})", f"{len(inputs)} arrays", "inputs of the oracle")
    _check_outputs(root, params.outputs)
    given = list(zip(params.inputs, inputs, strict=True))
    root = _with_numbers(root, {p: n for p, n in given if not _is_buffer(p)})
    all_buffers = [*filter(_is_buffer, func.params), *root.alloc_buffers]
    floats = EXTENDED if any(_dtype(buffer) == "float64" for buffer in all_buffers) else FLOAT64
    buffers = {buffer: _poisoned(buffer, floats) for buffer in (*params.outputs, *root.alloc_buffers)}
    for param, array in ((p, a) for p, a in given if _is_buffer(p)):
        buffers[param] = _stored(param, np.asarray(array), rounding).astype(storage_dtype(_dtype(param), floats))
    with np.errstate(all="ignore"):
        for block, grid in _blocks(root):
            _Block(block, buffers, rounding, floats, DROPPING if drops_nan else BINARY).run(
                grid.without(left_out or {})
            )
        return {buffer: array.astype(storage_dtype(_dtype(buffer))) for buffer, array in buffers.items()}


def _root(func: tirx.PrimFunc) -> s_tir.SBlock:
    body = func.body
    if not isinstance(body, s_tir.SBlockRealize) or len(body.block.iter_vars) > 0:
        raise OracleError(
            "an S-TIR function, whose body is a root block", type(body).__name__, hint="use T.prim_func(s_tir=True)"
        )
    return body.block


def _static(value: ir.Expr, what: str) -> int:
    if not isinstance(value, prim.IntImm):
        raise OracleError("static shapes and loop extents", f"`{value}`", what, "bind the symbolic sizes first")
    return int(value.value)


def _check_outputs(root: s_tir.SBlock, outputs: Sequence[ir.Var]) -> None:
    """Refuse functions that read what the caller left in an output: nobody says what that is."""
    written: set[ir.Var] = set()
    for statement in _statements(root.body):
        loads = {load.source for load in _within(statement, ir.TensorLoad)}
        started = (block.init for block in _within(statement, s_tir.SBlock) if block.init is not None)
        known = written.union(*map(_stored_in, started))  # values that a reduction starts from are its own
        for output in outputs:
            if output in loads and output not in known:
                expected, found = "outputs that are written before they are read", f"`{output.name}`"
                raise OracleError(expected, found, "oracle", "give the former values as an input of their own")
        written |= _stored_in(statement)


def _within(node: ir.Expr | tirx.Stmt, kind: type) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kind, found.append))
    return found


def _stored_in(statement: tirx.Stmt) -> set[ir.Var]:
    return {store.buffer for store in _within(statement, tirx.BufferStore)}


def _dtype(buffer: ir.Var) -> str:
    return str(buffer.ty.dtype)


def _poisoned(buffer: ir.Var, floats: np.dtype[Any]) -> Array:
    shape = [_static(extent, f"buffer `{buffer.name}`") for extent in buffer.ty.shape]
    dtype = storage_dtype(_dtype(buffer), floats)
    return np.full(shape, np.nan if dtype.kind == "f" else 0, dtype=dtype)


def _is_buffer(param: ir.Var) -> bool:
    return isinstance(param.ty, tirx.BufferType)


def _with_numbers(root: s_tir.SBlock, numbers: Mapping[ir.Var, Any]) -> s_tir.SBlock:
    """The root block with parameters that are numbers written out, in their own dtypes."""
    constants = {}
    for param, number in numbers.items():
        dtype, found = str(param.ty.dtype), np.asarray(number)
        fits = found.dtype.kind in ("iuf" if is_float(dtype) else "iu" if "int" in dtype else "b")
        if found.shape or not fits:
            text = f"{found.dtype.name} of shape {found.shape}"
            raise InputError(f"a number of dtype {dtype}", text, f"input `{param.name}`")
        constants[param] = tirx.const(found.item(), dtype)
    replace = (ir.Var, lambda var: constants.get(var, var))
    return tvm_ffi.structural_map(root, replace) if constants else root


def _stored(param: ir.Var, array: Array, rounding: bool) -> Array:
    where, dtype = f"input `{param.name}`", _dtype(param)
    shape = tuple(_static(extent, where) for extent in param.ty.shape)
    fits = is_float(array.dtype.name) if is_float(dtype) else array.dtype == storage_dtype(dtype)
    if array.shape != shape or not fits:
        raise InputError(f"{dtype} of shape {shape}", f"{array.dtype.name} of shape {array.shape}", where)
    return round_to(array, dtype) if rounding and is_float(dtype) else array.astype(storage_dtype(dtype))


def _statements(body: tirx.Stmt) -> list[tirx.Stmt]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _blocks(root: s_tir.SBlock) -> Iterator[tuple[s_tir.SBlock, Grid]]:
    """Each block of an unscheduled function with its iteration domain, in program order."""
    for statement in _statements(root.body):
        loops: list[tirx.For] = []
        while isinstance(statement, tirx.For):
            loops.append(statement)
            statement = statement.body
        if not isinstance(statement, s_tir.SBlockRealize):
            raise _scheduled(f"{type(statement).__name__} in a loop nest", "root")
        yield statement.block, _domain(statement, loops)


def _scheduled(found: str, block: str) -> OracleError:
    expected = "an unscheduled function: one block a loop nest, each iteration variable bound to a loop of its own"
    return OracleError(expected, found, f"block `{block}`", "evaluate the function before it is scheduled or fused")


def _domain(realize: s_tir.SBlockRealize, loops: Sequence[tirx.For]) -> Grid:
    block = realize.block
    name, where = block.name_hint, f"block `{block.name_hint}`"
    if not (isinstance(realize.predicate, prim.IntImm) and int(realize.predicate.value)):
        raise _scheduled(f"the predicate `{realize.predicate}`", name)
    if len(block.match_buffers) > 0 or len(block.alloc_buffers) > 0:
        raise _scheduled("match_buffer or sblock_alloc_buffer inside a block", name)
    unbound = list(loops)
    starts, stops = [], []
    for iteration, binding in zip(block.iter_vars, realize.iter_values, strict=True):
        if iteration.iter_type not in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce):
            raise _scheduled(f"`{iteration.var.name}`, neither spatial nor reduction", name)
        start = _static(iteration.dom.min, where)
        extent = _static(iteration.dom.extent, where)
        loop = next((loop for loop in unbound if loop.loop_var.same_as(binding)), None)
        if loop is not None and (_static(loop.min, where), _static(loop.extent, where)) == (start, extent):
            unbound.remove(loop)
        elif not (extent == 1 and isinstance(binding, prim.IntImm) and int(binding.value) == start):
            raise _scheduled(f"`{iteration.var.name}` over [{start}, {start + extent}) bound to `{binding}`", name)
        starts.append(start)
        stops.append(start + extent)
    if any(_static(loop.extent, where) != 1 for loop in unbound):
        raise _scheduled("a loop that repeats the block", name)
    return Grid(tuple(iteration.var for iteration in block.iter_vars), tuple(starts), tuple(stops))


@dataclass(frozen=True)
class _Reduction:
    """`buffer[indices] = buffer[indices] ⊕ element`."""

    store: tirx.BufferStore
    accumulator: ir.TensorLoad
    reducer: np.ufunc
    element: ir.Expr

    @property
    def factors(self) -> list[ir.Expr]:
        """The factors of a sum of products; the element itself for every other reduction."""
        return _factors(self.element) if self.reducer is np.add else [self.element]


def _factors(expr: ir.Expr) -> list[ir.Expr]:
    return [*_factors(expr.a), *_factors(expr.b)] if isinstance(expr, prim.Mul) else [expr]


def _reduction(body: tirx.Stmt, reduced: set[ir.Var], binary: Binary) -> _Reduction | None:
    """The reduction over the variables `reduced` that a block's body spells out, if it is one store of a known form."""
    if not isinstance(body, tirx.BufferStore) or (reducer := _monoid(type(body.value), binary)) is None:
        return None
    if any(reduced & _variables(index) for index in body.indices):
        return None
    for accumulator, element in ((body.value.a, body.value.b), (body.value.b, body.value.a)):
        is_target = (
            isinstance(accumulator, ir.TensorLoad)
            and accumulator.source.same_as(body.buffer)
            and tvm_ffi.structural_equal(accumulator.indices, body.indices)
        )
        if is_target and body.buffer not in _variables(element):
            return _Reduction(body, accumulator, reducer, element)
    return None


def _variables(node: ir.Expr | tirx.Stmt) -> set[ir.Var]:
    return {*_within(node, ir.Var)}


class _Block:
    """One block being run: its body, the buffers it reads and writes, and which of its axes are reduced."""

    def __init__(
        self,
        block: s_tir.SBlock,
        buffers: dict[ir.Var, Array],
        rounding: bool,
        floats: np.dtype[Any],
        binary: Binary,
    ) -> None:
        self._block, self._buffers, self._rounding, self._floats = block, buffers, rounding, floats
        self._binary = binary
        kinds = [iteration.iter_type for iteration in block.iter_vars]
        self._reduce = [axis for axis, kind in enumerate(kinds) if kind == tirx.IterVar.CommReduce]
        self._reduced = {block.iter_vars[axis].var for axis in self._reduce}
        self._reduction = _reduction(block.body, self._reduced, binary) if self._reduce else None

    def run(self, parts: Sequence[Grid]) -> None:
        """Evaluate the block over the parts of its domain, box by box; a reduction starts with the first of them."""
        for position, grid in enumerate(parts):
            for box in self._boxes(grid, self._cost()):
                self._run_box(box, starts=position == 0)
        if self._rounding:
            self._round_written()

    def _round_written(self) -> None:
        for statement in _statements(self._block.body):
            if isinstance(statement, tirx.BufferStore) and is_float(dtype := _dtype(statement.buffer)):
                self._buffers[statement.buffer] = round_to(self._buffers[statement.buffer], dtype)

    def _cost(self) -> Callable[[Grid], int]:
        """The size of the largest value that a box needs at once."""
        variables = [iteration.var for iteration in self._block.iter_vars]
        if self._reduction is None:
            terms = [_variables(self._block.body) - self._reduced]
        else:
            terms = [_variables(factor) | self._reduced for factor in self._reduction.factors]
        axes = [[k for k, variable in enumerate(variables) if variable in term] for term in terms]
        return lambda grid: max(int(np.prod([grid.shape[k] for k in term], dtype=np.int64)) for term in axes)

    def _boxes(self, grid: Grid, cost: Callable[[Grid], int]) -> Iterator[Grid]:
        """Split spatial axes, leading ones first, until a box is small enough or nothing is left to split."""
        if cost(grid) > _POINTS:
            for axis in range(len(grid.shape)):
                first, extent = grid.starts[axis], grid.shape[axis]
                if axis in self._reduce or cost(grid.with_range(axis, first, first + 1)) == cost(grid):
                    continue
                step = max(1, extent * _POINTS // cost(grid))
                for start in range(first, first + extent, step):
                    yield from self._boxes(grid.with_range(axis, start, min(start + step, first + extent)), cost)
                return
        yield grid

    def _run_box(self, grid: Grid, starts: bool) -> None:
        if starts and self._block.init is not None:
            self._execute(self._block.init, self._at(grid, [0] * len(self._reduce)))
        if self._reduction is not None:
            self._fold(self._reduction, grid)
            return
        for point in np.ndindex(*(grid.shape[axis] for axis in self._reduce)):
            self._execute(self._block.body, self._at(grid, point))

    def _at(self, grid: Grid, point: Sequence[int]) -> Grid:
        for axis, offset in zip(self._reduce, point, strict=True):
            start = grid.starts[axis] + offset
            grid = grid.with_range(axis, start, start + 1)
        return grid

    def _evaluator(self, grid: Grid) -> Evaluator:
        return Evaluator(grid, self._buffers, self._rounding, self._block.name_hint, self._floats, self._binary)

    def _execute(self, body: tirx.Stmt, grid: Grid) -> None:
        evaluator = self._evaluator(grid)
        for statement in _statements(body):
            if isinstance(statement, tirx.Bind):
                # A copy: a let keeps the value it had when it was bound, whatever is stored afterwards.
                evaluator.bind(statement.var, np.array(evaluator(statement.value)))
            elif isinstance(statement, tirx.BufferStore):
                self._store(statement, evaluator(statement.value), evaluator)
            else:
                raise OracleError(
                    "stores and lets in a block", type(statement).__name__, f"block `{self._block.name_hint}`"
                )

    def _fold(self, reduction: _Reduction, grid: Grid) -> None:
        if 0 in grid.shape:
            return
        evaluator = self._evaluator(grid)
        factors = [_ranked(evaluator(factor), grid) for factor in reduction.factors]
        if reduction.reducer is np.add:
            total = self._summed(factors, grid, _dtype(reduction.store.buffer))
        else:
            shape = [grid.shape[k] if k in self._reduce else extent for k, extent in enumerate(factors[0].shape)]
            element = np.broadcast_to(factors[0], shape)
            total = reduction.reducer.reduce(element, axis=tuple(self._reduce), keepdims=True)
        spatial = self._evaluator(self._at(grid, [0] * len(self._reduce)))
        start = spatial(reduction.accumulator)
        self._store(reduction.store, reduction.reducer(start, total), spatial)

    def _summed(self, factors: Sequence[Array], grid: Grid, dtype: str) -> Array:
        """The sum of a product; where it rounds, in the accumulator: products cancel more than their last digit."""
        if not self._rounding or len(factors) == 1 or not is_float(dtype):
            return contract(factors, self._reduce, grid.shape)
        return accumulate(factors, self._reduce, grid.shape, accumulator_of(dtype)).astype(self._floats)

    def _store(self, store: tirx.BufferStore, value: Array, evaluator: Evaluator) -> None:
        position: tuple[Any, ...] = (...,)
        target = evaluator.grid.view(self._buffers[store.buffer], store.indices)
        if target is None:
            target, position = self._buffers[store.buffer], evaluator.positions(store.buffer, store.indices)
        shape = target[position].shape
        if np.broadcast_shapes(shape, np.shape(value)) != shape:
            raise OracleError(
                "each point of the iteration domain to write an element of its own",
                f"a value of shape {np.shape(value)} for `{store.buffer.name}{list(store.indices)}`",
                f"block `{self._block.name_hint}`",
            )
        target[position] = value


def _ranked(value: Array, grid: Grid) -> Array:
    return np.reshape(value, (1,) * len(grid.shape)) if np.ndim(value) == 0 else value
