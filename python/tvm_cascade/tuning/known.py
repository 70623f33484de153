"""Where designs are looked up: in the caller's database, then in the one that is shipped with this package."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from tvm import tirx
from tvm.target import Target

from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.lowering import Designs, Known
from tvm_cascade.driver.space import Sizes
from tvm_cascade.tuning import shipping
from tvm_cascade.tuning.nearby import nearby
from tvm_cascade.tuning.records import Database, Records, Trial, best, workload_of

LookUp: TypeAlias = str | Path | Database | Literal[False] | None
"""A database to read before the shipped one; None for the shipped one alone, False for neither."""


def known_designs(database: LookUp, target: Target) -> Designs | None:
    """The best designs on record; None where there is nothing to look into."""
    if database is False or (database is None and not shipping.folder_of(device_of(target)).is_dir()):
        return None
    given = Records(database)

    def known(func: tirx.PrimFunc, goal: Goal, _sizes: Sizes) -> Known | str:
        own = given.trials(workload_of(func, goal)) if database is not None else []
        if (found := best(own)) is not None:
            return Known(found.words, f"a tuning session{_measured(found, own)}")
        if database is not None and (near := nearby(given, func, goal)) is not None:
            return near
        others = shipping.trials(func, goal)
        if (found := best(others)) is not None:
            told = f"the database shipped with this package, of {found.device}{_measured(found, others)}"
            return Known(found.words, told, asked=False)
        return "" if database is None else "nothing is on record of this function for this device and these options"

    return known


def _measured(chosen: Trial, trials: list[Trial]) -> str:
    """When, how long, and beside which default."""
    default = next((one for one in reversed(trials) if one.key == trials[0].key and one.seconds), None)
    told = [f" of {chosen.when}" if chosen.when else "", f": {(chosen.seconds or 0.0) * 1e6:.1f} us measured"]
    if default is not None and default.seconds and default.key != chosen.key:
        told.append(f", {default.seconds * 1e6:.1f} us of the model's choice")
    elif default is not None:
        told.append(", which is the model's choice as well")
    return "".join(told)
