"""Reads the shape of a product whose rows are folded: a matrix product, and a fold along its rows.

    c[m, n] = Σ_k A[m, k]·B[n, k]
    T[m]    = ⊕ over n of lift(c[m, n], …)        out[m], out[m, n]: maps of results, of c and of inputs

It is two shapes that one kernel has: the product shape, as if c were an output, and the row shape, as if c were an
input. Either is read as it is where it has a kernel to itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.analysis.extract import Group, joint_reductions, lone_reductions
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import loads_of, same
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.shape import Row, read_row, used_atoms
from tvm_cascade.tile.skeletons.product.folded.picks import with_picks_as_sums
from tvm_cascade.tile.skeletons.product.shape import MatrixProduct, read_product
from tvm_cascade.transform.producers import find_producers


@dataclass(frozen=True)
class FoldedProduct:
    """A group that is a fold of a matrix product along its rows.

    Attributes
    ----------
    product : the shape of what is folded; its only output is the tensor of the products.
    row : the shape of the fold, which reads that tensor.
    variables : of the product -> of the fold.
    """

    product: MatrixProduct
    row: Row
    variables: dict[tirx.Var, tirx.Var]

    @property
    def tensor(self) -> tirx.Var:
        """The tensor of the products, which is never stored."""
        return self.product.outputs[0].buffer

    @property
    def columns(self) -> int:
        """Of the product: positions of the fold."""
        extent = self.product.right.line.extent
        assert isinstance(extent, int)
        return extent

    def at(self, places: Mapping[tirx.Var, ir.Expr]) -> dict[tirx.Var, ir.Expr]:
        """The fold's variables where the product's have some values."""
        return {fold: places[own] for own, fold in self.variables.items() if own in places}


def read_folded(program: Program, group: Group) -> FoldedProduct:
    """The shape of a group.

    Raises
    ------
    Unfit
        Where the group does not have it, or the function has more to do than the group and maps of its results.
    """
    picking, program = program, with_picks_as_sums(program)
    if program is not picking:
        group = _all_but_products(program)
    producers = find_producers(program, group, set())
    if len(producers) != 1:
        raise Unfit(f"{len(producers)} inner reductions feed the fold; the shape has one")
    (producer,) = producers
    if program.is_param(producer.stage.buffer):
        raise Unfit(f"{producer.stage.buffer.name} is an output as well")
    maps = _behind(program, producer.stage)
    product, own = _product_of(program, producer.stage, maps)
    row = read_row(_with_tensor(program, producer.stage, _others(program, producer.stage, maps)), group)
    variables = {var: producer.variables[old] for old, var in own.items() if old in producer.variables}
    shape = FoldedProduct(dataclasses.replace(product, program=program), row, variables)
    _check_lines(shape)
    return shape


def _all_but_products(program: Program) -> Group:
    """The reductions of a program that fold its products, as one cascade."""
    products = [stage for stage in program.stages if find_factors(stage) is not None]
    group = joint_reductions(program, but=products)
    if group is None:
        raise Unfit(f"what is picked of {products[0].buffer.name} has no fold together with what else is reduced")
    return group


def _with_tensor(program: Program, producer: Stage, stages: tuple[Stage, ...]) -> Program:
    """Some stages of a program, with the tensor of a stage among the parameters."""
    func = program.func
    alone = tirx.PrimFunc([*func.params, producer.buffer], func.body, func.ret_type, func.attrs)
    return Program(alone, program.root, stages)


def _product_of(
    program: Program, stage: Stage, maps: tuple[Stage, ...]
) -> tuple[MatrixProduct, Mapping[tirx.Var, tirx.Var]]:
    """The product shape of what feeds the fold, and the variables of its stage -> its own."""
    part = _with_tensor(program, stage, (*maps, stage))
    groups = [group for group in lone_reductions(part) if group.members[0].stage is stage]
    if not groups:
        raise Unfit(f"{stage.buffer.name} is no sum that a kernel could be generated from")
    found = read_product(part, groups[0])
    assert len(found.rights) == 1
    return found, groups[0].frame.variables[0]


def _others(program: Program, producer: Stage, maps: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The stages of a program but one, and but maps that nothing else needs."""
    return tuple(s for s in program.stages if s is not producer and (not _holds(maps, s) or program.is_param(s.buffer)))


def _holds(stages: Sequence[Stage], stage: Stage) -> bool:
    return any(other is stage for other in stages)


def _behind(program: Program, stage: Stage) -> tuple[Stage, ...]:
    """The maps that a stage reads, directly or through others."""
    found: list[Stage] = []
    pending = [stage]
    while pending:
        for load in loads_of(pending.pop().value):
            writer = program.writer(load.source)
            if writer is None or writer is stage or _holds(found, writer):
                continue
            if writer.reducer is not None:
                raise Unfit(f"{stage.buffer.name} reads {writer.buffer.name}, which another reduction computes")
            found.append(writer)
            pending.append(writer)
    return tuple(other for other in program.stages if _holds(found, other))


def _check_lines(shape: FoldedProduct) -> None:
    """The fold runs along the product's columns, all of them and nothing else, and has a row for each of its rows."""
    product, row, name = shape.product, shape.row, shape.tensor.name
    along = [shape.variables.get(var) for var in product.right.line.parts]
    axis = row.axis.variables
    if len(along) != len(axis) or not all(a is not None and a.same_as(b) for a, b in zip(along, axis, strict=True)):
        raise Unfit(f"{name} is not folded along its contiguous dimension, all of it")
    if not isinstance(product.right.line.extent, int):
        raise Unfit(f"{name} has a symbolic number of columns")
    rows = [shape.variables.get(var) for var in (*product.batch, *product.left.line.parts)]
    missing = [var for var in row.rows if not among(var, [r for r in rows if r is not None])]
    if missing:
        raise Unfit(f"{name} has no axis {missing[0].name}, which the fold has")
    if row.is_columns:
        raise Unfit("neighbours in memory are rows of the fold")
    _check_outputs(shape)


def _check_outputs(shape: FoldedProduct) -> None:
    """Outputs read the product at their own places alone: elsewhere it has never been, or is no more."""
    row, tensor = shape.row, shape.tensor
    own = [load for atom in used_atoms(row.group) for load in loads_of(atom.expression) if load.source.same_as(tensor)]
    for output in row.outputs:
        for load in loads_of(output.value):
            if load.source.same_as(tensor) and not (row.has_positions(output) and _same_load(load, own[0])):
                raise Unfit(f"{output.buffer.name} reads {load}, which is not stored")


def _same_load(one: ir.TensorLoad, other: ir.TensorLoad) -> bool:
    """Whether two loads of a tensor have the same indices."""
    return all(same(a, b) for a, b in zip(one.indices, other.indices, strict=True))
