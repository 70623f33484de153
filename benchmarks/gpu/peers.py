"""The table of peers: the rows of a GPU table by the names that `--peers` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.gpu import flashinfer_served, served_peers, suites, torch_peers, tvm_peers
from benchmarks.gpu.flashinfer_peer import flashinfer
from benchmarks.gpu.prepared import Prepare
from tvm_cascade.errors import OptionError

OURS, OURS_CUDA_CORES, TVM_DEFAULT = tvm_peers.OURS, tvm_peers.OURS_CUDA_CORES, tvm_peers.TVM_DEFAULT
INDUCTOR, FLASHINFER, FLASHINFER_FA3, CUBLAS = "inductor", "flashinfer", "flashinfer-fa3", "cublas"
GEMM_ALONE = "gemm-alone"

PEERS: Mapping[str, Prepare] = {
    "cudnn": partial(torch_peers.sdpa, "CUDNN_ATTENTION"),
    "flash": partial(torch_peers.sdpa, "FLASH_ATTENTION"),
    "flex": torch_peers.flex,
    INDUCTOR: torch_peers.inductor,
    FLASHINFER: flashinfer,
    TVM_DEFAULT: tvm_peers.tvm_default,
    OURS_CUDA_CORES: tvm_peers.ours_scheduled,
    OURS: tvm_peers.ours,
}
"""Every row of a table of attention, in its order; `ours` is always there."""

ROW_PEERS: Mapping[str, Prepare] = {
    "eager": torch_peers.row_eager,
    INDUCTOR: torch_peers.row_inductor,
    TVM_DEFAULT: tvm_peers.tvm_default,
    OURS_CUDA_CORES: tvm_peers.ours_scheduled,
    OURS: tvm_peers.ours,
}
"""The same of folds along rows of memory."""

_TVM: Mapping[str, Prepare] = {
    TVM_DEFAULT: tvm_peers.tvm_default,
    OURS_CUDA_CORES: tvm_peers.ours_scheduled,
    OURS: tvm_peers.ours,
}

SERVED_PEERS: Mapping[str, Prepare] = {
    "eager": served_peers.eager,
    "cudnn": partial(served_peers.sdpa, "CUDNN_ATTENTION"),
    "flash": partial(served_peers.sdpa, "FLASH_ATTENTION"),
    "flex": served_peers.flex,
    INDUCTOR: served_peers.inductor,
    FLASHINFER: flashinfer_served.decode,
    FLASHINFER_FA3: flashinfer_served.by_fa3,
    **_TVM,
}
"""The same of attention over a cache."""

LATENT_PEERS: Mapping[str, Prepare] = {
    name: SERVED_PEERS[name] for name in ("eager", "cudnn", INDUCTOR, FLASHINFER, FLASHINFER_FA3, *_TVM)
}
"""The same of latent attention; of its prefill, those of attention."""

PRODUCT_PEERS: Mapping[str, Prepare] = {CUBLAS: served_peers.eager, INDUCTOR: served_peers.inductor, **_TVM}
"""The same of plain matrix products."""

HEAD_PEERS: Mapping[str, Prepare] = {"eager": served_peers.eager, INDUCTOR: served_peers.inductor, **_TVM}
"""The same of statistics of logits."""

NORMED_PEERS: Mapping[str, Prepare] = {"eager": served_peers.eager, CUBLAS: served_peers.cublas, **HEAD_PEERS}
"""The same of linear layers behind a normalisation, and of their products alone."""

ROUTER_PEERS: Mapping[str, Prepare] = {GEMM_ALONE: served_peers.product_alone, **HEAD_PEERS}
"""The same of routers, with the product alone."""

QUANTISED_PEERS: Mapping[str, Prepare] = {
    "eager": served_peers.eager, GEMM_ALONE: served_peers.float8_alone, **HEAD_PEERS
}  # fmt: skip
"""The same of quantised products, and of the float8 product alone."""

OWN = (OURS, OURS_CUDA_CORES)
"""Rows that are no peers: what they give must be right, twice the same, and is checked against the oracle too."""


_BY_SUITE: Mapping[str, Mapping[str, Prepare]] = {
    **dict.fromkeys(suites.OF_ROWS, ROW_PEERS),
    **dict.fromkeys(("decode", "paged", "prefix"), SERVED_PEERS),
    "mla": LATENT_PEERS,
    "gemm": PRODUCT_PEERS,
    "loss": HEAD_PEERS,
    "normgemm": NORMED_PEERS,
    "moe": ROUTER_PEERS,
    "quant": QUANTISED_PEERS,
}


def of_suite(suite: str) -> Mapping[str, Prepare]:
    """Every row of a suite's tables."""
    return _BY_SUITE.get(suite, PEERS)


def chosen(names: Sequence[str] | None, known: Mapping[str, Prepare] = PEERS) -> dict[str, Prepare]:
    """The rows of the named peers and ours, in the order of the table; all where no names are given.

    Raises
    ------
    OptionError
        When a name is not one of a peer.
    """
    if unknown := [name for name in names or () if name not in known]:
        raise OptionError(f"peers among {', '.join(known)}", ", ".join(unknown), "--peers")
    return {name: peer for name, peer in known.items() if names is None or name in names or name == OURS}
