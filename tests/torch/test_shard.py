"""`shard`: folds over ranks of a group give what the whole function gives, the same bits everywhere and every time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("torch without torch.distributed", allow_module_level=True)

from tvm_cascade.distributed import shard  # noqa: E402
from tvm_cascade.evaluate import oracle, tolerance  # noqa: E402

from .sharded import IN_BLOCKS, PROGRAMS, drawn, given_or_raised, on_ranks  # noqa: E402

FAST = {
    ("causal", "blocks", "i", "inputs"),
    ("causal", "zigzag", "i", "rows"),
    ("bias", "zigzag", "i", "ring"),
    ("layer norm", "blocks", "", "states"),
    ("cross-entropy", "zigzag", "", "states"),
    ("weighted mean", "blocks", "", "states"),
    ("top three", "blocks", "", "states"),
    ("ragged", "blocks", "i", "rows"),
    ("few", "blocks", "i", "ring"),
    ("few", "blocks", "", "states"),
}
Case = tuple[str, str, str, str]


def cases() -> Iterator[Case]:
    """Each program with each order, and each exchange of rows that are on all ranks or sharded."""
    for name, (_, rows) in PROGRAMS.items():
        for order in ("blocks",) if name in IN_BLOCKS else ("blocks", "zigzag"):
            for sharded in {"", rows}:
                for exchange in ("inputs", "rows", "ring") if sharded else ("inputs", "states"):
                    yield name, order, sharded, exchange


def given(name: str) -> dict[str, Any]:
    """Whole inputs, the same on all ranks."""
    rng = np.random.default_rng(len(name))
    inputs = oracle.signature(PROGRAMS[name][0]()).inputs
    return {p.name: drawn(p.name, [int(e) for e in p.ty.shape], str(p.ty.dtype), rng) for p in inputs}


def filled(name: str, order: str, rows: str, exchange: str, **changed: Any) -> tuple[dict[str, Any], str]:
    """This rank's results, twice, with its positions; and the report."""
    func = PROGRAMS[name][0]()
    sharded = shard(func, rows=rows, order=order, exchange=exchange)
    local = [sharded.local(key, torch.from_numpy(one)) for key, one in {**given(name), **changed}.items()]
    found: dict[str, Any] = {}
    for turn in ("first", "second"):
        outputs = {
            p.name: torch.full(sharded.shape(p.name), 77, dtype=getattr(torch, str(p.ty.dtype)))
            for p in oracle.signature(func).outputs
        }
        sharded(*local, *outputs.values())
        found[turn] = outputs
    return found, sharded.report


def every(wanted: list[Case]) -> list[Any]:
    return [filled(*case) for case in wanted]


def share(array: Any, shape: tuple[int, ...], order: str, rank: int, ranks: int) -> Any:
    """What a rank has of an array, by the extents of its own: written apart from the code that is tested."""
    cut = [d for d, (own, whole) in enumerate(zip(shape, array.shape, strict=True)) if own != whole]
    if not cut:
        return array
    (d,) = cut
    whole = np.arange(array.shape[d])
    if order == "blocks":
        return np.take(array, np.array_split(whole, ranks)[rank], axis=d)
    spans = np.split(whole, 2 * ranks)
    return np.take(array, np.concatenate([spans[rank], spans[2 * ranks - 1 - rank]]), axis=d)


def check(case: Case, found: list[Any], **changed: Any) -> None:
    """Results of all ranks are right, twice the same bits, and the same bits where ranks have the same."""
    (name, order, *_), ranks = case, len(found)
    func, values = PROGRAMS[name][0](), list({**given(name), **changed}.values())
    exact, rounded = oracle.evaluate(func, values), oracle.evaluate(func, values, rounding=True)
    for key, whole in exact.items():
        for rank, (results, _) in enumerate(found):
            first = results["first"][key].numpy()
            assert np.array_equal(first, results["second"][key].numpy()), (case, key, rank)
            wanted, usual = (share(one, first.shape, order, rank, ranks) for one in (whole, rounded[key]))
            tolerance.assert_close(first, wanted, usual, length=24, dtype=str(first.dtype))
            if first.shape == whole.shape:
                assert np.array_equal(first, found[0][0]["first"][key].numpy()), (case, key, rank)
        assert not tolerance.rejects(whole, 24, str(first.dtype), baseline=rounded[key]), (case, key)


def test_folds_of_ranks_are_those_of_the_whole(tmp_path: Path) -> None:
    wanted = sorted(FAST)
    found = [given_or_raised(one) for one in on_ranks(3, tmp_path, every, wanted)]
    for k, case in enumerate(wanted):
        check(case, [rank[k] for rank in found])
    assert "zigzag" in {order for _, order, *_ in wanted}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_fold_exchange_and_order(ranks: int, tmp_path: Path) -> None:
    wanted = list(cases())
    found = [given_or_raised(one) for one in on_ranks(ranks, tmp_path, every, wanted)]
    for k, case in enumerate(wanted):
        check(case, [rank[k] for rank in found])
