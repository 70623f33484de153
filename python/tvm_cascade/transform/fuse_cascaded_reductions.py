"""The pass: `tvm.tir.transform.FuseCascadedReductions()`."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, s_tir, tirx
from tvm.tirx.transform import prim_func_pass
from typing_extensions import Unpack

from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.bindings import plainly_bound
from tvm_cascade.analysis.statements import ROLE, statements_of
from tvm_cascade.analysis.tir import within
from tvm_cascade.devices.read import given_device
from tvm_cascade.errors import InputError, ScheduleError
from tvm_cascade.options import FuseOptions, Options, Reference, takes_options
from tvm_cascade.transform.fuse_function import fuse_function


@takes_options
def FuseCascadedReductions(**options: Unpack[Options]) -> ir.transform.Pass:
    """Fuses each chain of reductions over one axis into one loop.

    Functions that hold no such chain are left as they are, and so are those that cannot be read; `tvm_cascade.explain`
    says why. Applying the pass again changes nothing. What tiles are cut for is the target of the function where it
    has one (its attribute `target`), else TVM's current target, else a CPU.

    rewrite: for l: m = max(m, x[l]);  for l: t += exp(x[l] − m)
          →  for tile: m′ = max(m, max x);  t = t·exp(m − m′) + Σ exp(x − m′)

    Parameters
    ----------
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Returns
    -------
    tvm.transform.Pass
        From an IRModule to an IRModule. TVM itself refuses what is none, before the pass is asked: a PrimFunc, put it
        in a module: `tvm.IRModule({"main": func})`.

    Raises
    ------
    OptionError
        When an option is unknown or outside its domain.
    """
    chosen = FuseOptions.from_environment(**options)

    @prim_func_pass(opt_level=0, name="tir.FuseCascadedReductions")
    def run(func: tirx.PrimFunc, _mod: ir.IRModule, _context: ir.transform.PassContext) -> tirx.PrimFunc:
        return fuse_function(func, chosen, given_device(func)).func

    return run


# `fuse_cascade`: the rewrite on an open schedule, for manual scheduling.


def fuse_cascade(
    sch: s_tir.Schedule,
    blocks: Sequence[str | s_tir.schedule.SBlockRV],
    *,
    tile: int | None = None,
    segments: int = 1,
    lanes: int | None = None,
    reference: Reference = "exact",
    func_name: str = "main",
) -> list[s_tir.schedule.SBlockRV]:
    """Fuses the named reduction blocks of a schedule's function into one loop, in place.

    Parameters
    ----------
    sch : an open schedule, without work on its loops. Tiles are cut for its function's target, or TVM's current one.
    blocks : reduction blocks of one cascade: blocks of the schedule, or their names.
    tile, segments, lanes, reference : see `FuseOptions`.
    func_name : the function to work on.

    Returns
    -------
    list of SBlockRV
        The blocks of the fused loop, in program order; TVM's primitives work on them. Blocks taken before are void.

    Raises
    ------
    InputError
        When `sch` is no schedule, or a block does not exist.
    ScheduleError
        When the blocks form no cascade, with the law that fails. The schedule is unchanged.
    OptionError
        When a value is outside its domain.
    """
    if not isinstance(sch, s_tir.Schedule):
        raise InputError("a tvm.s_tir.Schedule", type(sch).__name__, "fuse_cascade(sch, …)")
    options = FuseOptions(tile=tile, segments=segments, lanes=lanes, reference=reference, force=True)
    functions = [var.name_hint for var in sch.mod.functions]
    if func_name not in functions:
        raise InputError(f"a function among {', '.join(functions)}", repr(func_name), "fuse_cascade(func_name=…)")
    if not isinstance(blocks, Sequence) or isinstance(blocks, str) or not blocks:
        raise InputError("reduction blocks, or their names", repr(blocks), "fuse_cascade(sch, blocks)")
    if foreign := [block for block in blocks if not isinstance(block, (str, s_tir.schedule.SBlockRV))]:
        raise InputError("reduction blocks, or their names", repr(foreign[0]), "fuse_cascade(sch, blocks)")
    func = sch.mod[func_name]
    known = _block_names(func)
    names = [block if isinstance(block, str) else sch.get(block).name_hint for block in blocks]
    if missing := [name for name in names if name not in known]:
        raise InputError(f"blocks among {', '.join(known)}", ", ".join(missing), f"fuse_cascade on {func_name}")
    outcome = fuse_function(func, options, given_device(func), names)
    refused = [d.reason for d in outcome.decisions if d.reason.verdict is not Verdict.FUSED] + _worked_on(sch, func)
    if refused or not outcome.fused:
        reason = refused[0] if refused else Reason("scheduled", "the function is fused already")
        raise ScheduleError("blocks that form one cascade", f"{', '.join(names)}: {reason}", func_name, reason.hint)
    # A new schedule under the old handle: replacing the root block alone leaves the new blocks' bindings unanalysed.
    module = sch.mod.clone()
    module.update_func(module.get_global_var(func_name), outcome.func)
    fused = s_tir.Schedule(module, seed=sch.fork_seed(), debug_mask=sch.state.debug_mask)
    fused.work_on(func_name)
    sch.__move_handle_from__(fused)
    return [sch.get_sblock(name, func_name=func_name) for name in _block_names(outcome.func, fused=True)]


def _worked_on(sch: s_tir.Schedule, func: tirx.PrimFunc) -> list[Reason]:
    """Why a schedule's work on loops would be lost: they are read as what the blocks' own variables run over."""
    kept = all(plainly_bound(nest).same_as(nest) for nest in statements_of(func))
    made = sch.trace is not None and any(not one.kind.is_pure for one in sch.trace.insts)
    return [Reason("scheduled", "the loops of a block were split or fused before")] if made and not kept else []


def _block_names(func: tirx.PrimFunc, fused: bool = False) -> list[str]:
    found = within(func.body, s_tir.SBlock)
    return [b.name_hint for b in found if b.name_hint != "root" and (not fused or ROLE in b.annotations)]
