"""Reads the shape of products whose rows are folded: matrix products, and a fold along their rows.

    c[m, n] = Σ_k A[m, k]·B[n, k]                 one, or several that the fold reads at the same places
    T[m]    = ⊕ over n of lift(c[m, n], …)        out[m], out[m, n]: maps of results, of c and of inputs

It is two shapes that one kernel has: the product shape, as if c were an output, and the row shape, as if c were an
input. Either is read as it is where it has a kernel to itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import loads_of, same
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.shape import Row, read_row, used_atoms
from tvm_cascade.tile.skeletons.product.folded.picks import with_picks_as_sums
from tvm_cascade.tile.skeletons.product.shape import MatrixProduct, read_product
from tvm_cascade.transform.producers import Producer, find_producers


@dataclass(frozen=True)
class FoldedProduct:
    """A group that is a fold of matrix products along their rows.

    Attributes
    ----------
    products : the shapes of what is folded; the only output of each is the tensor of its products.
    row : the shape of the fold, which reads those tensors.
    variables : of each product -> of the fold.
    """

    products: tuple[MatrixProduct, ...]
    row: Row
    variables: tuple[dict[tirx.Var, tirx.Var], ...]

    @property
    def product(self) -> MatrixProduct:
        """The first of them; the others have as many rows and columns."""
        return self.products[0]

    @property
    def tensors(self) -> list[tirx.Var]:
        """The tensors of the products, which are never stored."""
        return [product.outputs[0].buffer for product in self.products]

    @property
    def picked(self) -> str:
        """A tensor with elements that are picked of whole rows; empty where there is none."""
        for output in self.row.outputs:
            read = [load.source for load in loads_of(output.value)]
            if not self.row.has_positions(output) and any(own.same_as(t) for own in read for t in self.tensors):
                return output.buffer.name
        return ""

    @property
    def columns(self) -> int:
        """Of the products: positions of the fold."""
        extent = self.product.right.line.extent
        assert isinstance(extent, int)
        return extent

    def at(self, places: Mapping[tirx.Var, ir.Expr]) -> dict[tirx.Var, ir.Expr]:
        """The fold's variables where those of the first product have some values."""
        return {fold: places[own] for own, fold in self.variables[0].items() if own in places}

    def batch_of(self, number: int, batch: Mapping[tirx.Var, ir.Expr]) -> dict[tirx.Var, ir.Expr]:
        """Where a product is in its batch where the first one is somewhere in its own."""
        values, variables = self.at(batch), self.variables[number]
        return {own: lookup(values, variables[own]) for own in self.products[number].batch}


def read_folded(program: Program, group: Group) -> FoldedProduct:
    """The shape of a group.

    Raises
    ------
    Unfit
        Where the group does not have it, or the function has more to do than the group and maps of its results.
    """
    picking, program = program, with_picks_as_sums(program)
    if program is not picking:
        group = _all_but_products(Reductions(program, group.among.rescalable_casts, group.among.reference))
    producers = find_producers(program, group, set())
    if not producers:
        raise Unfit("no inner reduction feeds the fold")
    for producer in producers:
        if program.is_param(producer.stage.buffer):
            raise Unfit(f"{producer.stage.buffer.name} is an output as well")
    stages = [producer.stage for producer in producers]
    maps = [_behind(program, stage) for stage in stages]
    read = [_product_of(group.among, *one) for one in zip(stages, maps, strict=True)]
    row = read_row(_with_tensors(program, stages, _others(program, stages, maps)), group)
    shape = FoldedProduct(
        tuple(dataclasses.replace(product, program=program) for product, _ in read),
        row,
        tuple(_on_frame(own, producer) for (_, own), producer in zip(read, producers, strict=True)),
    )
    for number in range(len(stages)):
        _check_lines(shape, number)
    _check_outputs(shape)
    return shape


def _on_frame(own: Mapping[tirx.Var, tirx.Var], producer: Producer) -> dict[tirx.Var, tirx.Var]:
    """The variables of a product -> of the fold that it feeds."""
    return {var: producer.variables[old] for old, var in own.items() if old in producer.variables}


def _all_but_products(reductions: Reductions) -> Group:
    """The reductions that fold the products among them, as one cascade."""
    products = [stage for stage in reductions.program.stages if find_factors(stage, vectors=True) is not None]
    group = reductions.joint(but=products)
    if group is None:
        names = ", ".join(stage.buffer.name for stage in products)
        raise Unfit(f"what is picked of {names or 'a row'} has no fold together with what else is reduced")
    return group


def _with_tensors(program: Program, producers: Sequence[Stage], stages: tuple[Stage, ...]) -> Program:
    """Some stages of a program, with the tensors of others among the parameters."""
    func, tensors = program.func, [producer.buffer for producer in producers]
    alone = tirx.PrimFunc([*func.params, *tensors], func.body, func.ret_type, func.attrs)
    return Program(alone, program.root, stages)


def _product_of(
    reductions: Reductions, stage: Stage, maps: tuple[Stage, ...]
) -> tuple[MatrixProduct, Mapping[tirx.Var, tirx.Var]]:
    """The product shape of what feeds the fold, and the variables of its stage -> its own."""
    group = reductions.lone_of(stage)
    if group is None or group.members[0].stage is not stage:
        raise Unfit(f"{stage.buffer.name} is no sum that a kernel could be generated from")
    found = read_product(_with_tensors(reductions.program, [stage], (*maps, stage)), group)
    assert len(found.rights) == 1
    return found, group.frame.variables[0]


def _others(program: Program, producers: Sequence[Stage], maps: Sequence[Sequence[Stage]]) -> tuple[Stage, ...]:
    """The stages of a program but some, and but maps that only those need."""
    behind = [stage for of_one in maps for stage in of_one]
    kept = (s for s in program.stages if not _holds(producers, s))
    return tuple(s for s in kept if not _holds(behind, s) or program.is_param(s.buffer))


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


def _check_lines(shape: FoldedProduct, number: int) -> None:
    """The fold runs along a product's columns, all of them and nothing else, and has a row for each of its rows."""
    product, row, variables = shape.products[number], shape.row, shape.variables[number]
    name = shape.tensors[number].name
    along = [variables.get(var) for var in product.right.line.parts]
    if not _same_variables(along, row.axis.variables):
        raise Unfit(f"{name} is not folded along its contiguous dimension, all of it")
    if not isinstance(product.right.line.extent, int):
        raise Unfit(f"{name} has a symbolic number of columns")
    rows = [variables.get(var) for var in (*product.batch, *product.left.line.parts)]
    missing = [var for var in row.rows if not among(var, [r for r in rows if r is not None])]
    if missing:
        raise Unfit(f"{name} has no axis {missing[0].name}, which the fold has")
    if row.is_strided:
        raise Unfit("neighbours in memory are rows of the fold")
    if number > 0:
        _check_partner(shape, number)


def _check_partner(shape: FoldedProduct, number: int) -> None:
    """A further product has rows where the first has them, and operands that stages of the same form hold."""
    first, other, names = shape.product, shape.products[number], [tensor.name for tensor in shape.tensors]
    lines = [[shape.variables[k].get(var) for var in shape.products[k].left.line.parts] for k in (0, number)]
    if not _same_variables(*lines):
        raise Unfit(f"rows of {names[number]} are in another order than those of {names[0]}")
    for own, side in zip(other.sides, first.sides, strict=True):
        if (own.operand.dtype, own.across) != (side.operand.dtype, side.across):
            raise Unfit(f"{own.load} and {side.load} differ in their dtypes, or in what is contiguous")
        for one in (own, side):
            if not one.bulk:
                raise Unfit(f"rows of {one.operand.buffer.name} are no multiple of what bulk copies take")


def _same_variables(some: Sequence[tirx.Var | None], others: Sequence[tirx.Var | None]) -> bool:
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(a is not None and b is not None and a.same_as(b) for a, b in pairs)


def _check_outputs(shape: FoldedProduct) -> None:
    """Outputs along the columns read products at their own places alone, and others only rows of their own."""
    row = shape.row
    read = [load for atom in used_atoms(row.group) for load in loads_of(atom.expression)]
    for output in row.outputs:
        for load in loads_of(output.value):
            own = next((r for r in read if r.source.same_as(load.source)), None)
            if not any(load.source.same_as(tensor) for tensor in shape.tensors):
                continue
            most = len(load.indices) if row.has_positions(output) else len(load.indices) - 1
            if own is None or not _same_load(load, own, most):
                raise Unfit(f"{output.buffer.name} reads {load}, which is not stored")


def _same_load(one: ir.TensorLoad, other: ir.TensorLoad, count: int) -> bool:
    """Whether two loads of a tensor have the same first indices."""
    return all(same(a, b) for a, b in list(zip(one.indices, other.indices, strict=True))[:count])
