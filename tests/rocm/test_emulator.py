"""The emulator of waves finds faults: each of these changes of a program that is right makes it fail, and says why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from tvm import tirx
from tvm.target import Target

from corpus import workloads

from ..tiers import slow_but
from .emulator.retarget import MisplacedPointer, for_host
from .emulator.run import Array, EmulationError, Kernels, compiler, execute
from .programs import differences, lowered, target_of

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

WRONG = "wrong"
"""The program ends, and its results are not the oracle's."""

ORDER = "the result depends on the order of threads"
_BARRIER = r"call void @llvm\.amdgcn\.s\.barrier\(\)"
_EXCHANGE = r"call i32 @llvm\.amdgcn\.ds\.bpermute\(i32 %\d+, i32 (%\d+)\)"


@dataclass(frozen=True)
class Fault:
    """One place of the kernels' LLVM IR, and what stands there instead.

    Attributes
    ----------
    message : of the complaint, as a regular expression; or WRONG.
    which : of the places where the pattern matches; None for all.
    lanes : of a wave.
    """

    workload: str
    pattern: str
    change: str
    message: str
    which: int | None = None
    lanes: int = 64

    def __call__(self, text: str) -> str:
        """The text with the fault."""
        if self.which is None:
            return re.sub(self.pattern, self.change, text)
        place = list(re.finditer(self.pattern, text))[self.which]
        return text[: place.start()] + place.expand(self.change) + text[place.end() :]


FAULTS = {
    "operands_read_before_they_are_staged": Fault("attention", _BARRIER, "call void @lockstep()", ORDER, 1),
    "operands_staged_while_they_are_read": Fault("attention", _BARRIER, "call void @lockstep()", ORDER, 2),
    "partial_sums_not_waited_for": Fault("softmax", _BARRIER, "call void @lockstep()", ORDER, 6),
    "sums_of_half_a_wave": Fault("attention", _EXCHANGE, r"add i32 \1, 0", WRONG, 7),
    "sums_not_told_to_the_wave": Fault("attention", _EXCHANGE, r"add i32 \1, 0", WRONG, -1),
    "waves_of_32_lanes": Fault("attention", "$^", "", WRONG, lanes=32),
    "lanes_numbered_by_halves": Fault("attention", r"(mbcnt\.hi\(i32 -1, i32 )%\d+", r"\g<1>0", WRONG, 0),
    "lds_not_volatile": Fault("softmax", " volatile", "", ORDER),
    "barrier_for_some_of_the_threads": Fault(
        "softmax", r"\nif_then:.*\n", r"\g<0>  call void @llvm.amdgcn.s.barrier()\n", "deadlock: .*s_barrier", 0
    ),
    "part_of_a_wave_exchanges": Fault(
        "attention",
        r"\nif_then9:.*\n(.* phi .*\n)*",
        r"\g<0>  %part = call i32 @llvm.amdgcn.ds.bpermute(i32 0, i32 0)\n",
        "lanes of a wave part",
        0,
    ),
}


@cache
def _case(name: str) -> tuple[tirx.PrimFunc, tirx.PrimFunc, Target, list[Array]]:
    job = workloads.get(name).cpu
    func = job.build()
    return func, lowered(func), target_of(), job.inputs(np.random.default_rng(0))


def outcome(workload: str, fault: Fault | None = None) -> str:
    """What the emulator says to a program: WRONG, nothing, or its complaint."""
    func, scheduled, target, inputs = _case(workload)
    try:
        change, lanes = (fault, fault.lanes) if fault is not None else ((lambda text: text), 64)
        found = execute(scheduled, target, inputs, change, lanes)
    except EmulationError as error:
        return str(error)
    return WRONG if differences(func, inputs, found) else ""


@pytest.mark.parametrize("workload", ["attention", "softmax"])
def test_programs_without_faults(workload: str) -> None:
    assert outcome(workload) == ""


OTHERS = ("operands_staged_while_they_are_read", "sums_not_told_to_the_wave")
"""Faults at another place of what the ones before them are at."""


@pytest.mark.parametrize("name", slow_but([name for name in FAULTS if name not in OTHERS], FAULTS))
def test_fault_is_found(name: str) -> None:
    assert re.search(FAULTS[name].message, outcome(FAULTS[name].workload, FAULTS[name]))


def test_shared_memory_taken_for_global_memory_is_found() -> None:
    """As TVM's own lowering takes it, where one array has the room of another."""
    _, scheduled, target, _ = _case("attention")
    ours, stock = Kernels(scheduled, target), Kernels(scheduled, target, pipeline="s_tir")
    assert "addrspacecast" not in ours.text
    with pytest.raises(MisplacedPointer, match="address space 3 is cast to 1"):
        for_host(stock.text, stock.host)
