"""A design for a function that was not tuned, from the trials of the nearest one of its kind.

    predicted = estimate of the design here · (measured / estimate) there

The factor of each design that was measured there is taken over; what takes least with it is taken here, if it is a
design of this function: what does not fit its lengths is not in its space.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import prim

from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.lowering import Known
from tvm_cascade.driver.space import Design, Space
from tvm_cascade.tuning.keys import kind_of, signature_of
from tvm_cascade.tuning.records import NOISE, Records, Trial


@dataclass(frozen=True)
class Nearby(Known):
    """The trials of another function of the kind.

    Attributes
    ----------
    trials : that gave a time.
    """

    trials: tuple[Trial, ...] = ()

    @property
    def replayed(self) -> Collection[Mapping[str, str]]:
        """The designs that were measured there."""
        return [trial.words for trial in self.trials]

    @property
    def missing(self) -> str:
        """Why the model chooses where no design that was measured there is one of the function."""
        return f"{self.origin}, and none of its designs is one of this function"

    def design(self, space: Space) -> Design | None:
        """The design of the least predicted time among those that were measured; None where none is of the space.

        The model's own where it was measured and is predicted to take hardly more.
        """
        predicted: dict[Design, float] = {}
        for trial in self.trials:
            design = space.find(trial.words)
            if design is not None and trial.seconds is not None and trial.estimate > 0.0:
                predicted[design] = space.seconds(design) * trial.seconds / trial.estimate
        if not predicted:
            return None
        least = min(predicted, key=lambda design: predicted[design])
        own = predicted.get(space.default, math.inf)
        return space.default if own <= NOISE * predicted[least] else least


def nearby(records: Records, func: tirx.PrimFunc, goal: Goal) -> Known | None:
    """What trials of the nearest function of a function's kind tell of it; None where there are none."""
    alike = records.alike(signature_of(func, goal))
    if not alike:
        return None
    kind, here = kind_of(func, goal), _extents(func)
    found = [(other, trials) for other, trials in alike if trials[0].kind == kind and _measured(trials)]
    if not found:
        return None
    other, trials = min(found, key=lambda one: _distance(here, _extents(one[0]["main"])))
    shapes = ", ".join(f"{param.name} {_shape(param)}" for param in other["main"].params if tirx.is_buffer_var(param))
    last = {trial.key: trial for trial in trials}
    origin = f"a tuning session of {shapes}, which is of its kind"
    return Nearby({}, origin, asked=False, trials=tuple(_measured(last.values())))


def _measured(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.seconds is not None and math.isfinite(trial.seconds)]


def _shape(param: tirx.Var) -> str:
    return "×".join(str(int(e) if isinstance(e, prim.IntImm) else e) for e in param.ty.shape)


def _extents(func: tirx.PrimFunc) -> list[int]:
    extents = [extent for param in func.params if tirx.is_buffer_var(param) for extent in param.ty.shape]
    return [int(extent) if isinstance(extent, prim.IntImm) else 1 for extent in extents]


def _distance(one: list[int], other: list[int]) -> float:
    """Between shapes of the same ranks: extents compare by their ratio."""
    return sum(abs(math.log(max(a, 1) / max(b, 1))) for a, b in zip(one, other, strict=True))
