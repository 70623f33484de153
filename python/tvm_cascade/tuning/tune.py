"""`tvm_cascade.tune`: measures designs of a program's functions, and keeps them in a database."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tvm
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from tvm import tirx
from tvm.target import Target

from tvm_cascade.driver.functions import functions_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.options import FuseOptions
from tvm_cascade.tuning.building import Builder, LocalBuilder
from tvm_cascade.tuning.proposals import DEFAULT_TRIALS
from tvm_cascade.tuning.records import Database, Records, check_database
from tvm_cascade.tuning.report import FunctionTuning, TuningReport
from tvm_cascade.tuning.running import LocalRunner, Runner, check_device
from tvm_cascade.tuning.session import Budget, Session
from tvm_cascade.tuning.task import sizes_of, task_of

Array = NDArray[Any]

EVERY: Literal["all"] = "all"
"""The number of trials that leaves no design out."""


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
    progress: bool = True,
    **options: object,
) -> TuningReport:
    """Measures designs of each function, the model's choice first, and keeps all in a database.

    `compile(…, database=work_dir)` then builds the best without a search. What a session finds is on record at once:
    an interrupt loses nothing, and the same call goes on.

    Parameters
    ----------
    mod, target : as `compile` takes them.
    trials : designs tried of each function, with those of earlier sessions; "all" for those of long estimates as well.
    seconds : for each function, after which no further design is tried.
    work_dir : folder of the database, or MetaSchedule's database; what is found is told and forgotten without one.
    inputs : data of the one function, in the order of its inputs; normal numbers by default.
    sizes : symbolic extents by name, at which is measured; of several, a session at each, for a kernel for lengths of
        their buckets each. By default those of the inputs, or 1024.
    builder, runner : what builds, and what checks and times, which the caller closes; processes of this machine by
        default.
    progress : show a bar, where standard error is a terminal.
    **options : fields of `FuseOptions`.

    Raises
    ------
    InputError
        When the program is none, sizes are several and inputs are given, or this machine has no device of the target
        and no runner is given.
    OptionError
        When an option or a budget is outside its domain.
    """
    resolved, chosen = resolve_target(target), FuseOptions.from_environment(**options)
    _check_budget(trials, seconds)
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
            session = Session(task, inputs, Budget(None if trials == EVERY else trials, seconds), records, makes, runs)
            found.append(_run(session, shown=progress))
        return TuningReport(tuple(found))


def _functions(mod: tvm.IRModule | tirx.PrimFunc, inputs: Sequence[Array] | None) -> dict[str, tirx.PrimFunc]:
    """The functions to tune, by name; one, where inputs are given."""
    functions = {name: func for name, func in functions_of(mod, "tune").items() if isinstance(func, tirx.PrimFunc)}
    if not functions or (inputs is not None and len(functions) > 1):
        raise InputError("a function" if not functions else "one function, for inputs", str(len(functions)), "tune")
    return functions


def _each(
    sizes: Mapping[str, int] | Sequence[Mapping[str, int]] | None, inputs: Sequence[Array] | None
) -> Sequence[Mapping[str, int] | None]:
    """The sizes of each session of a function."""
    several = [sizes] if sizes is None or isinstance(sizes, Mapping) else list(sizes)
    if not several or (inputs is not None and len(several) > 1):
        raise InputError("sizes" if not several else "one size, for inputs", str(len(several)), "tune")
    return several


def _run(session: Session, *, shown: bool) -> FunctionTuning:
    try:
        with _bar(session, shown) as watch:
            session.run(watch)
    except KeyboardInterrupt:
        print(f"{TuningReport((session.report,))}\nall of it is on record", file=sys.stderr)
        raise
    return session.report


@contextlib.contextmanager
def _bar(session: Session, shown: bool) -> Iterator[Any]:
    """A progress bar on standard error: trials, the best so far, the time left."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as bar:
        name = session.report.label
        line = bar.add_task(name, total=session.count, completed=session.tried)

        def watch(session: Session) -> None:
            report = session.report
            best = report.best
            told = f"best {best.seconds * 1e6:.1f} µs ({report.gain:.2f}×)" if best and best.seconds else "no time yet"
            bar.update(line, completed=session.tried, description=f"{name}: {told}")

        yield watch


def _check_budget(trials: object, seconds: object) -> None:
    if trials != EVERY and (not isinstance(trials, int) or isinstance(trials, bool) or trials < 1):
        raise OptionError(f'a number of trials, 1 or more, or "{EVERY}"', repr(trials), "trials")
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        raise OptionError("a number of seconds above 0", repr(seconds), "seconds")
