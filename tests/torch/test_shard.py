"""`shard`: folds over ranks of a group give what the whole function gives, the same bits everywhere and every time."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("torch without torch.distributed", allow_module_level=True)

from filelock import FileLock  # noqa: E402
from tvm import tirx  # noqa: E402

import tvm_cascade  # noqa: E402
from benchmarks.judge.power import rejects  # noqa: E402
from tvm_cascade.distributed import pull, shard  # noqa: E402
from tvm_cascade.distributed.transport import LINKS, copy  # noqa: E402
from tvm_cascade.driver import compilation  # noqa: E402
from tvm_cascade.errors import CascadeError, DistributedError, InputError  # noqa: E402
from tvm_cascade.evaluate import oracle, tolerance  # noqa: E402

from .sharded import CORPUS, IN_BLOCKS, PROGRAMS, attention, drawn, given_or_raised, of_corpus, on_ranks  # noqa: E402

sharding = importlib.import_module("tvm_cascade.distributed.shard")

FAST = {
    ("causal", "blocks", "i", "inputs"),
    ("causal", "zigzag", "i", "rows"),
    ("bias", "zigzag", "i", "ring"),
    ("layer norm", "blocks", "", "states"),
    ("cross-entropy", "zigzag", "", "states"),
    ("gathered loss", "blocks", "", "states"),
    ("gathered loss", "zigzag", "i", "ring"),
    ("weighted mean", "blocks", "", "states"),
    ("top three", "blocks", "", "states"),
    ("ragged", "blocks", "i", "rows"),
    ("few", "blocks", "i", "ring"),
    ("few", "blocks", "", "states"),
    ("mla", "zigzag", "h", "rows"),
    ("decode_sink", "blocks", "d", "rows"),
    ("head_cross_entropy", "zigzag", "", "states"),
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
    if name in CORPUS:
        one = of_corpus(name)
        return dict(zip((p.name for p in oracle.signature(one.build()).inputs), one.inputs(rng), strict=True))
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
    length = 192 if name in CORPUS else 24
    func, values = PROGRAMS[name][0](), list({**given(name), **changed}.values())
    exact, rounded = oracle.evaluate(func, values), oracle.evaluate(func, values, rounding=True)
    for key, whole in exact.items():
        for rank, (results, _) in enumerate(found):
            first = results["first"][key].numpy()
            assert np.array_equal(first, results["second"][key].numpy()), (case, key, rank)
            wanted, usual = (share(one, first.shape, order, rank, ranks) for one in (whole, rounded[key]))
            tolerance.assert_close(first, wanted, usual, length=length, dtype=str(first.dtype))
            if first.shape == whole.shape:
                assert np.array_equal(first, found[0][0]["first"][key].numpy()), (case, key, rank)
        assert not rejects(whole, length, str(first.dtype), baseline=rounded[key]), (case, key)


def all_of_it(folder: str) -> dict[str, Any]:
    """What a rank finds in all quick tests: processes take longer to start than to run."""
    found = {"folds": every(sorted(FAST)), "overflowing": overflowing(), "gradients": differentiated()}
    found |= {"considered": considered(), "symbolic": symbolic(), "pulled": pulled()}
    return {**found, "misused": misused(), "compiled": compiled(folder), "deserted": deserted()}


def compiled(folder: str) -> int:
    """How many functions this rank compiles, where ranks have a cache in common."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_CASCADE_CACHE_MIB", "64")
        patch.setenv("XDG_CACHE_HOME", folder)
        build, made = compilation._built, list[object]()
        patch.setattr(compilation, "_built", lambda *given: made.append(given) or build(*given))
        sharded = shard(attention(26, 26), exchange="states")
        shares = [sharded.local(name, torch.ones(26, 8)) for name in "qkv"]
        sharded(*shares, torch.empty(26, 8))
        return len(made)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks find, once for all workers that test it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "of_two_ranks"
    with FileLock(f"{folder}.lock"):
        kept = [folder / f"{rank}.pt" for rank in range(2)]
        if not all(file.exists() for file in kept):
            folder.mkdir(exist_ok=True)
            on_ranks(2, folder, all_of_it, str(folder))
        return [given_or_raised(torch.load(file, weights_only=False)) for file in kept]


def test_folds_of_ranks_are_those_of_the_whole(ranks: list[dict[str, Any]]) -> None:
    for k, case in enumerate(sorted(FAST)):
        check(case, [rank["folds"][k] for rank in ranks])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_fold_exchange_and_order(ranks: int, tmp_path: Path) -> None:
    wanted = list(cases())
    found = [given_or_raised(one) for one in on_ranks(ranks, tmp_path, every, wanted)]
    for k, case in enumerate(wanted):
        check(case, [rank[k] for rank in found])


def overflowing() -> list[Any]:
    """Weights whose products with data overflow on one rank, where the program's own terms do not."""
    w = given("weighted mean")["w"]
    w[1, :8], x = 3e37, given("weighted mean")["x"]
    x[1, :8] = 40.0
    return [filled("weighted mean", order, "", "states", x=x, w=w) for order in ("blocks", "zigzag")]


def test_a_row_that_states_cannot_hold_is_folded_again_on_all_ranks(ranks: list[dict[str, Any]]) -> None:
    w, x = given("weighted mean")["w"], given("weighted mean")["x"]
    w[1, :8], x[1, :8] = 3e37, 40.0
    assert float(np.finfo("float32").max) < 40.0 * 3e37
    for k, order in enumerate(("blocks", "zigzag")):
        check(("weighted mean", order, "", "states"), [rank["overflowing"][k] for rank in ranks], x=x, w=w)


PULLED = {
    ("attention_window", "zigzag", "i", "inputs"): "h",
    ("gathered loss", "zigzag", "", "inputs"): "i",
    ("cross-entropy", "zigzag", "", "states"): "",
    ("layer norm", "blocks", "", "states"): "",
}
"""Folds whose inputs or states are read from the memory of ranks, with the loop that runs in parts meanwhile."""


class Gathered:
    """Memory that ranks have in common only after a collective."""

    def __init__(self, size: int, _transport: Any) -> None:
        self.own = torch.zeros(size, dtype=torch.uint8)
        self.all = [torch.zeros_like(self.own) for _ in range(dist.get_world_size())]

    def of(self, rank: int, shape: Any, dtype: Any, start: int) -> Any:
        flat = self.own if rank == dist.get_rank() else self.all[rank]
        return flat[start : start + math.prod(shape) * dtype.itemsize].view(dtype).view(tuple(shape))

    def barrier(self, channel: int) -> None:
        if channel == 0:
            dist.all_gather(self.all, self.own)


def pulled() -> list[Any]:
    """Results of this rank, and the loop in parts."""
    found = []
    for case in PULLED:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharding, "reads_peers", lambda _transport: True)
            patch.setattr(sharding, "SymmetricMemory", Gathered)
            patch.setattr(pull, "LEAST", 1)
            patch.setitem(LINKS, "gloo", dataclasses.replace(LINKS["gloo"], seconds=0.0))
            name, order, rows, exchange = case
            one = shard(PROGRAMS[name][0](), rows=rows, order=order, exchange=exchange)
            parts = one.ranks.parts if exchange == "inputs" else None
            found.append((filled(*case), "" if parts is None else parts.along.name))
    return found


def test_inputs_are_read_from_the_memory_of_ranks_part_after_part(ranks: list[dict[str, Any]]) -> None:
    for k, (case, loop) in enumerate(PULLED.items()):
        check(case, [rank["pulled"][k][0] for rank in ranks])
        assert {rank["pulled"][k][1] for rank in ranks} == {loop}


GRADIENTS = {
    "causal": ("i", "zigzag", ["d_k", "d_v"]),
    "attention": ("", "blocks", ["d_q"]),
    "cross-entropy": ("", "blocks", []),
    "layer norm": ("", "zigzag", []),
}
"""Rows that are sharded, the order, and which gradients are sums over ranks."""


def differentiated() -> dict[str, Any]:
    """Of sharded operators under torch.compile: gradients of this rank, those of the whole, and which are summed."""
    found: dict[str, Any] = {}
    for name, (rows, order, _) in GRADIENTS.items():
        func, label = PROGRAMS[name][0](), name.replace(" ", "_").replace("-", "_")
        gradient = tvm_cascade.gradient(func)
        sharded = shard(gradient, rows=rows, order=order)
        (wanted,) = (one.name for one in oracle.signature(func).outputs)
        at = [one.name for one in oracle.signature(gradient.forward).outputs].index(wanted)
        rng = np.random.default_rng(0)
        shape = [int(extent) for extent in oracle.signature(func).outputs[0].ty.shape]
        weights = torch.from_numpy(rng.standard_normal(shape).astype("float32"))
        gradients = []
        for one, take in ((gradient, lambda _name, tensor: tensor.clone()), (sharded, sharded.forward.local)):
            operator = tvm_cascade.torch_operator(one, f"{'own' if one is sharded else 'whole'}::{label}")
            inputs = {key: take(key, torch.from_numpy(value)) for key, value in given(name).items()}
            floats = {key: tensor.requires_grad_() for key, tensor in inputs.items() if tensor.is_floating_point()}

            def loss(weights: Any, *tensors: Any, operator: Any = operator, at: int = at) -> Any:
                made = operator(*tensors)
                return ((made[at] if isinstance(made, tuple) else made) * weights).sum()

            torch.compile(loss, backend="aot_eager", fullgraph=True)(take(wanted, weights), *inputs.values()).backward()
            gradients.append({key: tensor.grad for key, tensor in floats.items()})
        whole = {key: sharded.forward.local(key, tensor) for key, tensor in gradients[0].items()}
        found[name] = gradients[1], whole, sorted(sharded.backward.plan.exchange.summed)
    return found


def test_gradients_of_sharded_operators_are_shares_of_those_of_the_whole(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        for name, (own, whole, summed) in rank["gradients"].items():
            assert summed == GRADIENTS[name][2]
            for key, tensor in own.items():
                exact = whole[key].numpy()
                tolerance.assert_close(tensor.numpy(), exact, length=24 * 24, dtype="float32")
                assert np.abs(exact).max() > 0
                assert not rejects(exact, 24 * 24, "float32"), (name, key)


def considered() -> tuple[Any, ...]:
    """Exchanges as data, the report, and the explanation, of a sharded attention and of a loss that is guarded."""
    sharded = shard(attention(), rows="i", exchange="ring")
    guarded = shard(PROGRAMS["weighted mean"][0](), rows="")
    return sharded.exchanges, sharded.report, tvm_cascade.explain(sharded), guarded.exchanges


def test_what_was_considered_is_told_with_bytes_seconds_and_why(ranks: list[dict[str, Any]]) -> None:
    """In one table, of the numbers by which one is chosen."""
    keys_and_values, queries, states = 2 * 24 * 8 * 4, 24 * 8 * 4, 24 * (8 + 1 + 1) * 4
    received = {"inputs": keys_and_values / 2, "ring": keys_and_values / 2, "rows": (queries + states) / 2}
    for rank in ranks:
        exchanges, report, explained, guarded = rank["considered"]
        by_name = {one.name: one for one in exchanges}
        assert {name: one.bytes for name, one in by_name.items()} == {**received, "states": None}
        assert [one.name for one in exchanges if one.why.startswith("taken")] == ["ring"]
        seconds = [one.seconds for one in exchanges if one.seconds is not None]
        assert seconds == sorted(seconds) and seconds[0] > 0
        later = (by_name["rows"].seconds - seconds[0]) * 1e6
        assert by_name["rows"].why == f"{later:.0f} us more than {exchanges[0].name}"
        assert "rows that all ranks have" in by_name["states"].why and by_name["states"].seconds is None
        table = report.splitlines()[-5:]
        assert [line.split()[0] for line in table[1:]] == [one.name for one in exchanges]
        assert str(explained).splitlines()[:5] == table and explained.exchanges == exchanges
        assert explained.fused and "partial" in {one.name for one in explained.functions}
        assert '"bytes": 768' in explained.to_json() and "more than" in explained._repr_html_()
        assert {one.name: one.why for one in guarded}["ring"] == "for rows that are sharded, as rows= says"


LENGTHS = (24, 25, 24, 3)
"""Of a sharded axis, in successive calls: one that ranks do not divide, and one that comes again."""


def symbolic() -> dict[str, Any]:
    """Results of this rank at several lengths, of rows that are sharded or on all ranks; and an error of one rank."""
    n, m = (tirx.Var(name, "int64") for name in "nm")
    both, keys = shard(attention(n, n, causal=True), rows="i"), shard(attention(m, n))
    found: dict[str, Any] = {"both": [], "keys": []}
    for length in LENGTHS:
        for name, one, extents in (("both", both, {"n": length}), ("keys", keys, {"m": 5, "n": length})):
            at = one.at(**extents)
            assert at is one.at(**extents)
            found[name].append(one(*(at.local(key, value) for key, value in lengthened(name, length).items())))
    wrong = torch.ones(3) if dist.get_rank() else torch.ones(3, 8)
    with pytest.raises(CascadeError) as raised:
        both(wrong, torch.ones(3, 8), torch.ones(3, 8))
    with pytest.raises(InputError, match="none for m"):
        keys.at(n=4)
    return {**found, "wrong": str(raised.value)}


def lengthened(name: str, length: int) -> dict[str, Any]:
    """Whole query, keys and values at a length."""
    generator = torch.Generator().manual_seed(length)
    rows = {"q": 5 if name == "keys" else length, "k": length, "v": length}
    return {key: torch.randn(extent, 8, generator=generator) for key, extent in rows.items()}


def test_extents_that_are_symbolic_are_those_of_the_call(ranks: list[dict[str, Any]]) -> None:
    for name in ("both", "keys"):
        for k, length in enumerate(LENGTHS):
            q, key, value = (one.numpy() for one in lengthened(name, length).values())
            func = attention(len(q), length, causal=name == "both")
            exact, rounded = (oracle.evaluate(func, [q, key, value], rounding=r)["o"] for r in (False, True))
            parts = [rank["symbolic"][name][k].numpy() for rank in ranks]
            for part in parts if name == "keys" else [np.concatenate(parts)]:
                tolerance.assert_close(part, exact, rounded, length=24, dtype="float32")
            assert not rejects(exact, 24, "float32", baseline=rounded)
    first, second = (rank["symbolic"]["wrong"] for rank in ranks)
    assert "rank 1" in first and "2 dimensions" in second and "`q`" in second


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (7,), (4, 6, 8), (2, 1, 5, 32)])
def test_tensors_are_copied_as_they_are_whatever_their_strides(shape: tuple[int, ...], dtype: str) -> None:
    """In words of any width, beside which nothing is written."""
    for d, before, start in itertools.product(range(len(shape)), (0, 1, 3, 8), (0, 1, 2)):
        numbers = torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(d))
        values = numbers.to(getattr(torch, dtype))
        whole = torch.cat([torch.zeros(before, dtype=values.dtype), values.flatten()])[before:].view(shape)
        found, expected = (torch.full_like(values, 0) for _ in range(2))
        length = max(shape[d] - start, 0)
        expected.narrow(d, 0, length).copy_(whole.narrow(d, shape[d] - length, length))
        copy(found.narrow(d, 0, length), whole.narrow(d, shape[d] - length, length))
        assert torch.equal(found, expected)


# What is wrong is told on every rank, in time, and nothing is written.


def misused() -> dict[str, str]:
    """The errors of calls that are wrong on one rank, or everywhere."""
    found, rank = {}, dist.get_rank()

    def told(key: str, call: Any) -> None:
        with pytest.raises(CascadeError) as raised:
            call()
        found[key] = f"{type(raised.value).__name__}: {raised.value}"

    sharded = shard(attention())
    local = [sharded.local(name, torch.ones(24, 8)) for name in "qkv"]
    out = torch.full((24, 8), 77.0)
    short = [local[0], local[1][: 12 - rank], local[2], out]  # rank 1 has one key less
    told("shape", lambda: sharded(*short))
    told("dtype", lambda: sharded(*local, out.double()))
    told("number", lambda: sharded(local[0]))
    other = shard(attention(causal=True) if rank else attention(cap=1.0))
    told("function", lambda: other(*local, out))
    told("order", lambda: shard(attention(), order="striped"))
    told("rows", lambda: shard(attention(), rows="x"))
    told("axis", lambda: shard(attention(), axis="i"))
    told("exchange", lambda: shard(attention(), exchange="ring"))
    told("zigzag", lambda: shard(attention(25, 25), order="zigzag"))
    told("parameter", lambda: sharded.local("x", out))
    found["written"] = str(bool((out != 77).any()))
    sharded(*local, out)  # and it still runs
    found["runs"] = str(bool((out == 1).all()))
    returned, by_name = sharded(*local), sharded(**dict(zip("qkv", local, strict=True)))
    found["returns"] = str(all(one is not out and bool((one == 1).all()) for one in (returned, by_name)))
    return found


def test_what_is_wrong_on_one_rank_is_told_on_all(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["misused"] for rank in ranks)
    assert "expected all 2 ranks to go on" in first["shape"] and "rank 1" in first["shape"]
    assert "expected float32[12, 8]" in second["shape"] and "Sharded.local('k'" in second["shape"]
    for one in (first, second):
        assert "expected float32[24, 8]" in one["dtype"] and "none for `k`, `v`" in one["number"]
        assert "expected one function on all ranks" in one["function"]
        assert (
            "one of blocks, chunks, zigzag" in one["order"] and "rows among f, i" in one["rows"] and "j" in one["axis"]
        )
        assert "one of auto, inputs, states" in one["exchange"] and "order='blocks'" in one["zigzag"]
        assert "a parameter among q, k, v, o" in one["parameter"]
        assert (one["written"], one["runs"], one["returns"]) == ("False", "True", "True")


def test_one_rank_compiles_for_all(ranks: list[dict[str, Any]]) -> None:
    assert [rank["compiled"] for rank in ranks] == [2, 0]  # a share of the keys, and the merge


def deserted() -> str:
    """The error of a rank whose peer ends without a word."""
    sharded = shard(attention())
    local = [sharded.local(name, torch.ones(24, 8)) for name in "qkv"]
    out = torch.full((24, 8), 77.0)
    sharded(*local, out)
    if dist.get_rank():
        return "gone"
    out.fill_(77.0)
    with pytest.raises(DistributedError, match="expected all 2 ranks to give their tensors") as raised:
        sharded(*local, out)
    assert (out == 77).all()
    return str(raised.value)


def test_a_rank_that_is_gone_is_an_error_on_the_others(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["deserted"] for rank in ranks)
    assert second == "gone" and "rank 0" in first and "init_process_group(timeout" in first


def test_without_a_group_there_is_nothing_to_shard_over() -> None:
    with pytest.raises(InputError, match=r"a process group of torch\.distributed"):
        shard(attention())
