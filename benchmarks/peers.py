"""The tables of peers: every implementation of a workload, by device and suite, as `--peers` names them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from tvm.s_tir import dlight

from benchmarks import numpy_peer, suites, torch_peer
from benchmarks.gpu import flashinfer_served, torch_peers, tvm_peers
from benchmarks.gpu.flashinfer_peer import flashinfer
from benchmarks.gpu.prepared import Prepare
from benchmarks.judge.case import Case
from benchmarks.judge.forms import (
    FORMS,
    TVM_DEFAULT,
    Absent,
    Form,
    Runnable,
    built,
)
from benchmarks.record import OURS, OURS_CUDA_CORES, own
from corpus.workload import Workload
from tvm_cascade.cli.jobs import Job
from tvm_cascade.errors import OptionError
from tvm_cascade.tvm_faults.copies import private_copy

NUMPY = "numpy"
TORCH = "torch"
TVM_DLIGHT = "tvm dlight"

_SERIES = {"V": "variance", "I": "inertia", "H": "attention"}
"""The formulas of RedFuser's rows, by the letter that their names begin with."""

_PLAIN_ATTENTION = ("PF_GLOBAL", "DC_CAUSAL", "DC_GQA", "flashdecoding", "attention", "attention_gqa")
"""Attention without maps or masks, the only kind that NumPy and torch forms are written for."""


def formula_of(job: Job) -> str | None:
    """The key by which NumPy and torch compute a program; None where neither does."""
    if not isinstance(job, Workload):
        return None
    if job.source.startswith("RedFuser"):
        return _SERIES.get(job.name[0])
    return "attention" if job.name in _PLAIN_ATTENTION else job.name if job.name in numpy_peer.FORMULAS else None


def _numpy(case: Case) -> Runnable | Absent:
    formula = formula_of(case.job)
    if formula is None:
        return Absent("no NumPy form of this program")
    return _of(numpy_peer.FORMULAS[formula](case.inputs))


def _torch(case: Case) -> Runnable | Absent:
    formula = formula_of(case.job)
    if formula is None:
        return Absent("no torch form of this program")
    try:
        return _of(torch_peer.prepare(formula, case.inputs))
    except ImportError:
        return Absent("torch is not installed: python -m pip install 'tvm-cascade[bench]'")


def _of(compute: Callable[[], Any]) -> Runnable:
    """A row for a call that returns its only result."""
    latest: list[Any] = []

    def call() -> None:
        latest[:] = [compute()]

    return Runnable(call, lambda: [np.asarray(result) for result in latest])


def _tvm_dlight(case: Case) -> Runnable | Absent:
    mod = private_copy(case.func)
    with case.target:
        scheduled = dlight.ApplyDefaultSchedule(dlight.cpu.GEMV(), dlight.cpu.Reduction())(mod)
    if "tirx.is_scheduled" not in scheduled["main"].attrs:
        return Absent(f"none of its CPU rules takes this program: the code is that of `{TVM_DEFAULT}`")
    return built(case, scheduled)


CPU_PEERS: Mapping[str, Form] = {
    NUMPY: _numpy,
    TORCH: _torch,
    TVM_DEFAULT: FORMS[TVM_DEFAULT],
    TVM_DLIGHT: _tvm_dlight,
    **FORMS,
}
"""Every row of a table of a CPU, in its order."""

INDUCTOR, MAX_AUTOTUNE, CUBLAS = "inductor", "max-autotune", "cublas"
FLASHINFER, FLASHINFER_FA3 = "flashinfer", "flashinfer-fa3"
GEMM_ALONE = "gemm-alone"

_TVM: Mapping[str, Prepare] = {
    tvm_peers.TVM_DEFAULT: tvm_peers.tvm_default,
    OURS_CUDA_CORES: tvm_peers.ours_scheduled,
    OURS: tvm_peers.ours,
}

ATTENTION_PEERS: Mapping[str, Prepare] = {
    "cudnn": partial(torch_peers.sdpa, "CUDNN_ATTENTION"),
    "flash": partial(torch_peers.sdpa, "FLASH_ATTENTION"),
    "flex": torch_peers.flex,
    INDUCTOR: torch_peers.inductor,
    FLASHINFER: flashinfer,
    **_TVM,
}
"""Every row of a table of attention on a GPU, in its order."""

ROW_PEERS: Mapping[str, Prepare] = {
    "eager": torch_peers.eager,
    INDUCTOR: torch_peers.inductor,
    **_TVM,
}
"""The same of folds along rows of memory."""

SERVED_PEERS: Mapping[str, Prepare] = {
    "eager": torch_peers.eager,
    "cudnn": partial(torch_peers.sdpa, "CUDNN_ATTENTION"),
    "flash": partial(torch_peers.sdpa, "FLASH_ATTENTION"),
    "flex": torch_peers.flex,
    INDUCTOR: torch_peers.inductor,
    FLASHINFER: flashinfer_served.decode,
    FLASHINFER_FA3: flashinfer_served.by_fa3,
    **_TVM,
}
"""The same of attention over a cache."""

LATENT_PEERS: Mapping[str, Prepare] = {
    name: SERVED_PEERS[name] for name in ("eager", "cudnn", INDUCTOR, FLASHINFER, FLASHINFER_FA3, *_TVM)
}
"""The same of latent attention; of its prefill, those of attention."""

PRODUCT_PEERS: Mapping[str, Prepare] = {CUBLAS: torch_peers.eager, INDUCTOR: torch_peers.inductor, **_TVM}
"""The same of plain matrix products."""

HEAD_PEERS: Mapping[str, Prepare] = {"eager": torch_peers.eager, INDUCTOR: torch_peers.inductor, **_TVM}
"""The same of statistics of logits."""

CHAIN_PEERS: Mapping[str, Prepare] = {
    "eager": torch_peers.eager,
    INDUCTOR: torch_peers.inductor,
    MAX_AUTOTUNE: partial(torch_peers.inductor, mode={"max_autotune": True}),
    **_TVM,
}
"""The same of chains of products, of which eager calls cuBLAS, and of convolutions, of which it calls cuDNN."""

NORMED_PEERS: Mapping[str, Prepare] = {"eager": torch_peers.eager, CUBLAS: torch_peers.cublas, **HEAD_PEERS}
"""The same of linear layers behind a normalisation, and of their products alone."""

ROUTER_PEERS: Mapping[str, Prepare] = {GEMM_ALONE: torch_peers.product_alone, **HEAD_PEERS}
"""The same of routers, with the product alone."""

QUANTISED_PEERS: Mapping[str, Prepare] = {
    "eager": torch_peers.eager, GEMM_ALONE: torch_peers.float8_alone, **HEAD_PEERS
}  # fmt: skip
"""The same of quantised products, and of the float8 product alone."""

_BY_SUITE: Mapping[str, Mapping[str, Prepare]] = {
    **dict.fromkeys(suites.OF_ROWS, ROW_PEERS),
    **dict.fromkeys(("decode", "paged", "prefix"), SERVED_PEERS),
    "mla": LATENT_PEERS,
    **dict.fromkeys(("gemm", "skinny"), PRODUCT_PEERS),
    **dict.fromkeys(("chain", "ffn", "conv"), CHAIN_PEERS),
    "loss": HEAD_PEERS,
    "normgemm": NORMED_PEERS,
    "moe": ROUTER_PEERS,
    "quant": QUANTISED_PEERS,
}


def of_suite(suite: str) -> Mapping[str, Prepare]:
    """Every row of a suite's tables, of a suite for a GPU."""
    return _BY_SUITE.get(suite, ATTENTION_PEERS)


P = TypeVar("P")


def known(names: Sequence[str] | None, rows: Collection[str]) -> None:
    """Raise where a name is not one of a row.

    Raises
    ------
    OptionError
        When one is not.
    """
    if unknown := [name for name in names or () if name not in rows]:
        raise OptionError(f"peers among {', '.join(sorted(rows))}", ", ".join(unknown), "--peers")


def chosen(names: Sequence[str] | None, known: Mapping[str, P]) -> dict[str, P]:
    """The rows of the named peers and ours, in the order of the table; all where no names are given."""
    ours = {name for name in known if own(name)} - ({OURS_CUDA_CORES} if OURS in known else set())
    return {name: peer for name, peer in known.items() if names is None or name in names or name in ours}
