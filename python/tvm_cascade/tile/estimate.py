"""What a kernel has to move and to compute, counted from its function, and the time that a GPU takes for it.

    seconds = max(bytes / bandwidth, product flops / tensor rate, operations / rate, functions / rate) / efficiency

Counts hold for any kernel of the function: every tensor once in, every result once out (Williams, Waterman and
Patterson, "Roofline", 2009). What a configuration adds is the skeleton's to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import sympy as sp
import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import function_name
from tvm_cascade.analysis.program import RECENT_PROGRAMS, Program, Stage
from tvm_cascade.analysis.tir import Extent, dtype_of, loads_of, variables_of
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.launch.fast_math import needs_exact

NOMINAL = 1024
"""What a symbolic extent counts for."""

SECTOR_BYTES = 32
"""That memory gives at once."""

_INSTRUCTION_BYTES, _EXACT_FUNCTION = 16, 25
"""Of an instruction; and how many of them a function takes that is not approximated."""

_ARITHMETIC = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Max, prim.Min)


@dataclass(frozen=True)
class Work:
    """What a kernel moves and computes, at least.

    Attributes
    ----------
    bytes : of tensors, from and to memory.
    flops : of matrix products, two for each multiply-add.
    operations : other arithmetic, in elements.
    functions : exponentials, roots and the like, in elements.
    of_vectors : of the operations, those of products of a matrix and a vector.
    """

    bytes: float = 0.0
    flops: float = 0.0
    operations: float = 0.0
    functions: float = 0.0
    of_vectors: float = 0.0

    def live(self, computed: float, read: float) -> Work:
        """The work where masks leave these shares of what is computed, and of what is moved."""
        counts = self.flops, self.operations, self.functions, self.of_vectors
        return Work(self.bytes * read, *(count * computed for count in counts))

    @property
    def on_tensor_cores(self) -> Work:
        """The work where products with vectors, of which several share a matrix, are of two matrices."""
        return replace(self, operations=self.operations - self.of_vectors)

    def seconds(self, gpu: Gpu, memory: float = 1.0, compute: float = 1.0, flops_per_second: float = 0.0) -> float:
        """The time on a GPU, without the launch.

        Parameters
        ----------
        memory, compute : parts of the GPU's rates that the kernel reaches.
        flops_per_second : of products, where they do not run on tensor cores.
        """
        rates = (
            (self.bytes, gpu.memory_bytes_per_second * memory),
            (self.flops, (flops_per_second or gpu.tensor_flops_per_second) * compute),
            (self.operations, gpu.operations_per_second * compute),
            (self.functions, gpu.functions_per_second * compute),
        )
        return max(amount / rate if rate else 0.0 for amount, rate in rates)


@lru_cache(RECENT_PROGRAMS)
def count_work(program: Program, temporaries: bool = False) -> Work:
    """The work of all stages of a function as one kernel.

    Parameters
    ----------
    temporaries : they go through memory as well, written once and read once by each stage that reads them.
    """
    flops = operations = functions = of_vectors = 0.0
    for stage in program.stages:
        points = math.prod(_number(extent) for extent in stage.extents.values())
        if find_factors(stage) is not None:
            flops += 2.0 * points
        else:
            plain, special = operations_of(stage.value)
            operations += points * (plain + merge_operations(stage))
            functions += points * special
            if find_factors(stage, vectors=True) is not None:
                of_vectors += points * (plain + merge_operations(stage))
    return Work(_moved(program) + (_passed(program) if temporaries else 0.0), flops, operations, functions, of_vectors)


def merge_operations(stage: Stage) -> int:
    """Arithmetic operations of ⊕ on a stage's own part of a tuple; 0 where nothing is reduced."""
    if stage.reducer is None or stage.reducer.whole is None:
        return int(stage.reducer is not None)
    return max(1, int(sp.count_ops(stage.reducer.whole.combined[stage.reducer.part])))


def _moved(program: Program) -> float:
    """Bytes that the function reads of its parameters, each element once, and writes to them."""
    read: dict[tirx.Var, float] = {}
    written = 0.0
    for stage in program.stages:
        for load in (load for e in (stage.value, *stage.indices) for load in loads_of(e)):
            if program.is_param(load.source) and program.writer(load.source) is None:
                key = next((b for b in read if b.same_as(load.source)), load.source)
                read[key] = max(read.get(key, 0.0), _touched(load, stage))
        if program.is_param(stage.buffer):
            written += _size(stage.buffer, stage.buffer.ty.shape)
    for nest in program.opaque:
        written += sum(_size(buffer, buffer.ty.shape) for buffer in (*nest.reads, *nest.writes))
    return sum(read.values()) + written


def _passed(program: Program) -> float:
    total = 0.0
    for stage in program.stages:
        read = {load.source for load in loads_of(stage.value) if program.writer(load.source) is not None}
        written = set() if program.is_param(stage.buffer) else {stage.buffer}
        total += sum(_size(buffer, buffer.ty.shape) for buffer in (*read, *written))
    return total


def _touched(load: ir.TensorLoad, stage: Stage) -> float:
    """Bytes that a load reads of a tensor; of elements that data pick one by one, whole sectors."""
    variables = {v for index in load.indices for v in variables_of(index)}
    points = [_number(stage.extents[v]) for v in variables if any(v.same_as(o) for o in stage.extents)]
    size = tvm.DataType(dtype_of(load.source)).itemsize
    each = max(size, SECTOR_BYTES) if any(map(loads_of, load.indices[-1:])) else size
    return min(_size(load.source, load.source.ty.shape), math.prod(points) * each)


def _size(buffer: tirx.Var, shape: Iterable[ir.Expr]) -> float:
    return math.prod(_number(extent) for extent in shape) * tvm.DataType(dtype_of(buffer)).itemsize


def _number(extent: Extent) -> float:
    return float(int(extent)) if isinstance(extent, (int, prim.IntImm)) else float(NOMINAL)


def operations_of(value: ir.Expr) -> tuple[int, int]:
    """(arithmetic operations, special functions) of one point."""
    found: list[ir.Expr] = []
    tvm_ffi.structural_walk(value, [(kind, found.append) for kind in (*_ARITHMETIC, ir.Call)])
    functions = sum(bool(function_name(node)) for node in found)
    return len(found) - functions, functions


def exact_functions(value: ir.Expr) -> int:
    """Special functions of one point that are not approximated."""
    return operations_of(value)[1] if needs_exact(value) else 0


def instruction_bytes(values: Iterable[ir.Expr]) -> int:
    """Of the instructions of one point of some values, about."""
    return _INSTRUCTION_BYTES * sum(operations_of(v)[0] + _EXACT_FUNCTION * exact_functions(v) for v in values)
