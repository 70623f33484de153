"""The pass: `tvm.tir.transform.FuseCascadedReductions()`."""

from __future__ import annotations

from tvm import ir, tirx
from tvm.tirx.transform import prim_func_pass

from tvm_cascade.devices.read import given_device
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function


def FuseCascadedReductions(**options: object) -> ir.transform.Pass:
    """Fuses each chain of reductions over one axis into one loop.

    Functions that hold no such chain are left as they are, and so are those that cannot be read; `tvm_cascade.explain`
    says why. Applying the pass again changes nothing. What tiles are cut for is the target of the function where it
    has one (its attribute `target`), else TVM's current target, else a CPU.

    rewrite: for l: m = max(m, x[l]);  for l: t += exp(x[l] − m)
          →  for tile: m′ = max(m, max x);  t = t·exp(m − m′) + Σ exp(x − m′)

    Parameters
    ----------
    **options
        Fields of `tvm_cascade.FuseOptions`; unset ones come from TVM_CASCADE_* variables, then from the defaults.

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
