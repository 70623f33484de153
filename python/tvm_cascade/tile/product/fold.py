"""What a function with matrix products is: a fold along one axis, with elements that are formulas over tensors.

    s[i, l] = Σ_d A[i, d]·B[l, d]              a producer: a product whose results are elements of the fold
    T[i]    = ⊕_l lift(s[i, l], …)             a state of one value a row
    O[i, f] = Σ_l w(s[i, l], …)·V[l, f]        a state that is a product: a sum of weights times a plain tensor

Kernels differ in what of it they have:

                     producers     states of rows   states that are products
    attention        one           any              any
    folded product   one or more   any              none
    matrix product   none          none             one or more of one weight, which is a plain tensor
    with a prologue  none          any              one or more of one weight

Nothing goes by name: all is read off the index maps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import sympy as sp
import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.algebra.fold import Component
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.expression import Forms, selection_of, widens
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import (
    COMPARISONS,
    Extent,
    conjuncts,
    dtype_of,
    is_zero,
    loads_of,
    same,
    substitute,
    uses,
    variables_of,
)
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.rounding import FORMATS
from tvm_cascade.tile.fragment import DTYPE, TilePrinter
from tvm_cascade.tile.operand import Unfit, plain_value, read_once
from tvm_cascade.tile.output import Output, read_outputs
from tvm_cascade.tile.product.lines import Line, line_of, runs
from tvm_cascade.transform.dead_tiles import slacks_of
from tvm_cascade.transform.layout import Producer, find_producers
from tvm_cascade.transform.printer import cast

# Scales of blocks along what a product sums over: factors that are the same for so many neighbouring positions.
#
#     Σ_k q[i, k]·s[i, k // 128]·w[j, k]·t[j, k // 128]   =   Σ_b s[i, b]·t[j, b] · Σ_{k in b} q[i, k]·w[j, k]
#
# Nothing goes by name: a factor is a scale where it does not depend on the place within a block.


def same_in_blocks(expression: ir.Expr, line: Line, length: int) -> bool:
    """Whether an expression is the same at all places of each block of so many, blocks starting at multiples."""
    block, place = tirx.Var("block", "int32"), tirx.Var("place", "int32")
    analyzer = sym.Analyzer()
    analyzer.bind(place, ir.Range(0, length))
    analyzer.bind(block, ir.Range(0, 1 << 20))
    at = {var: cast(value, dtype_of(var)) for var, value in line.places(block * length + place).items()}
    indices = [index for load in loads_of(expression) for index in load.indices]
    apart = tvm_ffi.structural_map(expression, (ir.TensorLoad, lambda load: tirx.const(0, dtype_of(load))))
    return not uses(apart, list(at)) and not any(
        uses(analyzer.simplify(substitute(index, at)), [place]) for index in indices
    )


@dataclass(frozen=True)
class Scales:
    """What the products of each block are multiplied by.

    Attributes
    ----------
    down, across : factors of rows and of columns, over the variables of the frame.
    """

    down: tuple[ir.Expr, ...]
    across: tuple[ir.Expr, ...]

    def same_along(self, line: Line, length: int) -> bool:
        """Whether all factors are the same in blocks of so many along what is summed over."""
        return all(same_in_blocks(factor, line, length) for factor in (*self.down, *self.across))


def scales_of(factors: tuple[ir.Expr, ...], name: str, rows: Line, columns: Line) -> Scales | None:
    """The further factors of a sum of some name, by the line that they run along; None where there is none.

    Unfit where a factor runs along both, or along what neither has.
    """
    down, across = list[ir.Expr](), list[ir.Expr]()
    for factor in factors:
        along = [uses(factor, [line.var, *line.parts]) for line in (rows, columns)]
        if all(along):
            raise Unfit(f"{name}: {factor} runs along rows and columns")
        (across if along[1] else down).append(factor)
    return Scales(tuple(down), tuple(across)) if factors else None


class Leaves(Forms):
    """Formulas over leaves that are tensors: what is rounded is a formula as well."""

    def form(self, expression: ir.Expr) -> sp.Expr:
        if isinstance(expression, ir.prim.Cast) and dtype_of(expression) in FORMATS and not widens(expression):
            return Round(self.form(expression.value), sp.Symbol(dtype_of(expression)))
        return super().form(expression)

    def load(self, form: sp.Expr) -> ir.TensorLoad | None:
        """The plain tensor that a formula is; None where it is none."""
        return plain_value(self.sources[form]) if form in self.sources else None

    def bordered(self, form: sp.Expr) -> ir.TensorLoad | None:
        """The tensor, with zeros around it, that a formula is; None where it is none."""
        return bordered(self.sources[form]) if form in self.sources else None

    def variables(self, form: sp.Expr) -> list[tirx.Var]:
        sources = [self.sources[symbol] for symbol in form.free_symbols if symbol in self.sources]
        loads = [load for source in sources for load in loads_of(source)]
        return [var for load in loads for index in load.indices for var in variables_of(index)]


@dataclass(frozen=True)
class Sum:
    """A sum of products of two tensors: Σ over `axis` of number · scales · left · right.

    Attributes
    ----------
    state : that stands for it.
    rows : the variables that there is a sum for each value of.
    scales : further factors, the same for neighbours along the axis.
    where : the condition, the same along the axis, under which it adds anything; None where it always does.
    bordered : of both tensors, those that are read as zero where an index is outside of them.
    """

    state: sp.Symbol
    tensor: tirx.Var
    axis: tuple[tirx.Var, ...]
    rows: tuple[tirx.Var, ...]
    number: sp.Expr
    scales: tuple[ir.Expr, ...]
    left: ir.TensorLoad
    right: ir.TensorLoad
    where: ir.Expr | None = None
    bordered: tuple[ir.TensorLoad, ...] = ()


@dataclass(frozen=True)
class ProductFold:
    """A group of reductions with products among them; beside it, its function has maps of its results alone."""

    program: Program
    group: Group
    outputs: tuple[Output, ...]

    @property
    def name(self) -> str:
        return ", ".join(self.group.names)

    @property
    def axis(self) -> tuple[tirx.Var, ...]:
        return self.group.frame.axis

    @property
    def rows(self) -> tuple[tirx.Var, ...]:
        return tuple(v for v in self.group.frame.extents if not among(v, self.axis))

    @property
    def tensors(self) -> list[tirx.Var]:
        return [member.stage.buffer for member in self.group.members]

    def tensor_of(self, component: Component) -> tirx.Var:
        return self.group.member_of(component.owner).stage.buffer

    @cached_property
    def producers(self) -> list[Producer]:
        """The reductions whose results are elements of the fold, each before those that read it."""
        return find_producers(self.program, self.group, set())

    @cached_property
    def extents(self) -> dict[tirx.Var, Extent]:
        inner = {v: one.stage.extents[v] for one in self.producers for v in one.stage.reduce}
        return {**self.group.frame.extents, **inner}

    @cached_property
    def leaves(self) -> Leaves:
        return Leaves()

    @cached_property
    def lifts(self) -> dict[Component, sp.Expr]:
        forms = {atom.symbol: self.leaves.form(atom.expression) for atom in self.group.atoms.atoms.values()}
        return {component: component.lift.xreplace(forms) for component in self.group.fold.components}

    def sums(self, most: int, scaled: bool = False, borders: bool = False) -> tuple[Sum, ...]:
        """The states, as so many sums of products at most, that have their left tensor and condition in common.

        Unfit where they are anything else.

        Parameters
        ----------
        scaled : a single one may have scales.
        borders : tensors may have zeros around them.
        """
        fold = self.group.fold
        if not 1 <= len(self.lifts) <= most or fold.references or any(c.reducer is not SUM for c in self.lifts):
            raise Unfit(f"{self.name} is no one sum" if most == 1 else f"{self.name} is none of one sum to {most}")
        stored = [output for output in self.outputs if output.indices]
        columns = [o.shifted[0][-1] if o.columns is None else o.columns for o in stored]
        found = []
        for component, lift in self.lifts.items():
            told = f"{self.name} sums {self.group.member_of(component.owner).element}"
            where, added = self._conditional(lift)
            around = {factor: self.leaves.bordered(factor) for factor in added.as_coeff_mul()[1] if borders}
            outside = {factor: load for factor, load in around.items() if load is not None}
            factors = self._factors(told, added, self.leaves, self.axis, columns, outside)
            own = component.symbol, self.tensor_of(component), self.axis, self.rows
            found.append(Sum(*own, *factors, where, tuple(outside.values())))
            if found[-1].scales and not (scaled and len(self.lifts) == 1):
                raise Unfit(f"{told}, which is no product of two tensors")
        if not all(same(found[0].left, one.left) for one in found):
            raise Unfit(f"{self.name} are products that have no left operand in common")
        if not all(same(found[0].where, one.where) for one in found):
            raise Unfit(f"{self.name} are products that have no condition in common")
        return tuple(found)

    def _conditional(self, lift: sp.Expr) -> tuple[ir.Expr | None, sp.Expr]:
        """The condition, the same along the axis, under which a sum adds anything, and what it adds then."""
        choice = selection_of(self.leaves.sources[lift]) if lift in self.leaves.sources else None
        if choice is None or uses(choice[0], self.axis) or self.leaves.form(choice[2]) != 0:
            return None, lift
        self.check_inputs(loads_of(choice[0]))
        return choice[0], self.leaves.form(choice[1])

    def produced(self, producer: Producer) -> Sum:
        """A producer, as a sum of products, with the right tensor along the cascade's axis.

        Unfit where it is anything else.
        """
        stage, leaves, own = producer.stage, Leaves(), dict(producer.variables)
        name, told = stage.buffer.name, f"{stage.buffer.name} sums {producer.element}"
        if stage.reducer is not SUM:
            raise Unfit(f"{name} is no sum")
        lift = leaves.form(substitute(producer.element, own))
        factors = self._factors(told, lift, leaves, stage.reduce, self.axis)
        return Sum(sp.Symbol(name, real=True), stage.buffer, stage.reduce, tuple(own.values()), *factors)

    def _factors(
        self, told: str, lift: sp.Expr, leaves: Leaves, axis: tuple[tirx.Var, ...], columns: Sequence[ir.Expr],
        outside: Mapping[sp.Expr, ir.TensorLoad] = MappingProxyType({}),
    ) -> tuple[sp.Expr, tuple[ir.Expr, ...], ir.TensorLoad, ir.TensorLoad]:  # fmt: skip
        """The number, the scales, and the tensors, of which the right one runs along columns, of what a sum adds."""
        number, factors = lift.as_coeff_mul()
        plain = {factor: load for factor in factors if (load := leaves.load(factor)) is not None}
        loads = {**plain, **outside}
        if len(factors) > 2:
            line = line_of(axis, self.extents)
            loads = {factor: load for factor, load in loads.items() if not same_in_blocks(load, line, 2)}
        if len(factors) < 2 or len(loads) != 2:
            raise Unfit(f"{told}, which is no product of two tensors")
        printer = TilePrinter({symbol: cast(source, DTYPE) for symbol, source in leaves.sources.items()}, DTYPE, {})
        scales = tuple(printer(factor) for factor in factors if factor not in loads)
        self.check_inputs([load for scale in scales for load in loads_of(scale)])
        one, other = loads.values()
        return number, scales, *_ordered(one, other, columns)

    def check_inputs(self, loads: Sequence[ir.TensorLoad]) -> None:
        """Raises Unfit where a tensor is none of the caller's."""
        for load in loads:
            if self.program.writer(load.source) is not None:
                raise Unfit(f"{load.source.name} is computed by an inner reduction")


@read_once
def read_fold(program: Program, group: Group, parts: bool = False, together: int = 1) -> ProductFold:
    """A group with the outputs of its function.

    Unfit where the function has more to do than the group and maps of its results.

    Parameters
    ----------
    parts, together : see `read_outputs`.
    """
    outputs, results = read_outputs(program, group, parts=parts, together=together)
    return ProductFold(program, dataclasses.replace(group, fold=group.fold.restricted_to(results)), outputs)


def check_summed(tensors: Sequence[tirx.Var], dtypes: Sequence[str], who: str) -> None:
    """Raises Unfit where sums are of no dtype that something, in words, sums in."""
    found = next((dtype for tensor in tensors if (dtype := dtype_of(tensor)) not in dtypes), None)
    if found is not None:
        raise Unfit(f"{', '.join(tensor.name for tensor in tensors)} is summed in {found}, {who}")


def _ordered(
    one: ir.TensorLoad, other: ir.TensorLoad, columns: Sequence[ir.Expr]
) -> tuple[ir.TensorLoad, ir.TensorLoad]:
    """Two loads so that the second runs along the first of some columns that one of them alone runs along."""
    for column in columns:
        if isinstance(column, ir.Var) and runs(one, column) != runs(other, column):
            return (other, one) if runs(one, column) else (one, other)
    return one, other


# Zeros around a tensor: what a program reads where an index is outside, as copies of boxes do by themselves.
#
# if 1 <= p + i < 57: x[p + i - 1] else 0        is x[p + i - 1], or 0 outside of the 56 elements of x


def bordered(expression: ir.Expr) -> ir.TensorLoad | None:
    """The load whose value an expression is inside of its tensor, where it is zero outside; None of others."""
    while isinstance(expression, prim.Cast) and widens(expression):
        expression = expression.value
    choice = selection_of(expression)
    load = plain_value(choice[1]) if choice else None
    if choice is None or load is None or not is_zero(choice[2]):
        return None
    analyzer, conditions = sym.Analyzer(), conjuncts(choice[0])
    if not all(isinstance(condition, COMPARISONS) for condition in conditions):
        return None
    ends = [end for i, n in zip(load.indices, load.source.ty.shape, strict=True) for end in (i, n - 1 - i)]
    asked = [slack for condition in conditions for slack in slacks_of(condition)]
    return load if all(any(analyzer.can_prove_equal(one, end) for end in ends) for one in asked) else None
