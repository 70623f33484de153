"""The table of peers: the rows of a GPU table by the names that `--peers` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tvm_cascade.bench.gpu import flashinfer_served, served_peers, torch_peers, tvm_peers
from tvm_cascade.bench.gpu.flashinfer_peer import flashinfer
from tvm_cascade.bench.gpu.prepared import Prepare
from tvm_cascade.errors import OptionError

OURS, OURS_CUDA_CORES, TVM_DEFAULT = tvm_peers.OURS, tvm_peers.OURS_CUDA_CORES, tvm_peers.TVM_DEFAULT
INDUCTOR = "inductor"

PEERS: Mapping[str, Prepare] = {
    "cudnn": partial(torch_peers.sdpa, "CUDNN_ATTENTION"),
    "flash": partial(torch_peers.sdpa, "FLASH_ATTENTION"),
    "flex": torch_peers.flex,
    INDUCTOR: torch_peers.inductor,
    "flashinfer": flashinfer,
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

SERVED_PEERS: Mapping[str, Prepare] = {
    "eager": served_peers.eager,
    "cudnn": partial(served_peers.sdpa, "CUDNN_ATTENTION"),
    "flash": partial(served_peers.sdpa, "FLASH_ATTENTION"),
    "flex": served_peers.flex,
    INDUCTOR: served_peers.inductor,
    "flashinfer": flashinfer_served.decode,
    "flashinfer-fa3": flashinfer_served.by_fa3,
    TVM_DEFAULT: tvm_peers.tvm_default,
    OURS_CUDA_CORES: tvm_peers.ours_scheduled,
    OURS: tvm_peers.ours,
}
"""The same of what a server runs between prefills, and of plain products."""

OWN = (OURS, OURS_CUDA_CORES)
"""Rows that are no peers: what they give must be right, twice the same, and is checked against the oracle too."""


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
