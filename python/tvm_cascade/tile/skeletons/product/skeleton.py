"""The product skeleton's table row: matrix products on tensor cores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, loads_of
from tvm_cascade.devices.device import Gpu
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.emit import kernel_extent
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.machine.table import MULTIPLYING
from tvm_cascade.tile.operand import PACKED_DTYPES, Operand
from tvm_cascade.tile.product.matrix import MatrixProduct
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.product.choice import counts_of, fitting, promoted_steps, ranked_configs, sizes_of
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.kernel import product_kernel
from tvm_cascade.tile.skeletons.product.shape import read_product
from tvm_cascade.tile.work import GROUP_ROWS

# Products whose rows the launch alone knows: a few kernels in one function, of which it takes the one estimated least.
#
#     rows ≤ 64: kernel 0     ≤ 192: kernel 2     ≤ 256: kernel 1     …     more: kernel 3
#
# The estimate changes with the tiles of 64 rows that there are, so that its choice is a table.


_MOST_KERNELS = 10
"""In one function: each takes seconds to compile."""

_NEAR = 1.01
"""What the chosen kernels take of the least time at most, at any number of rows, where few enough do that."""

_POWER = 0.7
"""What a power of two counts for beside its part of the logarithmic axis: users often have so many rows."""

_PASSES = 3
"""In which each of the chosen gives way to what is better in its place."""

_FEW_ROWS = 16
"""Up to which rows hardly count."""

_MANY_ROWS = 8192
"""From which on waves are many, and the choice stays."""


@dataclass(frozen=True)
class Variants:
    """Configurations, and which one is for how many rows.

    Attributes
    ----------
    ranges : rows at most, and the configuration for them by its place, in order; the last one is for more rows too.
    """

    configs: tuple[ProductConfig, ...]
    ranges: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        tiles = [f"{c.rows}×{c.columns}" + (f" in {c.splits} parts of k" if c.splits > 1 else "") for c in self.configs]
        return f"tiles of {', '.join(tiles)}, chosen from by the number of rows"


def config_for(config: ProductConfig | Variants, rows: int) -> ProductConfig:
    return config.configs[next((k for most, k in config.ranges if rows <= most), config.ranges[-1][1])]


def choose_variants(shape: MatrixProduct, gpu: Gpu, promoted: int = 0) -> Variants:
    """The few configurations whose least estimated time is nearest to that of all, over all numbers of rows.

    Unfit where none fits.
    """
    points = [_FEW_ROWS, *range(GROUP_ROWS, _MANY_ROWS + 1, GROUP_ROWS)]
    sizes = [replace(sizes_of(shape), rows=rows) for rows in points]
    found = fitting(shape, sizes[-1], gpu, promoted)
    logs = np.log([[seconds(counts_of(shape, size, config, gpu), gpu) for size in sizes] for config in found])
    weights = np.diff(np.log([1, *points])) + [_POWER if rows & (rows - 1) == 0 else 0.0 for rows in points]
    chosen = _few(logs - logs.min(axis=0), weights)
    best = [chosen[k] for k in logs[chosen].argmin(axis=0)]
    used = sorted(set(best), key=best.index)
    ends = [k for k in range(len(points)) if k + 1 == len(points) or best[k] != best[k + 1]]
    return Variants(tuple(found[k] for k in used), tuple((points[k], used.index(best[k])) for k in ends))


def _few(above: np.ndarray, weights: np.ndarray) -> list[int]:
    """The few rows of a table whose least elements are small, chosen one by one and then anew while that helps.

    Parameters
    ----------
    above : logarithm of the time of each configuration over the least one, [configuration, number of rows].
    """
    chosen: list[int] = []

    def further(others: Sequence[int]) -> int:
        """What lowers the squares of the least elements most beside others."""
        reached = above[list(others)].min(axis=0, initial=np.inf)
        return int(np.argmin((np.minimum(above, reached) ** 2) @ weights))

    while len(chosen) < _MOST_KERNELS and above[chosen].min(axis=0, initial=np.inf).max() > math.log(_NEAR):
        chosen.append(further(chosen))
        for _ in range(_PASSES * len(chosen)):
            chosen.append(further(chosen[1:]))
            chosen.pop(0)
    return chosen


def build_all(shape: MatrixProduct, config: ProductConfig | Variants, name: str, launch: Launch) -> tirx.PrimFunc:
    """The function of all configurations, which chooses among several by the number of rows."""
    funcs = [product_kernel(shape, one, launch).build(name) for one in config.configs]
    rows = kernel_extent(shape.left.line.extent)
    chosen: ir.Expr = tirx.const(config.ranges[-1][1], "int32")
    for most, k in reversed(config.ranges[:-1]):
        chosen = tirx.Select(rows <= most, tirx.const(k, "int32"), chosen)
    func = funcs[-1]
    body = func.body
    for k, other in reversed(list(enumerate(funcs[:-1]))):
        body = tirx.IfThenElse(chosen == k, _over(other, func), body)
    return func.with_body(body)


def _over(func: tirx.PrimFunc, other: tirx.PrimFunc) -> tirx.Stmt:
    """The body of a function over the parameters of another one, which has the same."""

    def own(var: tirx.Var) -> tirx.Var:
        found = (b for a, b in zip(func.params, other.params, strict=True) if a.same_as(var))
        return next(found, var)

    return tvm_ffi.structural_map(func.body, (ir.Var, own))


class ProductSkeleton(Skeleton[MatrixProduct, ProductConfig | Variants]):
    """Products of two matrices and maps of their elements, on tensor cores."""

    name, kind, covers, joint = "product", "tensor-core kernel", "matrix products", True

    instructions = MULTIPLYING
    option = "tensor_cores"

    def read(self, program: Program, group: Group, options: FuseOptions) -> MatrixProduct:
        return read_product(program, group)

    def alternatives(self, program: MatrixProduct, setting: Setting) -> list[ProductConfig | Variants]:
        promoted = promoted_steps(program, setting.options)
        if isinstance(program.left.line.extent, int):
            return list[ProductConfig | Variants](ranked_configs(program, setting.gpu, promoted))
        return [choose_variants(program, setting.gpu, promoted)]

    def lacks(self, program: MatrixProduct, config: ProductConfig | Variants, setting: Setting) -> str:
        return next(filter(None, (one.lacks(program, setting.gpu) for one in config.configs)), "")

    def operands(self, program: MatrixProduct) -> Iterable[Operand]:
        return (side.operand for side in program.sides)

    def counts(self, program: MatrixProduct, config: ProductConfig | Variants, work: Work, setting: Setting) -> Counts:
        sizes = sizes_of(program)
        one = config_for(config, sizes.rows)
        return counts_of(program, sizes, one, setting.gpu)._replace(work=Work(work.bytes))

    def emit(
        self, program: MatrixProduct, config: ProductConfig | Variants, name: str, launch: Launch
    ) -> tirx.PrimFunc:
        return build_all(program, config, name, launch)

    def may_begin_early(self, program: MatrixProduct, given: Sequence[tirx.Var]) -> bool:
        """It begins with its right operands where all of them are given, and what their indices read."""
        read = [load.source for side in program.rights for load in loads_of(side.load)]
        return all(among(buffer, given) for buffer in read)

    def fast_math(self, program: MatrixProduct) -> bool:
        return all(dtype_of(output.buffer) in PACKED_DTYPES for output in program.outputs)
