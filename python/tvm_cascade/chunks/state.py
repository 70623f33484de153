"""The fold of a function, and the state that leaves it: which components and references, their shapes and dtypes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sympy as sp
import tvm
import tvm_ffi
from tvm import tirx

from tvm_cascade.algebra.cascade import COUNT, LENGTH, unlike
from tvm_cascade.algebra.fold import Component
from tvm_cascade.algebra.policy import Move as Rule
from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reducers import identity_of
from tvm_cascade.analysis.tir import Extent, as_index
from tvm_cascade.errors import InputError, SplitError
from tvm_cascade.options import FuseOptions
from tvm_cascade.steps.program import Move, Scale, StepProgram, program_of
from tvm_cascade.symbolic.printing import formula
from tvm_cascade.transform.elements import Dims
from tvm_cascade.transform.fuse_function import read_function
from tvm_cascade.transform.planning import Guarding, asked_for, guarding
from tvm_cascade.transform.scope import component_dtype, label_of, reference_dtype

COUNTS = "int32"
"""The dtype of numbers of positions."""


@dataclass(frozen=True)
class StatePart:
    """One buffer of a state.

    Attributes
    ----------
    name : of the buffer that a partial function writes; merging functions read `<name>s`, one chunk after another.
    shape : of one chunk's; symbolic extents by their text.
    dtype : of its elements: what the fold accumulates in.
    formula : what it holds, over one element: `sum of exp(s - c_m)`, or where a reference stands.
    identity : its value in a state of no positions, which merging leaves as it is.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    formula: str
    identity: float

    @property
    def size(self) -> int:
        """Bytes, where extents are numbers."""
        return math.prod(map(int, self.shape)) * int(tvm_ffi.dtype(self.dtype).itemsize)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)} = {self.formula}"


@dataclass(frozen=True)
class Leaving:
    """A symbol of a fold that leaves, with the rows and free axes that index it."""

    symbol: sp.Symbol
    dims: tuple[tirx.Var, ...]
    part: StatePart

    def along(self, rows: Sequence[tirx.Var]) -> Leaving:
        """What leaves with further rows before its own."""
        return dataclasses.replace(self, dims=(*rows, *self.dims))

    def buffer(self, group: Group, index_dtype: str, suffix: str = "", leading: Sequence[Extent] = ()) -> tirx.Var:
        extents = [as_index(e, index_dtype) for e in (*leading, *([group.frame.extents[v] for v in self.dims] or [1]))]
        return tirx.decl_buffer(extents, self.part.dtype, name=self.part.name + suffix, layout=None)


@dataclass(frozen=True)
class State:
    """What leaves of a fold.

    Attributes
    ----------
    program : the fold's steps. References move exactly: a state is merged once, so that staying saves nothing.
    leaving : components and references, in the order of the program.
    standing_at : for each reference that does not leave, the component that it is equal to.
    counted : merging needs the number of positions of each state.
    """

    group: Group
    dims: Dims
    program: StepProgram
    leaving: tuple[Leaving, ...]
    standing_at: dict[sp.Symbol, sp.Symbol]
    counted: bool


def state_of(group: Group, taken: Collection[str]) -> State:
    """The state of a group's fold.

    Parameters
    ----------
    taken : names that its buffers must not have.
    """
    dims, whole = Dims(group), program_of(group.fold)
    program = _plain_moves(whole, group)
    dims.define_scales(program)
    standing_at = {m.reference: m.value for m in program.moves if _stands_at_component(m, group)}
    names, leaving = list(taken), list[Leaving]()
    moves = {move.reference: move for move in program.moves}
    for step in group.fold.steps:
        if step.symbol in standing_at:
            continue
        name = unlike(f"{label_of(step)}_state", names)
        names.append(name)
        if isinstance(step, Component):
            dtype, told = component_dtype(group, step), _told(step)
            identity = identity_of(step.reducer, dtype).value
        else:
            dtype, told = reference_dtype(group), formula(moves[step.symbol].value)
            identity = moves[step.symbol].start
        extents = [group.frame.extents[v] for v in dims.of(step.symbol)] or [1]
        shape = tuple(e if isinstance(e, int) else str(e) for e in extents)
        leaving.append(Leaving(step.symbol, dims.of(step.symbol), StatePart(name, shape, dtype, told, identity)))
    return State(group, dims, program, tuple(leaving), standing_at, _is_counted(whole, group))


def _plain_moves(program: StepProgram, group: Group) -> StepProgram:
    """The steps with references that move exactly, over differences that are not cut off unless they have to be."""
    steps = (_plain_move(step, program, group) if isinstance(step, Move) else step for step in program.steps)
    return dataclasses.replace(program, steps=tuple(steps))


def _plain_move(move: Move, program: StepProgram, group: Group) -> Move:
    """The move, exact where it is lazy; see `Move.decay`.

    A step that stands under exponentials alone needs no cutting off, as exp(−Δ) is 0 of itself, unless a state of no
    positions may stand at an infinity, where Δ is NaN.
    """
    scales = {step.symbol: step.expression for step in program.steps if isinstance(step, Scale)}
    read = [shift.xreplace(scales) for shift in program.shifts.values()]
    beside = any(e.replace(lambda part: isinstance(part, sp.exp), lambda _: sp.S.One).has(move.step) for e in read)
    infinite = any(c.reducer.infinite for c in group.fold.components)
    rule = Rule.EXACT if move.rule is Rule.LAZY else move.rule
    return dataclasses.replace(move, rule=rule, decay=move.decay if beside or infinite else None)


def _stands_at_component(move: Move, group: Group) -> bool:
    """Whether the reference is a component of the same dtype wherever it moves, so that it need not leave."""
    found = [c for c in group.fold.components if c.symbol == move.value]
    return bool(found) and not move.guarded and component_dtype(group, found[0]) == reference_dtype(group)


def _is_counted(program: StepProgram, group: Group) -> bool:
    """Whether merging reads how many positions a state has, or must know that there are none.

    A state of no positions stands anywhere. Its identity absorbs a move under an exponential that vanishes; any other
    move would make 0·inf of it, and so may a program's own combine of tuples.
    """
    tuples = [component.reducer.whole for component in group.fold.components]
    if any(whole is not None and whole.selection is None for whole in tuples):
        return True
    read = [m.value for m in program.moves] + list(program.shifts.values())
    read += [s.expression for s in program.merge if not isinstance(s, Move) and hasattr(s, "expression")]
    by_count = any(e.has(COUNT, LENGTH) for e in read)
    return by_count or any(move.guarded or move.decay is None for move in program.moves)


def _told(component: Component) -> str:
    whole = component.reducer.whole
    told = component.reducer if whole is None else f"part {component.reducer.part} of {whole.name}"
    return f"{told} of {formula(component.lift)}"


# The one fold of a function, or the reason why there is none to be split.


@dataclass(frozen=True)
class SingleFold:
    """A function with one fold, restricted to the results that are asked for, also by guards."""

    program: Program
    group: Group
    guarding: Guarding


def single_fold(mod_or_func: tvm.IRModule | tirx.PrimFunc, options: FuseOptions, guards: str = "off") -> SingleFold:
    """The fold of a function that has one.

    Parameters
    ----------
    guards : as the option; a caller of functions that merge states has no fallback by itself.

    Raises
    ------
    InputError
        When the program is not one PrimFunc.
    SplitError
        When it has no fold, or several.
    """
    program = _read(_function(mod_or_func))
    group = _only_group(program, options)
    whole = asked_for(program, [group])
    guarded = guarding(whole.plans[0], whole.of(group), guards, classes=True, loops=True)
    fold = group.fold.restricted_to(guarded.asked)
    if not fold.components:
        raise SplitError("a fold that carries a state", "results that are numbers", ", ".join(group.names))
    return SingleFold(program, dataclasses.replace(group, fold=fold), guarded)


def _function(mod_or_func: object) -> tirx.PrimFunc:
    found = [mod_or_func]
    if isinstance(mod_or_func, tvm.IRModule):
        found = [function for _, function in mod_or_func.functions_items()]
    if len(found) != 1 or not isinstance(found[0], tirx.PrimFunc):
        kinds = ", ".join(type(one).__name__ for one in found) or "an empty module"
        hint = "take one function out of the module"
        raise InputError("a tirx.PrimFunc, or an IRModule of one", kinds, "split", hint)
    return found[0]


def _read(func: tirx.PrimFunc) -> Program:
    program = read_function(func)
    if isinstance(program, Reason) or program.opaque:
        reason = program if isinstance(program, Reason) else program.opaque[0].reason
        raise SplitError("a function that can be read whole", str(reason), "split", reason.hint)
    return program


def _only_group(program: Program, options: FuseOptions) -> Group:
    """The reductions of a function as one, or else its cascade, where nothing of it was refused."""
    reductions = Reductions(program, options.rescalable_casts, options.reference)
    candidates = reductions.cascades(beside=False)
    amiss = [c.reason for c in candidates if c.reason.verdict not in (Verdict.FUSED, Verdict.NOTHING)]
    if amiss:
        raise SplitError("a fold of every cascade", str(amiss[0]), "split", amiss[0].hint)
    joint = reductions.joint(reductions.inside)
    groups = [joint] if joint else [c.group for c in candidates if c.group is not None] or reductions.lone
    if len(groups) != 1:
        found = "; ".join(", ".join(group.names) for group in groups) or "no reduction"
        raise SplitError("one cascade, or one reduction", found, "split", "put each into a function of its own")
    return groups[0]
