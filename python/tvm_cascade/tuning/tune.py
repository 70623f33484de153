"""`tvm_cascade.tune`: measures designs of a program's functions, and keeps them in a database."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import tvm
from numpy.typing import NDArray
from tvm import tirx
from tvm.target import Target
from typing_extensions import Unpack

from tvm_cascade.driver.functions import functions_of
from tvm_cascade.driver.progress import compiling, tell
from tvm_cascade.driver.space import Design
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.options import FuseOptions, Options, takes_options
from tvm_cascade.tuning.building import Builder, Built, LocalBuilder
from tvm_cascade.tuning.keys import kind_of
from tvm_cascade.tuning.proposals import DEFAULT_TRIALS, Proposals, within
from tvm_cascade.tuning.records import Database, Records, Trial, check_database, workload_of
from tvm_cascade.tuning.report import FunctionTuning, TuningReport
from tvm_cascade.tuning.running import LocalRunner, Runner, check_device
from tvm_cascade.tuning.task import Task, sizes_of, space_for, task_of
from tvm_cascade.tuning.worker import TrialError

Array = NDArray[Any]

EVERY: Literal["all"] = "all"
"""The number of trials that leaves no design out."""


@takes_options
def tune(
    mod: tvm.IRModule | tirx.PrimFunc,
    target: str | dict[str, Any] | Target = "auto",
    trials: int | Literal["all"] = DEFAULT_TRIALS,
    seconds: float | None = None,
    work_dir: str | Path | Database | None = None,
    *,
    inputs: Sequence[Array] | None = None,
    sizes: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
    builder: Builder | None = None,
    runner: Runner | None = None,
    **options: Unpack[Options],
) -> TuningReport:
    """Measures designs of each function, the model's choice first, and keeps all in a database.

    `compile(…, database=work_dir)` then builds the best without a search. What a session finds is on record at once:
    an interrupt loses nothing, and the same call goes on.

    Parameters
    ----------
    mod, target : as `compile` takes them.
    trials : designs tried of each function, with those of earlier sessions; "all" for those of long estimates as well.
    seconds : for each function, after which no further design is tried.
    work_dir : folder of the database, or MetaSchedule's database; without one, what is found is reported and forgotten.
    inputs : data of the one function, in the order of its inputs; normal numbers by default.
    sizes : symbolic extents by name, at which is measured; of several, a session at each, for a kernel for lengths of
        their buckets each. By default those of the inputs, or 1024.
    builder, runner : what builds, and what checks and times, which the caller closes; processes of this machine by
        default.
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Raises
    ------
    InputError
        When the program is none, sizes are several and inputs are given, or this machine has no device of the target
        and no runner is given.
    OptionError
        When an option or a budget is outside its domain.
    """
    resolved, chosen = resolve_target(target), FuseOptions.from_environment(**options)
    check_budget(trials, seconds)
    check_database(work_dir)
    asked = [(*one, at) for one in _functions(mod, inputs).items() for at in _each(sizes, inputs)]
    if runner is None:
        check_device(resolved)
    with contextlib.ExitStack() as stack:
        makes, runs = builder or LocalBuilder(), runner or LocalRunner()
        for made in [one for one in (makes, runs) if one not in (builder, runner)]:
            stack.callback(made.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tvm_cascade_tune_")))
        records = Records(work_dir, write=True)
        found = []
        for number, (name, func, at) in enumerate(asked):
            measured_at = sizes_of(func, name, at, inputs)
            task = task_of(name, func, resolved, chosen, folder / str(number), measured_at)
            session = Session(task, inputs, trials, seconds, records, makes, runs)
            with compiling(chosen):
                found.append(_run(session))
        return TuningReport(tuple(found))


def _functions(mod: tvm.IRModule | tirx.PrimFunc, inputs: Sequence[Array] | None) -> dict[str, tirx.PrimFunc]:
    """The functions to tune, by name; one, where inputs are given."""
    functions = {name: func for name, func in functions_of(mod, "tune").items() if isinstance(func, tirx.PrimFunc)}
    if not functions:
        raise InputError("a module with a PrimFunc", "none", "tune")
    if inputs is not None and len(functions) > 1:
        hint = "tune them one by one, each with its inputs"
        raise InputError("one function, since inputs are given", f"{len(functions)} functions", "tune", hint)
    return functions


def _each(
    sizes: Mapping[str, int] | Sequence[Mapping[str, int]] | None, inputs: Sequence[Array] | None
) -> Sequence[Mapping[str, int] | None]:
    """The sizes of each session of a function."""
    several = [sizes] if sizes is None or isinstance(sizes, Mapping) else list(sizes)
    if not several:
        raise InputError("extents by name, or several such mappings", "an empty list", "tune(sizes=…)")
    if inputs is not None and len(several) > 1:
        hint = "leave the inputs out, so that data are drawn at each size"
        raise InputError("one size, since inputs are given", f"{len(several)} sizes", "tune(sizes=…)", hint)
    return several


def _run(session: Session) -> FunctionTuning:
    try:
        session.run()
    except KeyboardInterrupt:
        print(f"{TuningReport((session.report,))}\nall of it is on record", file=sys.stderr)
        raise
    return session.report


def check_budget(trials: object, seconds: object) -> None:
    """Raise an OptionError where they are no budget of a session."""
    if trials != EVERY and (not isinstance(trials, int) or isinstance(trials, bool) or trials < 1):
        raise OptionError(f'a number of trials, 1 or more, or "{EVERY}"', repr(trials), "trials")
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        raise OptionError("a number of seconds above 0", repr(seconds), "seconds")


# A tuning session of one function: the default first, then what may take less, until the budget ends.


_FINALISTS = 3
"""That are measured once more, in turns with the default."""


class Session:
    """The search for the best design of a task.

    Parameters
    ----------
    trials, seconds : as `tune` takes them.

    Attributes
    ----------
    trials : what was tried, in order, also by earlier sessions.
    stopped : why it ended, in words.
    """

    def __init__(
        self,
        task: Task,
        inputs: Sequence[Array] | None,
        trials: int | Literal["all"],
        seconds: float | None,
        records: Records,
        builder: Builder,
        runner: Runner,
    ) -> None:
        self.task, self._inputs, self._every, self._seconds = task, inputs, trials == EVERY, seconds
        self._records, self._builder, self._runner = records, builder, runner
        self._space, self._goal = space_for(task), task.goal
        self._proposals = Proposals(self._space)
        self._most = sys.maxsize if trials == EVERY else int(trials)
        self._workload = workload_of(task.function, self._goal)
        self._sizes = dict(task.sizes)
        self.trials = [trial for trial in records.trials(self._workload) if trial.sizes == self._sizes]
        self.known = len(self.trials)
        self.stopped = "interrupted"
        self._start, self._marks = time.monotonic(), dict[int, Trial]()
        self._one_default = threading.Lock()
        self._built: dict[Design, Built] = {}
        self._kind = kind_of(task.function, self._goal)
        self._within: float | None = None

    @property
    def report(self) -> FunctionTuning:
        default = self._space.words(self._space.default)
        seconds = time.monotonic() - self._start
        shown = tuple(self.trials), default, self.known, self.stopped, seconds, self._within
        return FunctionTuning(self.task.name, *shown, sizes=self._sizes)

    @property
    def tried(self) -> int:
        """Designs that were tried, of different programs."""
        return len({trial.key for trial in self.trials if not trial.same})

    def run(self) -> None:
        """Tries designs; every trial is on record when the next one starts."""
        spare, new = self._most - self.tried, False
        while batch := self._next():
            built = self._builder.build(self.task, batch, self._marks)
            if not new:
                self._runner.prepare(self.task, self._inputs)
            new = True
            self._try(batch, built)
        if new and spare > 0 and self._left() > 0:
            self._measure_in_turns()
        if self._every:
            self._within = within(self._proposals, self._outcomes(), DEFAULT_TRIALS)

    def _next(self) -> list[Design]:
        """Designs to build together; none where the session is over."""
        times, done = self._times(), self._done()
        size = max(self._builder.batch, self._runner.batch)
        batch = self._proposals.next(times, done, min(size, self._most - self.tried))
        why = self._over(times, done, batch)
        self.stopped = why or "interrupted"
        return [] if why else batch

    def _over(self, times: dict[Design, float], done: list[Design], batch: list[Design]) -> str:
        """Why the session is over, in words; empty where it is not."""
        if not batch:
            return "all trials" if self._most <= self.tried else "no design is left"
        if self._left() <= 0:
            return f"{self._seconds:.0f} s"
        if self._space.default in self._done() and self._space.default not in times:
            return "the default design failed, so that nothing can be compared"
        if not self._every and not self._proposals.may_win(times, done, self.tried):
            return "no estimate that is left is near the best"
        return ""

    def _left(self) -> float:
        return math.inf if self._seconds is None else self._seconds - (time.monotonic() - self._start)

    def _times(self) -> dict[Design, float]:
        """The last measured seconds of designs of this space."""
        found = {self._space.find(trial.words): trial.seconds for trial in self.trials}
        return {design: seconds for design, seconds in found.items() if design is not None and seconds is not None}

    def _outcomes(self) -> dict[Design, Trial]:
        """The first trial of each design of this space."""
        found = [(self._space.find(trial.words), trial) for trial in reversed(self.trials) if not trial.in_turns]
        return {design: trial for design, trial in found if design is not None}

    def _done(self) -> list[Design]:
        """Designs that are not tried again: a default that failed in an earlier session is, without it nothing goes."""
        default = self._space.words(self._space.default)
        again = [one for one in self.trials[: self.known] if one.failed and one.words == default]
        found = (self._space.find(trial.words) for trial in self.trials if trial not in again)
        return [design for design in found if design is not None]

    def _try(self, designs: Sequence[Design], built: Sequence[Built | TrialError]) -> None:
        """Runs those that are other programs than before, as many at a time as the runner does, and keeps all."""
        fresh: dict[int, Design] = {}
        for design, one in zip(designs, built, strict=True):
            if isinstance(one, Built) and one.mark not in self._marks and fresh.setdefault(one.mark, design) == design:
                self._built[design] = one
        with ThreadPoolExecutor(self._runner.batch) as pool:
            try:
                running = {design: pool.submit(self._run, design) for design in fresh.values()}
                for design, one in zip(designs, built, strict=True):
                    self._keep(self._outcome(design, one, running.get(design)))
            except BaseException:  # an interrupt, or no device is left: what has not begun is not waited for
                pool.shutdown(wait=False, cancel_futures=True)
                self._runner.close()
                raise

    def _outcome(self, design: Design, built: Built | TrialError, running: Future[float] | None) -> Trial:
        """What became of a design, once that is known."""
        words, estimate = self._space.words(design), self._space.seconds(design)
        if isinstance(built, TrialError):
            return Trial(words, None, estimate, built.stage, built.reason)
        if running is None:
            same = self._marks[built.mark]
            return Trial(words, same.seconds, estimate, same.failed, same.reason, same=True)
        try:
            trial = Trial(words, running.result(), estimate)
        except TrialError as error:
            trial = Trial(words, None, estimate, error.stage, error.reason)
        self._marks[built.mark] = trial
        return trial

    def _run(self, design: Design) -> float:
        """Seconds of a design whose library there is."""
        with self._one_default:
            default = self._default()
        return self._runner.run(self.task, design, self._built[design], default)

    def _default(self) -> Built:
        """The default's library, which a session that goes on builds again."""
        default = self._space.default
        if default not in self._built:
            (again,) = self._builder.build(self.task, [default])
            if isinstance(again, TrialError):
                raise again
            self._built[default] = again
        return self._built[default]

    def _measure_in_turns(self) -> None:
        """Measures the best few and the default again; those are compared at the end."""
        times, default = self._times(), self._space.default
        different = [design for design in times if design in self._built]  # those of the same program have its time
        best = sorted(different, key=lambda design: times[design])[:_FINALISTS]
        chosen = list(dict.fromkeys([default, *best]))
        marks = {self._built[design].mark: design for design in reversed(chosen) if design in self._built}
        last = [design for design in chosen if design in marks.values()]
        if default not in last or len(last) < 2:
            return
        try:
            seconds = self._runner.compare(self.task, [(design, self._built[design]) for design in last])
        except TrialError:
            return
        for design, measured in zip(last, seconds, strict=True):
            estimate = self._space.seconds(design)
            self._keep(Trial(self._space.words(design), measured, estimate, in_turns=True))

    def _keep(self, trial: Trial) -> None:
        kept = dataclasses.replace(trial, kind=self._kind, sizes=self._sizes)
        self.trials.append(kept)
        self._records.add(self._workload, kept, self._goal)
        best, gain = self.report.best, self.report.gain
        told = f"best {best.seconds * 1e6:.1f} µs ({gain:.2f}×)" if best and best.seconds else "no time yet"
        count = min(self._most, len(self._proposals.designs))
        tell(f"{self.report.label}: {self.tried} of {count} designs tried, {told}")
