"""Where designs are looked up: in the caller's database, then in the one that is shipped with this package.

For a function that was not tuned, the trials of the nearest one of its kind tell of designs:

    predicted = estimate of the design here · (measured / estimate) there

The factor of each design that was measured there is taken over; what takes least with it is taken here, if it is a
design of this function: what does not fit its lengths is not in its space.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from tvm import tirx
from tvm.ir import prim
from tvm.target import Target

from tvm_cascade.analysis.program import at_sizes
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.lowering import Designs, Known
from tvm_cascade.driver.space import Sizes
from tvm_cascade.tuning import shipping
from tvm_cascade.tuning.keys import bucket, kind_of
from tvm_cascade.tuning.records import Database, Records, Trial, best, sizes_text, workload_of

LookUp: TypeAlias = str | Path | Database | Literal[False] | None
"""A database to read before the shipped one; None for the shipped one alone, False for neither."""


def known_designs(database: LookUp, target: Target) -> Designs | None:
    """The best designs on record; None where there is nothing to look into."""
    if database is False or (database is None and not shipping.folder_of(device_of(target)).is_dir()):
        return None
    given = Records(database)

    def known(func: tirx.PrimFunc, goal: Goal, sizes: Sizes) -> Known | str:
        own = given.trials(workload_of(func, goal)) if database is not None else []
        if (found := _of_session(own, sizes, "a tuning session")) is not None:
            return found
        if database is not None and (near := nearby(given, at_sizes(func, sizes), goal)) is not None:
            return near
        others = shipping.trials(func, goal)
        shipped = f"the database shipped with this package, of {others[0].device}" if others else ""
        if (found := _of_session(others, sizes, shipped)) is not None:
            return dataclasses.replace(found, asked=False)
        return "" if database is None else "nothing is on record of this function for this device and these options"

    return known


def text_of(database: LookUp) -> str | None:
    """What tells designs on record from others; None of a database in memory, which may change unseen."""
    if not isinstance(database, (str, Path)):
        return repr(database) if database is None or database is False else None
    files = sorted(path for path in Path(database).glob("*") if path.is_file())
    return repr([(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files])


def _of_session(trials: list[Trial], sizes: Sizes, told: str) -> Known | None:
    """What sessions of a function found; of several, those at the nearest sizes, and of these the last.

    The best design of a session in the bucket of the sizes is taken; what others measured is taken over by estimates,
    where there are any.
    """
    times = _with_times(trials)
    if not times:
        return None
    nearest = min(reversed(times), key=lambda trial: _apart(trial.sizes, sizes)) if sizes else times[-1]
    session = [trial for trial in trials if trial.sizes == nearest.sizes]
    found = best(session)
    assert found is not None, "a session with a time"
    told += f" at {sizes_text(found.sizes)}" if found.sizes else ""
    if sizes and _apart(found.sizes, sizes) > 0.0 and all(trial.estimate > 0.0 for trial in times):
        return Known(_factors(session), told)
    return Known([(found.words, 1.0)], f"{told}{_measured(found, session)}")


def _apart(measured: Mapping[str, int], sizes: Sizes) -> float:
    """How far sizes that were measured are from buckets that end at others: none where they lie in them."""
    return sum(abs(math.log2(bucket(size) / sizes[name])) for name, size in measured.items() if name in sizes)


def _measured(chosen: Trial, trials: list[Trial]) -> str:
    """When, how long, and beside which default."""
    default = next((one for one in reversed(trials) if one.key == trials[0].key and one.seconds), None)
    told = [f" of {chosen.when}" if chosen.when else "", f": {(chosen.seconds or 0.0) * 1e6:.1f} us measured"]
    if default is not None and default.seconds and default.key != chosen.key:
        told.append(f", {default.seconds * 1e6:.1f} us of the model's choice")
    elif default is not None:
        told.append(", which is the model's choice as well")
    return "".join(told)


def nearby(records: Records, func: tirx.PrimFunc, goal: Goal) -> Known | None:
    """What trials of the nearest function of a function's kind tell of it; None where there are none."""
    found = [(other, factors) for other, trials in records.alike(kind_of(func, goal)) if (factors := _factors(trials))]
    if not found:
        return None
    here = _extents(func)
    other, factors = min(found, key=lambda one: _distance(here, _extents(one[0])))
    shapes = ", ".join(f"{param.name} {_shape(param)}" for param in other.params if tirx.is_buffer_var(param))
    return Known(factors, f"a tuning session of {shapes}, which is of its kind", asked=False)


def _factors(trials: Iterable[Trial]) -> list[tuple[Mapping[str, str], float]]:
    """The last measured time over the estimate of each design that has both."""
    last = {trial.key: trial for trial in trials}
    times = [trial for trial in _with_times(last.values()) if trial.estimate > 0.0]
    return [(trial.words, (trial.seconds or 0.0) / trial.estimate) for trial in times]


def _with_times(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.seconds is not None and math.isfinite(trial.seconds)]


def _shape(param: tirx.Var) -> str:
    return "×".join(str(int(e) if isinstance(e, prim.IntImm) else e) for e in param.ty.shape)


def _extents(func: tirx.PrimFunc) -> list[int]:
    extents = [extent for param in func.params if tirx.is_buffer_var(param) for extent in param.ty.shape]
    return [int(extent) if isinstance(extent, prim.IntImm) else 1 for extent in extents]


def _distance(one: list[int], other: list[int]) -> float:
    """Between shapes of the same ranks: extents compare by their ratio."""
    return sum(abs(math.log(max(a, 1) / max(b, 1))) for a, b in zip(one, other, strict=True))
