"""Registers the pass under `tvm.tir.transform` when `import tvm` loads this package as a plug-in.

TVM calls every entry point of the group `tvm.backends` at the end of its own import; ours is `autoload`. It adds

- `FuseCascadedReductions` to `tvm.s_tir.transform`, `tvm.tirx.transform` and `tvm.tir.transform`;
- the names `tvm.tir` and `tvm.tir.transform` where TVM lacks them (0.27 split `tvm.tir` into `tvm.tirx` and
  `tvm.s_tir`), and `from tvm.script import tir as T`;
- the schedule rule by which MetaSchedule schedules our fused functions.

It also tells `inspect` of frames that are of no file (`_name_frames_of_imports`), so that MetaSchedule's workers, which
import every tensor intrinsic of TVM within their time limit, are ready in time.

Every process that imports TVM pays for this, tuning workers included, so nothing here imports the algebra or the
passes before they are called.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# MetaSchedule looks up `s_tir.meta_schedule.<target key>.<value of the block annotation schedule_rule>`.
_CPU_SCHEDULE_RULE = "s_tir.meta_schedule.cpu.tvm_cascade"


def autoload() -> None:
    """Attach this package to the TVM that is being, or has been, imported. Calling it again changes nothing."""
    import tvm

    if tvm._RUNTIME_ONLY:  # no compiler, hence nothing to fuse or to schedule
        return
    tir = _existing_or_facade("tvm.tir", (tvm.tirx, tvm.s_tir))
    tir_transform = _existing_or_facade("tvm.tir.transform", (tvm.tirx.transform, tvm.s_tir.transform))
    tvm.tir, tir.transform = tir, tir_transform
    for transform in (tvm.s_tir.transform, tvm.tirx.transform, tir_transform):
        transform.FuseCascadedReductions = FuseCascadedReductions
    if not hasattr(tvm.script, "tir"):
        tvm.script.register_dialect("tir", "tvm.tirx.script")
    tvm.register_global_func(_CPU_SCHEDULE_RULE, _schedule_cpu, override=True)
    _name_frames_of_imports()


# What frames of no file say: of imports, of `python -m`, of `python -c` and `exec`, of TVM's parser, of pytest-xdist.
_FILES_OF_MODULES = {
    **{f"<frozen {name}>": name for name in ("importlib._bootstrap", "importlib._bootstrap_external", "runpy")},
    **dict.fromkeys(("<string>", "<stdin>", "<ast>", "<execnet>"), ""),
}


def _name_frames_of_imports() -> None:
    """Say to `inspect` what it cannot find out by files: the modules that frames of a running import are of, or none.

    TVM's parser asks for the whole stack at each PrimFunc, and `inspect` searches all modules for each frame whose file
    it does not know: two thirds of the import of `tvm.s_tir.tensor_intrin`.
    """
    for file, module in _FILES_OF_MODULES.items():
        inspect.modulesbyfile.setdefault(file, module)


def FuseCascadedReductions(**options: Any) -> Any:
    """Fuse the cascades of reductions of a module's S-TIR functions; other functions stay as they are.

    Parameters
    ----------
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Returns
    -------
    tvm.transform.Pass
        The pass of `tvm_cascade.FuseCascadedReductions`.

    Raises
    ------
    OptionError
        When an option is unknown or has a value outside its domain.
    """
    from tvm_cascade.transform.fuse_cascaded_reductions import FuseCascadedReductions as build_pass

    return build_pass(**options)


def _schedule_cpu(schedule: Any, anchor: Any) -> Any:
    from tvm_cascade.meta_schedule.rules import schedule_cpu

    return schedule_cpu(schedule, anchor)


class _Facade(ModuleType):
    """A module whose public names are those of other modules; the first that has a name answers."""

    def __init__(self, name: str, sources: Iterable[ModuleType]) -> None:
        self._sources = tuple(sources)
        origins = " and ".join(source.__name__ for source in self._sources)
        super().__init__(name, f"The names of {origins} under TVM's former name, provided by tvm-cascade.")
        # A package without files: its submodules are importable once they are in sys.modules.
        self.__spec__ = ModuleSpec(name, loader=None, is_package=True)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):  # __file__ and the like belong to the sources alone
            for source in self._sources:
                if hasattr(source, name):
                    return getattr(source, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        names = {name for source in self._sources for name in dir(source) if not name.startswith("__")}
        return sorted(names | set(super().__dir__()))


def _existing_or_facade(name: str, sources: Iterable[ModuleType]) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # the module exists, and something that it needs does not
            raise
    facade = _Facade(name, sources)
    sys.modules[name] = facade
    return facade
