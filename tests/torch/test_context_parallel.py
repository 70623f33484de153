"""The peers of `benchmarks.scale`, on CPUs: what they give is attention, at the rows that they say."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch without torch.distributed", allow_module_level=True)

from torch.nn import functional as F  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

from benchmarks.context_parallel import PEERS  # noqa: E402
from benchmarks.judge.power import rejects  # noqa: E402
from tvm_cascade.evaluate import tolerance  # noqa: E402

from .sharded import given_or_raised, on_ranks  # noqa: E402

OF_GPUS = ("torch, all-gather", "torch, all-to-all")
"""Whose operators torch has for GPUs alone: on CPUs it is tested what they are called with."""

SDPA = F.scaled_dot_product_attention


class Queries(TorchFunctionMode):
    """While this lasts, attention gives its queries."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is SDPA else func(*args, **(kwargs or {}))


def inputs() -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, heads, 24, 8, generator=generator) for heads in (8, 4, 4)]


def every() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, peer in PEERS.items():
        with peer(*inputs()) as own, Queries() if name in OF_GPUS else contextlib.nullcontext():
            found[name] = torch.cat([*own.run()], 2), own.positions
        assert F.scaled_dot_product_attention is SDPA
    return found


def test_peers_give_attention_at_their_rows(tmp_path: Path) -> None:
    q, k, v = inputs()
    exact = SDPA(q.double(), k.double(), v.double(), is_causal=True, enable_gqa=True)
    rows: dict[str, list[int]] = {name: [] for name in PEERS}
    for rank in on_ranks(2, tmp_path, every):
        for name, (out, positions) in given_or_raised(rank).items():
            wanted = (q if name in OF_GPUS else exact)[:, :, positions].numpy()
            tolerance.assert_close(out.numpy(), wanted, length=24, dtype="float32")
            assert not rejects(wanted, 24, "float32"), name
            rows[name] += positions.tolist()
    assert all(sorted(one) == [*range(24)] for one in rows.values())
