"""`DTensorFolds`: attention and losses of DTensors that are sharded along the fold, forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.tensor")
if not torch.distributed.is_available():
    pytest.skip("torch without torch.distributed", allow_module_level=True)

from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from benchmarks.judge.power import rejects  # noqa: E402
from tvm_cascade.distributed import DTensorFolds, dtensor  # noqa: E402
from tvm_cascade.evaluate import tolerance  # noqa: E402

from .sharded import given_or_raised, on_ranks  # noqa: E402

ALL, KEYS, CLASSES = Replicate(), Shard(2), Shard(1)


@dataclass(frozen=True)
class Case:
    """A function of PyTorch on DTensors.

    Attributes
    ----------
    shapes : of inputs; the second of two has targets, the fourth of four is a mask.
    placements : of inputs, and of the result, over the second dimension of a mesh.
    """

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    placements: tuple[Any, ...]
    result: Any
    is_ours: bool = True

    @property
    def over_batch(self) -> Any:
        """Placements over the first dimension: a mask is that of all sequences."""
        return ALL if len(self.shapes) == 4 else Shard(0)

    def inputs(self) -> list[Any]:
        generator = torch.Generator().manual_seed(len(self.shapes))
        found = [torch.randn(shape, generator=generator) for shape in self.shapes]
        if len(self.shapes) == 2:
            found[-1] = torch.randint(0, self.shapes[0][1], self.shapes[-1], generator=generator)
            found[-1][2] = -100  # ignored
        if len(self.shapes) == 4:
            found[-1] = found[-1] > 0
            found[-1][3] = False  # a row that is masked everywhere
        return found


attend = F.scaled_dot_product_attention
GROUPED, PLAIN = ((2, 4, 24, 8), (2, 2, 24, 8), (2, 2, 24, 8)), ((2, 2, 24, 8),) * 3
CASES = {
    "causal": Case(functools.partial(attend, is_causal=True, enable_gqa=True), GROUPED, (KEYS,) * 3, KEYS),
    "decode": Case(functools.partial(attend, enable_gqa=True), ((2, 4, 1, 8), *GROUPED[1:]), (ALL, KEYS, KEYS), ALL),
    "uneven": Case(functools.partial(attend, scale=0.5), ((1, 2, 7, 8), *((1, 2, 25, 8),) * 2), (KEYS,) * 3, KEYS),
    "mask": Case(attend, (*PLAIN, (24, 24)), (KEYS, KEYS, KEYS, ALL), KEYS),
    "loss": Case(torch.nn.CrossEntropyLoss(), ((8, 25), (8,)), (CLASSES, ALL), ALL),
    "losses": Case(functools.partial(F.cross_entropy, reduction="none"), ((8, 24), (8,)), (CLASSES, ALL), ALL),
    "other loss": Case(F.cross_entropy, ((8, 24), (8,)), (ALL, ALL), ALL, is_ours=False),
}


def found_of(case: Case) -> tuple[list[Any], list[Any], Any, int]:
    """(the result and gradients, those of float64, where the result is, how many functions were sharded for it)."""
    mesh = init_device_mesh("cpu", (1, 2))
    whole = [one.double() if one.is_floating_point() else one for one in case.inputs()]
    shares = [
        distribute_tensor(one, mesh, [case.over_batch, placement])
        for one, placement in zip(case.inputs(), case.placements, strict=True)
    ]
    known, found = dtensor._made.cache_info().misses, []
    for given in (whole, shares):
        floats = [one.requires_grad_() for one in given if one.is_floating_point()]
        with DTensorFolds():
            result = case.function(*given)
        weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(7))
        (result * (weights if given is whole else distribute_tensor(weights, mesh, [ALL, ALL]))).sum().backward()
        found.append([result.detach(), *(one.grad for one in floats)])
    exact, own = found
    made = dtensor._made.cache_info().misses - known
    with torch.no_grad(), DTensorFolds():
        own.append(case.function(*shares))
    full = [one.full_tensor().numpy() for one in own]
    return full, [one.numpy() for one in (*exact, exact[0])], own[0].placements[1], made


def every() -> dict[str, Any]:
    return {name: found_of(case) for name, case in CASES.items()}


def test_results_and_gradients_are_those_of_the_whole(tmp_path: Path) -> None:
    for rank in on_ranks(2, tmp_path, every):
        for name, (own, exact, placement, made) in given_or_raised(rank).items():
            assert (placement, made) == (CASES[name].result, int(CASES[name].is_ours)), name
            for found, wanted in zip(own, exact, strict=True):
                tolerance.assert_close(found, wanted, length=24 * 24, dtype="float32")
                assert wanted.size == 1 or not rejects(wanted, 24 * 24, "float32"), name
