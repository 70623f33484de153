"""Reads the shape of products whose rows are folded: matrix products, and a fold along their rows.

    c[m, n] = Σ_k A[m, k]·B[n, k]                 one, or several that the fold reads at the same places
    T[m]    = ⊕ over n of lift(c[m, n], …)        out[m], out[m, n]: maps of results, of c and of inputs

It is two shapes that one kernel has: the product shape, as if c were an output, and the row shape, as if c were an
input. Either is read as it is where it has a kernel to itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.inline import inliner_of
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import dtype_of, extent_of, loads_of, more_than_one, same, substitute, zero_of
from tvm_cascade.steps.program import Tuple
from tvm_cascade.tile.estimate import exact_functions, instruction_bytes
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.operand import MATRIX_DTYPES, Unfit
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.product.fold import ProductFold, check_summed
from tvm_cascade.tile.product.matrix import MatrixProduct
from tvm_cascade.tile.row.program import RowProgram, build_row_program
from tvm_cascade.tile.row.shape import Row, read_row, used_atoms
from tvm_cascade.tile.skeletons.product.folded.selection import selection_of
from tvm_cascade.tile.skeletons.product.shape import SUMMED_IN, for_tensor_cores
from tvm_cascade.transform.layout import Producer
from tvm_cascade.transform.printer import cast


@dataclass(frozen=True)
class FoldedProduct:
    """A group that is a fold of matrix products along their rows.

    Attributes
    ----------
    products : the shapes of what is folded; the only output of each is the tensor of its products.
    row : the shape of the fold, which reads those tensors.
    """

    products: tuple[MatrixProduct, ...]
    row: Row

    @property
    def product(self) -> MatrixProduct:
        return self.products[0]

    @property
    def tensors(self) -> list[tirx.Var]:
        return [product.outputs[0].buffer for product in self.products]

    @property
    def picked(self) -> str:
        """A tensor with elements that are picked of whole rows; empty where there is none."""
        for output in self.row.outputs:
            read = [load.source for load in loads_of(output.value)]
            if not self.row.has_positions(output) and any(among(own, self.tensors) for own in read):
                return output.buffer.name
        return ""

    @cached_property
    def row_program(self) -> RowProgram:
        """What is done to a row of products."""
        return build_row_program(self.row)

    @cached_property
    def exact_functions(self) -> int:
        """Logarithms and the like that make an element of a row of sums of products, and are not approximated."""
        return sum(map(exact_functions, self.row_program.position_inputs.values()))

    @cached_property
    def instruction_bytes(self) -> int:
        """Of the instructions that make an element of a row of sums of products."""
        return instruction_bytes(self.row_program.position_inputs.values())

    @cached_property
    def packed(self) -> bool:
        """Whether elements of a row on chip are selected as packed integers."""
        return selection_of(self.row_program, self.columns) is not None

    @property
    def ranks(self) -> int:
        selections = [step.reducer.selection for step in self.row_program.body.steps if isinstance(step, Tuple)]
        return max((selection.count for selection in selections if selection is not None), default=0)

    def __str__(self) -> str:
        return str(self.row_program)

    @property
    def columns(self) -> int:
        extent = self.product.right.line.extent
        assert isinstance(extent, int)
        return extent


def read_folded(program: Program, group: Group) -> FoldedProduct:
    """The shape of a group; see `Skeleton.read`."""
    given, program = program, _with_picks_as_sums(_without_units(program))
    if program is not given:
        group = _all_but_products(Reductions(program, group.among.rescalable_casts, group.among.reference))
    tensors = [producer.stage.buffer for producer in ProductFold(program, group, ()).producers]
    if not tensors:
        raise Unfit("no inner reduction feeds the fold")
    if stored := [tensor.name for tensor in tensors if program.is_param(tensor)]:
        raise Unfit(f"{stored[0]} is an output as well")
    row = read_row(_with_tensors(program, tensors), group)
    fold = ProductFold(program, row.group, row.outputs)
    shape = FoldedProduct(tuple(_product_of(fold, producer) for producer in fold.producers), row)
    for product in shape.products:
        _check_lines(shape, product)
    _check_outputs(shape)
    return shape


def _all_but_products(reductions: Reductions) -> Group:
    """The reductions that fold the products among them, as one cascade."""
    products = [stage for stage in reductions.program.stages if find_factors(stage, vectors=True) is not None]
    group = reductions.joint(but=products)
    if group is None:
        names = ", ".join(stage.buffer.name for stage in products)
        raise Unfit(f"what is picked of {names or 'a row'} has no fold together with what else is reduced")
    return group


def _with_tensors(program: Program, tensors: Sequence[tirx.Var]) -> Program:
    """A program with some temporaries among the parameters, which nothing computes."""
    func = program.func
    alone = tirx.PrimFunc([*func.params, *tensors], func.body, func.ret_type, func.attrs)
    return Program(alone, program.root, tuple(s for s in program.stages if not among(s.buffer, tensors)))


def _product_of(fold: ProductFold, producer: Producer) -> MatrixProduct:
    found = fold.produced(producer)
    check_summed([found.tensor], tuple(MATRIX_DTYPES), SUMMED_IN)
    if found.number != 1 or found.scales:
        told = " · ".join(map(str, [*([] if found.number == 1 else [found.number]), *found.scales]))
        raise Unfit(f"{found.tensor.name} is multiplied by {told} on the way, where a row has plain sums")
    own = producer.variables
    load = tirx.BufferLoad(found.tensor, [own[i] if isinstance(i, ir.Var) else i for i in producer.stage.indices])
    return for_tensor_cores(fold, (found,), (Output(found.tensor, tuple(load.indices), load),))


def _check_lines(shape: FoldedProduct, product: MatrixProduct) -> None:
    """The fold runs along a product's columns, all of them and nothing else, and has a row for each of its rows."""
    row, name = shape.row, product.sums[0].tensor.name
    if not _same_variables(product.right.line.parts, row.axis.parts):
        raise Unfit(f"{name} is not folded along its contiguous dimension, all of it")
    if not isinstance(product.right.line.extent, int):
        raise Unfit(f"{name} has a symbolic number of columns")
    missing = [var for var in row.rows if not among(var, [*product.batch, *product.left.line.parts])]
    if missing:
        raise Unfit(f"{name} has no axis {missing[0].name}, which the fold has")
    if row.is_strided:
        raise Unfit("neighbours in memory are rows of the fold")
    if product is not shape.product:
        _check_partner(shape.product, product)


def _check_partner(first: MatrixProduct, other: MatrixProduct) -> None:
    """A further product has rows where the first has them, and operands that stages of the same form hold."""
    if not _same_variables(first.left.line.parts, other.left.line.parts):
        names = [product.sums[0].tensor.name for product in (other, first)]
        raise Unfit(f"rows of {names[0]} are in another order than those of {names[1]}")
    for own, side in zip(other.sides, first.sides, strict=True):
        if (own.dtype, own.across) != (side.dtype, side.across):
            raise Unfit(f"{own.load} and {side.load} differ in their dtypes, or in what is contiguous")
        for one in (own, side):
            if not one.bulk:
                raise Unfit(f"rows of {one.load.source.name} are no multiple of what bulk copies take")


def _same_variables(some: Sequence[tirx.Var], others: Sequence[tirx.Var]) -> bool:
    return len(some) == len(others) and all(a.same_as(b) for a, b in zip(some, others, strict=True))


def _check_outputs(shape: FoldedProduct) -> None:
    """Outputs along the columns read products at their own places alone, and others only rows of their own."""
    row = shape.row
    read = [load for atom in used_atoms(row.group) for load in loads_of(atom.expression)]
    for output in row.outputs:
        for load in loads_of(output.value):
            own = next((r for r in read if r.source.same_as(load.source)), None)
            if not among(load.source, shape.tensors):
                continue
            most = len(load.indices) if row.has_positions(output) else len(load.indices) - 1
            if own is None or not all(same(*pair) for pair in list(zip(load.indices, own.indices, strict=True))[:most]):
                raise Unfit(f"{output.buffer.name} reads {load}, which is not stored")


def _without_units(program: Program) -> Program:
    """The program without dimensions of one element that results have beside the rows of products, as kept ones."""
    products = [stage for stage in program.stages if find_factors(stage, vectors=True) is not None]
    if any(_units(stage) for stage in products) or not any(map(_units, program.stages)):
        return program
    return dataclasses.replace(program, stages=tuple(map(_without_own_units, program.stages)))


def _units(stage: Stage) -> list[tirx.Var]:
    return [v for v in stage.spatial if not more_than_one(stage.extents[v])]


def _without_own_units(stage: Stage) -> Stage:
    units = _units(stage)
    at = {v: zero_of(v) for v in units}
    spatial = tuple(v for v in stage.spatial if not among(v, units))
    extents = {v: extent for v, extent in stage.extents.items() if not among(v, units)}
    indices, value = tuple(substitute(index, at) for index in stage.indices), substitute(stage.value, at)
    return dataclasses.replace(stage, spatial=spatial, extents=extents, indices=indices, value=value)


# Elements of a row that outputs pick by an index, as sums: what is never stored cannot be read at a place of its own.
#
#     out[i] = logits[i, target[i]]   →   picked[i] = Σ_j (logits[i, j] where j = target[i]);   out[i] = picked[i]
#
# The sum has one element that is not zero, and is exact. What a fold of the row tells where to look for is read from
# the row afterwards, where that is on chip.


def _with_picks_as_sums(program: Program) -> Program:
    """The program with sums in place of what maps pick from rows of temporaries; the same where there is nothing."""
    stages: list[Stage] = []
    for number, stage in enumerate(program.stages):
        if (found := _pick(program, stage)) is not None:
            value, load = found
            stages.append(_sum(load, f"picked_{len(stages) - number}"))
            own = tirx.BufferLoad(stages[-1].buffer, list(load.indices[:-1]))
            value = tvm_ffi.structural_map(value, (ir.TensorLoad, lambda x, p=load, o=own: _or(x, p, o)))
            stage = dataclasses.replace(stage, value=value)
        stages.append(stage)
    return dataclasses.replace(program, stages=tuple(stages)) if len(stages) > len(program.stages) else program


def _pick(program: Program, stage: Stage) -> tuple[ir.Expr, ir.TensorLoad] | None:
    """The value of a map that picks, and the load that does: of maps it picks what these are made of."""
    if stage.reducer is not None or not any(_is_pick(program, stage, load) for load in loads_of(stage.value)):
        return None
    value = inliner_of(program).of(stage)
    picks = (load for load in loads_of(value) if _is_pick(program, stage, load))
    return next(((value, load) for load in picks), None)


def _is_pick(program: Program, stage: Stage, load: ir.TensorLoad) -> bool:
    if program.writer(load.source) is None or program.is_param(load.source) or len(load.indices) < 2:
        return False
    *rows, column = load.indices
    plain = all(among(index, stage.spatial) for index in rows)
    return plain and bool(loads_of(column)) and not _reduced(program, column)


def _reduced(program: Program, value: ir.Expr) -> bool:
    writers = [program.writer(load.source) for load in loads_of(value)]
    return any(w is not None and (w.reducer is not None or _reduced(program, w.value)) for w in writers)


def _sum(load: ir.TensorLoad, name: str) -> Stage:
    tensor, dtype, shape = load.source, dtype_of(load.source), load.source.ty.shape
    buffer = tirx.decl_buffer(tuple(shape[:-1]), dtype, name=name, layout=None)
    *rows, column = variables = [tirx.Var(f"vi{d}", dtype_of(extent)) for d, extent in enumerate(shape)]
    place = substitute(load.indices[-1], dict(zip(load.indices[:-1], rows, strict=True)))
    zero, here = tirx.const(0, dtype), tirx.EQ(cast(place, dtype_of(column)), column)
    element = tirx.Select(here, tirx.BufferLoad(tensor, variables), zero)
    block = s_tir.SBlock([], [], [], name, tirx.Evaluate(0))
    extents = dict(zip(variables, map(extent_of, shape), strict=True))
    return Stage(name, buffer, block, block, tuple(rows), (column,), extents, tuple(rows), element, SUM, zero)


def _or(load: ir.TensorLoad, picked: ir.TensorLoad, own: ir.Expr) -> ir.Expr:
    return own if tvm_ffi.structural_equal(load, picked) else load
