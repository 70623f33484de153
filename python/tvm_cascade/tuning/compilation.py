"""`tvm_cascade.compile`: from an unfused program to a runnable one, by the best designs that are known."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target
from typing_extensions import Unpack

from tvm_cascade.driver.compilation import compile_for
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import OptionError
from tvm_cascade.options import FuseOptions, Options, takes_options
from tvm_cascade.tuning.known import LookUp, known_designs, text_of
from tvm_cascade.tuning.records import check_database
from tvm_cascade.tuning.tune import tune


@takes_options
def compile(
    mod_or_func: tvm.IRModule | tirx.PrimFunc,
    target: str | dict[str, Any] | Target = "auto",
    tune_trials: int = 0,
    database: LookUp = None,
    **options: Unpack[Options],
) -> Compiled:
    """Fuse, schedule and build a program. The caller's program is not changed.

    Parameters
    ----------
    mod_or_func : S-TIR functions, not scheduled yet. Functions that are scheduled, or cannot be read, are built as
        they are.
    target : "auto" for the CPU of this machine, an LLVM target, "cuda" for its first GPU, or a CUDA or ROCm target,
        such as {"kind": "cuda", "arch": "sm_90a"} or {"kind": "rocm", "mcpu": "gfx942"}, which need no GPU to compile
        for; code for AMD GPUs is linked by LLD.
    tune_trials : how many designs of each function `tune` measures first; with 0, the kernel is what databases know, or
        the model's own choice.
    database : of `tune`: MetaSchedule's records, or the folder where they are kept; read first, and written when
        tuning. What it does not know is looked up in the database that is shipped with this package, if there is one
        for the device; False for the model's own choices.
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Returns
    -------
    Compiled

    Raises
    ------
    InputError
        When the program is no module of PrimFuncs or is empty, the target is not one that we schedule for, a
        buffer has 2^31 elements or more and indices of 32 bits, or it shall be tuned and this machine has no device
        of the target.
    OptionError
        When an option is unknown or outside its domain.
    CompilerError
        When a ROCm target has no LLD to link by, or it fails.
    """
    chosen, resolved = FuseOptions.from_environment(**options), resolve_target(target)
    if not isinstance(tune_trials, int) or isinstance(tune_trials, bool) or tune_trials < 0:
        raise OptionError("a number of trials, 0 or more", repr(tune_trials), "tune_trials")
    check_database(database)
    if tune_trials and not database:
        database = tvm.s_tir.meta_schedule.database.MemoryDatabase()
    if tune_trials:
        tune(mod_or_func, resolved, tune_trials, work_dir=database, **{n: getattr(chosen, n) for n in vars(chosen)})
    return compile_for(mod_or_func, resolved, chosen, known_designs(database, resolved), text_of(database))
