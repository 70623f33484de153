"""A step of a plan that no skeleton's kernel computes: the estimate of its S-TIR schedule."""

from __future__ import annotations

from tvm import tirx

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import statements_of
from tvm_cascade.plan.plan import Step
from tvm_cascade.tile.estimate import Work, count_work
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.transform.fuse_function import AsItIs, Outcome, read_function


def scheduled(outcome: Outcome, why: Kernel | AsItIs | str, setting: Setting, alone: bool = False) -> Step:
    """A function as one step of an S-TIR schedule.

    Parameters
    ----------
    why : it has no kernel of a skeleton.
    alone : it is all of the plan, and so none of its kernels is launched dependently.
    """
    gpu, program = setting.gpu, read_in_part(outcome)
    if program is None:
        return Step(outcome.given, outcome, why, Work(), gpu.dependent_launch_seconds)
    work = count_work(program)
    moved = work if outcome.fused else count_work(program, temporaries=True)
    memory, compute = gpu.rates.scheduled_memory_share, gpu.rates.scheduled_compute_share
    kernels = len(statements_of(outcome.readable.body.block))
    seconds = (
        moved.seconds(gpu, memory, compute, gpu.product_flops_per_second / compute)
        + kernels * gpu.dependent_launch_seconds
    )
    if alone or work.flops:  # threads that walk k by themselves take about a launch as well
        seconds += kernels * (gpu.launch_seconds - gpu.dependent_launch_seconds)
    return Step(program.func, outcome, why, work, seconds)


def read_in_part(outcome: Outcome) -> Program | None:
    """The function as it was read, also where nests of it could not be; None where they share names of memory."""
    read = read_function(outcome.given) if outcome.program is None else outcome.program
    if isinstance(read, Reason) or any(isinstance(one.nest, tirx.DeclBuffer) for one in read.opaque):
        return None
    return read
