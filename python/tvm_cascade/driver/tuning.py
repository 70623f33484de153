"""Tuned schedules: MetaSchedule measures candidates and keeps the best in a database."""

from __future__ import annotations

import importlib.util
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.target import Target

from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.schedule.loop_guards import hoist_guards
from tvm_cascade.schedule.tile_skip import skip_dead_tiles
from tvm_cascade.schedule.vector_math import vectorise_math

_TUNER_NEEDS = ("xgboost", "psutil", "cloudpickle")  # the extra `tune`
_TRIALS_PER_ITERATION = 32


@dataclass(frozen=True)
class Tuning:
    """The settings of the tuner.

    Attributes
    ----------
    trials : candidates to measure for each function.
    database : MetaSchedule's records, or the folder where they are kept; None for records that are thrown away.
    """

    trials: int
    database: str | Path | s_tir.meta_schedule.database.Database | None

    def __post_init__(self) -> None:
        if not isinstance(self.trials, int) or isinstance(self.trials, bool) or self.trials < 0:
            raise OptionError("a number of trials, 0 or more", repr(self.trials), "tune_trials")
        kinds = (str, Path, s_tir.meta_schedule.database.Database)
        if self.database is not None and not isinstance(self.database, kinds):
            raise InputError("a MetaSchedule database or a folder", type(self.database).__name__, "database")

    def check_packages(self) -> None:
        """Raises OptionError where the tuner lacks a package: after whatever makes tuning impossible anyway."""
        missing = [name for name in _TUNER_NEEDS if importlib.util.find_spec(name) is None]
        if self.trials and missing:
            hint = "run: python -m pip install 'tvm-cascade[tune]'"
            raise OptionError("the packages of the extra `tune`", f"no {', '.join(missing)}", "tune_trials", hint)

    @property
    def wanted(self) -> bool:
        """Whether schedules are tuned or read from a database at all."""
        return self.trials > 0 or self.database is not None

    def best(self, func: tirx.PrimFunc, target: Target, vector_math: bool) -> tirx.PrimFunc | None:
        """The function under the best known or tuned schedule; None where there is none."""
        from tvm.s_tir import meta_schedule  # loads the tuner's needs

        mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        with tempfile.TemporaryDirectory() as scratch:
            database = self.database
            if not isinstance(database, meta_schedule.database.Database):
                folder = Path(database or scratch)
                folder.mkdir(parents=True, exist_ok=True)
                database = meta_schedule.database.JSONDatabase(work_dir=str(folder))
            with target:  # MetaSchedule hands it to no rule of ours
                if self.trials:
                    build = _build_vectorised if vector_math else None
                    meta_schedule.tune_tir(
                        mod,
                        target,
                        scratch,
                        self.trials,
                        num_trials_per_iter=min(self.trials, _TRIALS_PER_ITERATION),
                        builder=meta_schedule.builder.LocalBuilder(f_build=build),
                        database=database,
                        num_tuning_cores="logical",
                    )
                schedule = meta_schedule.tir_integration.compile_tir(database, mod, target)
        if schedule is None:
            return None
        return schedule.mod["main"].with_attr("global_symbol", func.attrs["global_symbol"])


def _build_vectorised(mod: tvm.IRModule, target: Target, params: dict[str, tvm.runtime.Tensor] | None) -> Any:
    """How a tuning worker builds a candidate: with the arithmetic that it will have in the end."""
    from tvm.s_tir.meta_schedule.builder.local_builder import default_build

    vectorised = {
        variable: vectorise_math(skip_dead_tiles(hoist_guards(func)))[0] for variable, func in mod.functions_items()
    }
    return default_build(tvm.IRModule(vectorised), target, params)
