"""Where programs are measured: this machine's CPU or its GPU, and how calls are timed there.

On a GPU a card under load lowers its clocks, so a program that is measured first, or after one that does little, looks
faster: each round takes some runs of every program, forth and back and from another one on, and what is told is over
all rounds. Before each run a buffer of twice the L2 cache is read, which leaves nothing there that a run could read,
and nothing that would have to be written back while it runs. Runs are queued while the device is kept busy by
something else, so that the host's time to start one does not count. How a CPU is timed, `timing` says.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from tvm.target import Target

from benchmarks import environment, timing
from benchmarks.environment import Environment, Memory
from benchmarks.timing import IdleGate, Plan, Timing, summarise
from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.progress import waiting
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError, OptionError

CPU, CUDA = "cpu", "cuda"
"""Devices, as torch calls them."""

Call = Callable[[], Any]


def _as_it_is(call: Call) -> Call:
    return call


@dataclass(frozen=True)
class Device:
    """Where programs are measured.

    Attributes
    ----------
    name : as torch calls it.
    target : of TVM's code.
    environment : of this process.
    settings : how much is timed.
    time : the times of calls that take turns, by their names, or what one failed with; its label is told meanwhile.
    torch : the module; None where a device is measured without it too.
    synchronise : waits for what runs.
    free : gives back memory that nothing uses.
    captured : the call of a whole model as it is timed.
    """

    name: str
    target: Target
    environment: Environment
    settings: Mapping[str, Any]
    time: Callable[[str, Mapping[str, Call]], Mapping[str, Timing | Exception]]
    torch: Any = None
    synchronise: Callable[[], None] = lambda: None
    free: Callable[[], None] = lambda: None
    captured: Callable[[Call], Call] = _as_it_is


def cpu(args: argparse.Namespace) -> Device:
    """The CPU of this machine, for torch and TVM with as many threads.

    Raises
    ------
    OptionError
        When a number is not positive.
    """
    for option in ("repeats", "max_seconds"):
        if not getattr(args, option) > 0:
            raise OptionError("a positive number", str(getattr(args, option)), f"--{option.replace('_', '-')}")
    threads, target, plan = environment.set_threads(), host_target(), Plan(args.repeats, args.max_seconds)

    def timed(label: str, calls: Mapping[str, Call]) -> Mapping[str, Timing | Exception]:
        gate = IdleGate(enabled=not args.no_idle_gate)
        with waiting(lambda: f"{label}: timing{gate.told}"):
            return {**timing.measure(calls, plan, gate)}

    settings = {**dataclasses.asdict(plan), "idle_gate": not args.no_idle_gate}
    return Device(CPU, target, environment.describe(target, threads, args.commit), settings, timed)


def cuda(args: argparse.Namespace, moving: bool) -> Device:
    """The first GPU of this machine.

    Parameters
    ----------
    moving : whether its memory's bandwidth is measured too.

    Raises
    ------
    OptionError, InputError
        When there are too few rounds, torch is not installed, or it sees no GPU.
    """
    plan = GpuPlan() if args.rounds is None else GpuPlan(rounds=args.rounds)
    if plan.rounds < _LEAST_ROUNDS:
        hint = "the card lowers its clocks under load, so that few rounds favour who comes first"
        raise OptionError(f"at least {_LEAST_ROUNDS} rounds", str(plan.rounds), "--rounds", hint)
    torch = torch_on_gpu(f"--device {CUDA}")
    clock, target = DeviceClock(torch), resolve_target(CUDA)
    where = environment.describe_gpu(torch, target, args.commit)
    where = dataclasses.replace(where, memory=bandwidths(torch, clock, CUDA) if moving else None)

    def timed(label: str, calls: Mapping[str, Call]) -> Mapping[str, Timing | Exception]:
        with waiting(f"{label}: timing"):
            return measure(calls, plan, clock)

    def free() -> None:
        with suppress(Exception):  # which tells of a kernel that broke the device, as every later row will
            torch.cuda.empty_cache()

    free()
    settings, captured = dataclasses.asdict(plan), partial(_captured, torch)
    return Device(CUDA, target, where, settings, timed, torch, torch.cuda.synchronize, free, captured)


def torch_on_gpu(where: str) -> Any:
    """The torch module, with a GPU.

    Parameters
    ----------
    where : what needs it, as the user wrote it.

    Raises
    ------
    OptionError
        When torch is not installed.
    InputError
        When torch sees no GPU.
    """
    try:
        import torch
    except ImportError as error:
        hint = "run: python -m pip install 'tvm-cascade[bench]', with a torch that is built for CUDA"
        raise OptionError("torch, whose kernels are the peers and the reference", "none", where, hint) from error
    if not torch.cuda.is_available():
        hint = "run it on a machine with an NVIDIA GPU and a torch built for CUDA, or pass --suite cpu"
        raise InputError("a GPU that torch sees", f"none by torch {torch.__version__}", where, hint)
    return torch


_LEAST_ROUNDS = 4
_CLOCK_HZ = 2_000_000_000
_HOST_SECONDS = 2e-4
"""To queue one run: more than any of the peers takes."""

_WARM_UP_RUNS = 3


@dataclass(frozen=True)
class GpuPlan:
    """How much to time on a GPU.

    Attributes
    ----------
    rounds : in which every program has a turn.
    turn_seconds : that the runs of one turn take together, about.
    least_runs, most_runs : of a turn.
    """

    rounds: int = 5
    turn_seconds: float = 0.03
    least_runs: int = 2
    most_runs: int = 40

    def runs(self, seconds: float) -> int:
        """How many runs of that length make a turn."""
        return max(self.least_runs, min(self.most_runs, round(self.turn_seconds / max(seconds, 1e-9))))


class Clock(Protocol):
    """What takes times."""

    def seconds(self, run: Call, runs: int) -> list[float]:
        """Seconds of each of several runs."""
        ...


class DeviceClock:
    """Takes device times by events, with the L2 cache filled with something else before each run."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._scratch = torch.ones(2 * torch.cuda.get_device_properties(0).L2_cache_size // 4, device="cuda")

    def seconds(self, run: Call, runs: int) -> list[float]:
        """Seconds of each run, on the device."""
        cuda = self._torch.cuda
        events = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(runs)]
        cuda.synchronize()
        cuda._sleep(int(_CLOCK_HZ * _HOST_SECONDS * runs))
        for before, after in events:
            self._scratch.amax()
            before.record()
            run()
            after.record()
        cuda.synchronize()
        return [before.elapsed_time(after) * 1e-3 for before, after in events]


def measure(programs: Mapping[str, Call], plan: GpuPlan, clock: Clock) -> dict[str, Timing | Exception]:
    """The timing of each program by its name, or what it failed with; one that fails takes no further turn."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    failed: dict[str, Exception] = {}
    runs: dict[str, int] = {}
    for turn in range(plan.rounds + 1):  # the first warms up, and finds how many runs make a turn
        for name in in_turn(tuple(programs), turn):
            if name in failed:
                continue
            try:
                found = clock.seconds(programs[name], runs.get(name, _WARM_UP_RUNS))
            except Exception as error:  # one program that fails must not hide the others
                failed[name] = error
                continue
            if turn == 0:
                runs[name] = plan.runs(statistics.median(found))
            else:
                seconds[name] += found
    return {name: failed.get(name) or summarise(seconds[name], 1, None) for name in programs}


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The order of a round: so that over the rounds each comes at every place, and not always after the same one."""
    start = turn // 2 % len(names) if names else 0
    order = [*names[start:], *names[:start]]
    return order[::-1] if turn % 2 else order


_BYTES = 4 * 2**30
"""Of what is read to measure the bandwidth: far more than caches hold."""

_RUNS = 5


def bandwidths(torch: Any, clock: Clock, device: str) -> Memory:
    """Those of the memory now: the best of some runs."""
    source = torch.randn(_BYTES // 4, device=device)
    target = torch.empty_like(source)
    copied = min(clock.seconds(lambda: target.copy_(source), _RUNS)[1:])
    summed = min(clock.seconds(source.sum, _RUNS)[1:])
    return Memory(_BYTES / summed, 2 * _BYTES / copied)


def _captured(torch: Any, call: Call) -> Call:
    """A replay of a CUDA graph of a call, so that the host's time to launch kernels does not count."""
    cuda = torch.cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        for _ in range(_WARM_UP_RUNS):
            call()
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=stream):
        kept = call()

    def replay() -> Any:
        graph.replay()
        return kept

    return replay
