"""Suites as data: what each measures, and where."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from benchmarks.suites import cpu, kernels, served
from benchmarks.suites.entry import Entry, Model
from corpus.workload import WorkloadError

_LARGEST_BYTES = 16 * 2**30
"""Of a workload's tensors on a GPU; a length that needs more is left out."""

_CPU: Mapping[str, Callable[[], list[Entry]]] = {
    "cpu": cpu.cpu,
    "smoke": cpu.smoke,
    "redfuser-cpu": cpu.redfuser,
    "neptune-cpu": cpu.neptune,
}

_GPU: Mapping[str, Callable[[], list[Entry]]] = {
    "prefill": kernels.prefill,
    "float8": kernels.float8,
    "mha": kernels.mha,
    "neptune": kernels.neptune,
    "variance": kernels.variance,
    "inertia": kernels.inertia,
    "row": kernels.row,
    "decode": served.decode,
    "mla": served.mla,
    "paged": served.paged,
    "prefix": served.prefix,
    "gemm": served.gemm,
    "skinny": served.skinny,
    "chain": served.chain,
    "ffn": served.ffn,
    "conv": served.conv,
    "loss": served.loss,
    "normgemm": served.normgemm,
    "moe": served.moe,
    "quant": served.quant,
}

MODELS = "models"
"""The suite of whole PyTorch models, for both."""

ON_CPU, ON_GPU = (*_CPU, MODELS), (*_GPU, MODELS)
SUITES = (*_CPU, MODELS, *_GPU)
KERNELS = tuple(_GPU)
"""The suites of programs for a GPU."""

OF_ROWS = ("variance", "inertia", "row")
"""The suites of folds along rows."""

CHAINED = ("skinny", "chain", "ffn", "conv")
"""The suites of linear layers of few rows, and of chains."""

SERVED = ("decode", "mla", "paged", "prefix", "gemm", *CHAINED, "loss", "normgemm", "moe", "quant")
"""The suites of what a server runs between prefills, and of plain products."""

MOVING = (*OF_ROWS, "decode", "mla", "paged", "prefix", *CHAINED, "loss")
"""The suites whose times are compared with that of the compulsory traffic."""


def entries(suite: str, only: Sequence[str] = ()) -> list[Entry]:
    """The programs of a suite, in order; on a GPU those whose tensors fit.

    Parameters
    ----------
    suite : one of `SUITES` but `models`.
    only : labels, names of workloads, or groups to keep; all by default.

    Raises
    ------
    WorkloadError
        When there is no such suite, or something in `only` is not in it.
    """
    if suite not in {**_CPU, **_GPU}:
        raise WorkloadError(f"a suite among {', '.join(SUITES)}", repr(suite))
    if suite in _CPU:
        return selected(suite, _CPU[suite](), only)
    return selected(suite, [entry for entry, size in _sized(suite) if size <= _LARGEST_BYTES], only)


@functools.cache
def _sized(suite: str) -> list[tuple[Entry, int]]:
    """The programs of a suite for a GPU, each with the bytes of its tensors, which take building it to know."""
    return [(entry, entry.workload.bytes()) for entry in _GPU[suite]()]


def models(gpu: bool, only: Sequence[str] = ()) -> list[Model]:
    """Whole models; for a GPU larger, with Llama's layers as they are served: many prompts, and one token over caches.

    Raises
    ------
    WorkloadError
        When something in `only` is not among them.
    """
    from benchmarks.torch_models import served as layers
    from benchmarks.torch_models import sizes
    from benchmarks.torch_models.table import MODELS as NAMES
    from benchmarks.torch_models.table import model

    large = sizes.Sizes(layers=4, width=1024, heads=16, shared_heads=4, length=1024, batch=8, vocabulary=8192)
    size = large if gpu else sizes.BENCHMARK
    found = [Model(name, dataclasses.asdict(size), functools.partial(model, name, size)) for name in NAMES]
    of_a_server = {
        "llama_prefill": layers.Served(),
        "llama_decode_1": layers.Served(batch=1, tokens=1, keys=4096),
        "llama_decode_32": layers.Served(batch=32, tokens=1, keys=4096),
    }
    for name, layer in of_a_server.items() if gpu else ():
        found.append(Model(name, dataclasses.asdict(layer), functools.partial(layers.build, layer)))
    return selected(MODELS, found, only)


T = TypeVar("T")


def spread(several: Sequence[T]) -> list[T]:
    """The same in an order whose beginning, wherever it ends, has some of every part."""
    golden = (5**0.5 - 1) / 2
    return [one for _, one in sorted(((k * golden % 1.0, one) for k, one in enumerate(several)), key=lambda p: p[0])]


E = TypeVar("E", Entry, Model)


def selected(suite: str, found: list[E], only: Sequence[str]) -> list[E]:
    """The entries that `only` names, in order; all where it names none.

    Raises
    ------
    WorkloadError
        When something in `only` is not among their names.
    """
    known = {name for entry in found for name in entry.names}
    if unknown := [name for name in only if name not in known]:
        labels = ", ".join(entry.label for entry in found)
        raise WorkloadError(f"labels or workloads among {labels}", ", ".join(unknown), f"suite `{suite}`")
    return [entry for entry in found if not only or set(entry.names) & set(only)]
