"""Cascaded reductions as folds: derived by algebra, lowered through Apache TVM.

| name                     | what it does                                                                   |
|--------------------------|--------------------------------------------------------------------------------|
| `explain`                | per group of reductions: the verdict, its reason, the fold as formulas         |
| `compile`                | from an unfused program to one that runs                                       |
| `jit`                    | a function that writes a program in TE, compiled when it is called with arrays |
| `tune`                   | measures designs of a program's kernels, and keeps the best in a database      |
| `optimize`               | a PyTorch module, compiled; it needs PyTorch (extra `torch`)                   |
| `torch_operator`         | a program, with its gradient, as an operator of PyTorch                        |
| `compile_unfused`        | the same without fusing: what fusing alone gains is measured against it        |
| `Compiled`               | what both return: call it, or export it as a library                           |
| `save`, `load`           | what `compile` and `optimize` return, as a file                                |
| `split`                  | a function's fold as one that leaves partial states and one that merges them   |
| `gradient`               | a function's gradient as two functions, forward and backward                   |
| `derive`                 | the algebra alone: a cascade in, a fold or a refusal out                       |
| `Cascade`, `Reduction`   | what `derive` takes, over symbols made by `element` and `result`               |
| `SUM`, `MAX`, …          | the reducers of a `Reduction`: SUM, PROD, MAX, MIN, AND, OR                    |
| `LENGTH`, `POSITION`     | symbols for it: how many positions there are, and the one of an element        |
| `te`                     | builders in TE: attention, softmax, norms, losses, routers, top-k              |
| `FuseCascadedReductions` | the pass, also at `tvm.s_tir.transform` and `tvm.tir.transform`                |
| `fuse_cascade`           | the same rewrite on an open schedule                                           |
| `numerics`               | error against float64, fused and unfused, by named input                       |
| `FuseOptions`            | the options of all of these                                                    |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tvm_cascade import _versions

# Before TVM is loaded: an unsuitable TVM must be told by name, not by a crash.
_versions.check()

from tvm_cascade._autoload import autoload  # noqa: E402

# TVM calls this itself, except when TVM_DEVICE_BACKEND_AUTOLOAD=0 or the package is used without being installed.
autoload()

if TYPE_CHECKING:
    from tvm_cascade import te
    from tvm_cascade.accuracy.numerics import numerics
    from tvm_cascade.algebra.cascade import LENGTH, POSITION, Cascade, Reduction, element, result
    from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, PROD, SUM
    from tvm_cascade.chunks.split import Split, split
    from tvm_cascade.driver.bundle import load, save
    from tvm_cascade.driver.compilation import compile_unfused
    from tvm_cascade.driver.compiled import Compiled
    from tvm_cascade.obligations.derive import derive
    from tvm_cascade.options import FuseOptions
    from tvm_cascade.reverse.gradient import Gradient, gradient
    from tvm_cascade.transform.fuse_cascaded_reductions import FuseCascadedReductions, fuse_cascade
    from tvm_cascade.tuning.compilation import compile
    from tvm_cascade.tuning.explanation import explain
    from tvm_cascade.tuning.jit import jit
    from tvm_cascade.tuning.tune import tune

__version__ = _versions.RELEASE

__all__ = [
    "AND",
    "LENGTH",
    "MAX",
    "MIN",
    "OR",
    "POSITION",
    "PROD",
    "SUM",
    "Cascade",
    "Compiled",
    "FuseCascadedReductions",
    "FuseOptions",
    "Gradient",
    "Reduction",
    "Split",
    "compile",
    "compile_unfused",
    "derive",
    "element",
    "explain",
    "fuse_cascade",
    "gradient",
    "jit",
    "load",
    "numerics",
    "result",
    "save",
    "split",
    "te",
    "tune",
]

# Loaded at first use: every process that imports TVM imports this module, and most of them fuse nothing.
_HOMES = {
    **dict.fromkeys(("AND", "MAX", "MIN", "OR", "PROD", "SUM"), "tvm_cascade.algebra.reducer"),
    **dict.fromkeys(("LENGTH", "POSITION", "Cascade", "Reduction", "element", "result"), "tvm_cascade.algebra.cascade"),
    "Compiled": "tvm_cascade.driver.compiled",
    "FuseCascadedReductions": "tvm_cascade.transform.fuse_cascaded_reductions",
    "FuseOptions": "tvm_cascade.options",
    "Gradient": "tvm_cascade.reverse.gradient",
    "Split": "tvm_cascade.chunks.split",
    "compile": "tvm_cascade.tuning.compilation",
    "compile_unfused": "tvm_cascade.driver.compilation",
    "derive": "tvm_cascade.obligations.derive",
    "distributed": "tvm_cascade.distributed",
    "explain": "tvm_cascade.tuning.explanation",
    "fuse_cascade": "tvm_cascade.transform.fuse_cascaded_reductions",
    "gradient": "tvm_cascade.reverse.gradient",
    "jit": "tvm_cascade.tuning.jit",
    "load": "tvm_cascade.driver.bundle",
    "numerics": "tvm_cascade.accuracy.numerics",
    "optimize": "tvm_cascade.torch.optimization",
    "relax": "tvm_cascade.relax",
    "save": "tvm_cascade.driver.bundle",
    "split": "tvm_cascade.chunks.split",
    "te": "tvm_cascade.te",
    "torch_operator": "tvm_cascade.torch.operator",
    "tune": "tvm_cascade.tuning.tune",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(_HOMES[name])
    value = home if home.__name__ == f"{__name__}.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOMES, *(name for name in globals() if name.startswith("__"))})
