"""The one fold of a function, or the reason why there is none to be split."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import sympy as sp
import tvm
from tvm import tirx

from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.chunks.partial import buffers_read
from tvm_cascade.errors import InputError, SplitError
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import live_stages
from tvm_cascade.transform.fuse_function import read_function
from tvm_cascade.transform.guarding import results_asked_for


@dataclass(frozen=True)
class SingleFold:
    """A function with one fold, restricted to the results that are asked for.

    Attributes
    ----------
    asked : results that the caller, or what stays outside the fold, reads.
    """

    program: Program
    group: Group
    asked: tuple[sp.Symbol, ...]


def single_fold(mod_or_func: tvm.IRModule | tirx.PrimFunc, options: FuseOptions) -> SingleFold:
    """The fold of a function that has one.

    Raises
    ------
    InputError
        When the program is not one PrimFunc.
    SplitError
        When it has no fold, or several.
    """
    program = _read(_function(mod_or_func))
    group = _only_group(program, options)
    after = buffers_read([stage.nest for stage in live_stages(program, [group], [[]])])
    asked = results_asked_for(program, group, after)
    fold = group.fold.restricted_to(asked)
    if not fold.components:
        raise SplitError("a fold that carries a state", "results that are numbers", ", ".join(group.names))
    return SingleFold(program, dataclasses.replace(group, fold=fold), tuple(asked))


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
    """The cascade of a function, or else its reductions as one, where nothing of it was refused."""
    reductions = Reductions(program, options.rescalable_casts, options.reference)
    candidates = reductions.cascades(beside=False)
    amiss = [c.reason for c in candidates if c.reason.verdict not in (Verdict.FUSED, Verdict.NOTHING)]
    if amiss:
        raise SplitError("a fold of every cascade", str(amiss[0]), "split", amiss[0].hint)
    groups = [c.group for c in candidates if c.group is not None]
    if not groups:
        groups = [joint] if (joint := reductions.joint()) else reductions.lone
    if len(groups) != 1:
        found = "; ".join(", ".join(group.names) for group in groups) or "no reduction"
        raise SplitError("one cascade, or one reduction", found, "split", "put each into a function of its own")
    return groups[0]
