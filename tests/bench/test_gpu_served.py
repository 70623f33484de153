"""Suites of servers without a GPU: formulas are the programs, peers compute them or say why not, goals are data."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import numpy as np
import pytest

from benchmarks import goals, peers, suites
from benchmarks.gpu import check, flashinfer_served, torch_peers, tvm_peers
from benchmarks.gpu.prepared import Prepared
from benchmarks.gpu.problem import Problem, SelfAttention, as_array, problem_class
from benchmarks.gpu.rows import Bench
from benchmarks.judge.check import Status
from benchmarks.judge.forms import Absent
from benchmarks.record import OURS
from benchmarks.runner import report_of
from benchmarks.suites import served
from corpus import workloads
from corpus.workload import Workload, WorkloadError
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.report.group import FunctionReport, StepReport

torch = pytest.importorskip("torch")

from .fakes import fake_device, timed  # noqa: E402  (which torch is needed for too)

NAMES = [*workloads.names(source=workloads.SERVING), "DC_CAUSAL", "DC_ALIBI", "DC_GQA", "DC_SOFTCAP", "H7", "L7"]
ATTENTIONS = [name for name in NAMES if not name.startswith(("product", "head", "normed", "chain", "mla_paged", "L7"))]


def problem(name: str) -> Problem:
    workload = workloads.get(name).cpu
    found = problem_class(workload).drawn(torch, workload, "cpu", seed=0)
    assert isinstance(found, Problem)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_is_the_oracle_of_the_program(name: str) -> None:
    job = problem(name)
    arrays = [as_array(x) if x.is_floating_point() else x.numpy() for x in job.inputs]
    (exact,) = oracle.evaluate(job.func, arrays).values()
    (values,) = check.Exact(job).values
    tolerance.assert_close(values, np.take(exact, job.rows, axis=job.formula.axis), length=job.length, dtype="float32")


@pytest.mark.parametrize("name", NAMES)
def test_the_eager_formula_passes_and_wrong_answers_do_not(name: str) -> None:
    job = problem(name)
    exact, output = check.Exact(job), check.result(torch_peers.eager(job))
    assert exact.judge(output).ok, exact.judge(output).message
    for wrong in (torch.zeros_like(output), output.roll(1, dims=-1), output * 1.1):
        assert not exact.judge(wrong).ok


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("peer", ["flex", "inductor", "math"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_peers_of_torch_compute_the_workload_or_say_why_not(
    peer: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    job = problem(name)
    prepared = torch_peers.sdpa("MATH", job) if peer == "math" else peers.SERVED_PEERS[peer](job)
    if isinstance(prepared, Absent):
        assert peer == "math" or name == "decode_sink"
        return
    judged = check.Exact(job).judge(check.result(prepared))
    assert judged.ok, judged.message


@pytest.mark.parametrize("name", ["product", "mla_paged", "L7"])
def test_peers_of_attention_refuse_what_is_none(name: str) -> None:
    for peer in (torch_peers.flex, peers.SERVED_PEERS["cudnn"]):
        found = peer(problem(name))
        assert isinstance(found, Absent) and "not an attention" in found.reason


def test_missing_flashinfer_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for peer in (flashinfer_served.decode, flashinfer_served.by_fa3):
        found = peer(problem("decode"))
        assert isinstance(found, Absent) and "pip install" in found.reason
        found = peer(problem("product"))
        assert isinstance(found, Absent) and "attention" in found.reason


class _Library:
    """FlashInfer as plain arithmetic over the pages that it is given."""

    def __init__(self, workspace: Any, *given: Any, **options: Any) -> None:
        self.planned: tuple[Any, ...] = ()
        self.options: dict[str, Any] = {}

    def run(self, *given: Any) -> Any:
        raise NotImplementedError


def attend_pages(q: Any, pages: tuple[Any, Any], sequences: list[Any], causal: bool) -> Any:
    """q[sequence · query, head, feature]; each sequence's positions are numbers of slots of the pool."""
    k, v = (x.flatten(0, 1) for x in pages)
    out, queries = [], len(q) // len(sequences)
    for number, slots in enumerate(sequences):
        rows = q[number * queries : (number + 1) * queries].double()
        keys, values = (x[slots].double().repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        scores = torch.einsum("ihd,jhd->hij", rows, keys) * q.shape[-1] ** -0.5
        behind = torch.ones(queries, len(slots)).tril(len(slots) - queries) == 0
        scores = scores.masked_fill(behind, float("-inf")) if causal else scores
        out.append(torch.einsum("hij,jhd->ihd", scores.softmax(-1), values))
    return torch.cat(out).to(q.dtype)


def slots_of(starts: Any, indices: Any, last: Any, size: int) -> list[Any]:
    found = []
    for first, end, count in zip(starts[:-1].tolist(), starts[1:].tolist(), last.tolist(), strict=True):
        own = (indices[first:end, None].long() * size + torch.arange(size)).flatten()
        found.append(own[: len(own) - size + count])
    return found


class _Decode(_Library):
    def plan(
        self, starts: Any, indices: Any, last: Any, heads: int, kv: int, dim: int, size: int, **given: Any
    ) -> None:
        self.sequences = slots_of(starts, indices, last, size)

    def run(self, q: Any, pages: Any) -> Any:
        return attend_pages(q, pages, self.sequences, causal=False)


class _Prefill(_Library):
    def plan(self, queries: Any, starts: Any, indices: Any, last: Any, *sizes: int, **given: Any) -> None:
        self.sequences, self.causal = slots_of(starts, indices, last, sizes[3]), given["causal"]

    def run(self, q: Any, pages: Any) -> Any:
        return attend_pages(q, pages, self.sequences, self.causal)


class _Latent(_Library):
    def plan(self, queries: Any, starts: Any, indices: Any, lengths: Any, *given: Any) -> None:
        size = given[3]
        self.sequences = slots_of(starts, indices, (lengths - 1) % size + 1, size)

    def run(self, q: Any, q_rope: Any, kv: Any, kv_rope: Any) -> Any:
        whole, keys = torch.cat([q, q_rope], -1).double(), torch.cat([kv, kv_rope], -1).flatten(0, 1).double()
        out = []
        for row, slots in zip(whole, self.sequences, strict=True):
            shares = (row @ keys[slots].T * row.shape[-1] ** -0.5).softmax(-1)
            out.append(shares @ keys[slots][:, : kv.shape[-1]])
        return torch.stack(out).to(q.dtype)


class _Cascade(_Library):
    def plan(
        self, queries: Any, starts: Any, indices: Any, last: Any, heads: int, kv: int, dim: int, size: int, **given: Any
    ) -> None:
        (shared,), own = (slots_of(*level, size) for level in zip(starts, indices, last, strict=True))
        self.sequences = [torch.cat([shared, one]) for one in own]

    def run(self, q: Any, cache: Any) -> Any:
        return attend_pages(q, (cache[:, 0], cache[:, 1]), self.sequences, causal=False)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    stub: Any = types.ModuleType("flashinfer")
    stub.BatchDecodeWithPagedKVCacheWrapper = _Decode
    stub.BatchPrefillWithPagedKVCacheWrapper = _Prefill
    stub.MultiLevelCascadeAttentionWrapper = _Cascade
    stub.mla = types.SimpleNamespace(BatchMLAPagedAttentionWrapper=_Latent)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "flashinfer", stub)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ["decode", "decode_draft", "decode_lengths", "decode_paged", "mla_paged", "L7"])
def test_flashinfer_gets_the_pages_of_each_sequence(name: str) -> None:
    job = problem(name)
    for peer in (flashinfer_served.decode, flashinfer_served.by_fa3):
        prepared = peer(job)
        if isinstance(prepared, Prepared):
            judged = check.Exact(job).judge(check.result(prepared))
            assert judged.ok, judged.message
        else:
            assert not job.attends and peer is flashinfer_served.by_fa3


@pytest.mark.usefixtures("library")
def test_flashinfers_cascade_reads_the_prefix_once() -> None:
    workload = workloads.get("decode_prefix").cpu.with_shape(prefix=48, keys=96)  # whole pages
    job = Problem.drawn(torch, workload, "cpu", seed=0)
    prepared = flashinfer_served.decode(job)
    assert isinstance(prepared, Prepared)
    judged = check.Exact(job).judge(check.result(prepared))
    assert judged.ok, judged.message


def test_what_no_kernel_for_hopper_does_is_told(library: None) -> None:
    for name, told in (("decode_alibi", "ALiBi"), ("decode_sink", "sinks"), ("decode_float8", "dtype")):
        found = flashinfer_served.by_fa3(problem(name))
        assert isinstance(found, Absent) and told in found.reason


def labels(suite: str, *only: str) -> list[str]:
    return [entry.label for entry in suites.entries(suite, only)]


def test_decode_is_neptunes_redfusers_and_grouped_queries_of_models() -> None:
    assert len(labels("decode", served.NEPTUNE)) == 16 and labels("decode", served.REDFUSER) == ["H7", "H8", "H9"]
    grouped = suites.entries("decode", [served.GROUPED])
    assert len({tuple(entry.workload.shape.items()) for entry in grouped}) == len(grouped) == 2 * 3 * 3 * 3
    for entry in grouped:
        shape = entry.workload.shape
        assert shape["heads"] // shape["kv_heads"] * shape["queries"] <= 64, "rows of one packed tile"
    named = {entry.workload.name for entry in suites.entries("decode", [served.VARIANTS])}
    assert named == set(workloads.names("decode")) - {"decode", "decode_draft", "decode_paged", "decode_prefix"}


def test_the_other_suites_of_servers_are_the_tables() -> None:
    assert labels("mla", served.LATENT) == [f"L{k}" for k in range(1, 10)]
    assert [e.workload.shape["heads"] for e in suites.entries("mla", [served.FEW_HEADS])] == [64, 32, 16]
    pages = [entry.workload.shape.get("page") for entry in suites.entries("paged")]
    assert pages == [None, 16, 64, 1, 256]
    lengths = {(e.workload.shape["shortest"], e.workload.shape["keys"]) for e in suites.entries("paged")}
    assert lengths == {(100, 8000)}
    (prefix,) = suites.entries("prefix")
    assert (prefix.workload.shape["prefix"], prefix.workload.shape["keys"]) == (8192, 8192 + 256)
    flops = {entry.label: entry.workload.flops() for entry in suites.entries("gemm")}
    assert flops["2048x14336x4096"] == 2 * 2048 * 14336 * 4096 and flops["64x512"] == 2 * 64 * 512**3
    assert {e.workload.dtype for e in suites.entries("gemm", [served.HALF])} == {"bfloat16"}
    assert labels("conv") == [f"C{k}" for k in range(1, 9)]
    convolved = {e.label: e.workload.flops() for e in suites.entries("conv", [served.WINDOWED])}
    assert convolved["C8"] == 2 * 7 * 7 * 512 * (9 * 512 + 2048) and len(convolved) == 4


@pytest.mark.parametrize("suite", suites.SERVED)
def test_every_workload_of_a_server_has_a_formula_and_a_twin(suite: str) -> None:
    for entry in suites.entries(suite):
        assert problem_class(entry.workload) is Problem
        twin = check.twin(entry.workload)
        assert twin.bytes() < 2**24 and check.twin(twin) == twin
        kept = ("head_dim", "page", "latent_dim")
        assert all(twin.shape[extent] == entry.workload.shape[extent] for extent in kept if extent in twin.shape)


def test_self_attention_stays_with_its_own_problem() -> None:
    assert problem_class(workloads.get("PF_CAUSAL")) is SelfAttention
    assert problem_class(workloads.get("mla_prefill")) is Problem
    with pytest.raises(WorkloadError, match="formula in torch"):
        Problem.drawn(torch, workloads.get("softmax_stats").cpu, "cpu", seed=0)


def test_keys_that_no_query_reads_are_no_traffic() -> None:
    plain, windowed = workloads.get("decode"), workloads.get("decode_window")
    positions = 16 * (4096 - 1024)
    assert plain.bytes() - windowed.bytes() == positions * 2 * 8 * 128 * 2
    uneven = workloads.get("decode_lengths")
    assert uneven.bytes() < workloads.get("decode_paged").bytes() < 1.01 * uneven.bytes()


def test_a_pair_goal_compares_two_workloads_of_ours() -> None:
    goal = goals.pairs("pairs", (("b", "a"), ("c", "a")), 1.05)
    reports = [timed(label, {OURS: seconds, "cudnn": 9.0}) for label, seconds in (("a", 1.0), ("b", 1.04), ("c", 1.06))]
    outcome = goal.outcome(reports)
    assert outcome is not None and outcome.met is False and "c" in outcome.figure and "of 2" in outcome.figure
    outcome = goal.outcome(reports[:2])
    assert outcome is not None and outcome.met is True and "1.04" in outcome.figure
    assert goal.outcome(reports[:1]) is None


def test_a_workload_that_cannot_be_built_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Workload) -> Any:
        raise RuntimeError("no such program\nand a trace")

    (entry,) = suites.entries("mla", ["L7"])
    monkeypatch.setattr(Workload, "program", property(refuse))
    place = fake_device(torch)
    report = report_of(entry, Bench(place, peers.LATENT_PEERS), place, peers.LATENT_PEERS)
    assert {row.status for row in report.rows} == {Status.FAILED}
    assert all("no such program and a trace" in row.note for row in report.rows)


def test_a_plan_tells_the_skeleton_of_each_kernel() -> None:
    steps = [StepReport(name, "", (), (), 1.0, 1.0, 1.0) for name in ("row", "", "product")]
    told = tvm_peers._lowering(FunctionReport("main", "unchanged", "", "a plan of 3 kernels", plan=tuple(steps)))
    assert told == "a plan of 3 kernels: row, S-TIR schedule on CUDA cores, product"


@pytest.mark.parametrize("label", ["Q7", "ptpc_gemm", "e5m2 2048x7168", "blocks 2048x7168"])
def test_quantised_products_are_the_oracles_with_and_without_their_rounding(label: str) -> None:
    (entry,) = suites.entries("quant", [label])
    workload = check.twin(entry.workload).with_shape(tokens=24)
    job = Problem.drawn(torch, workload, "cpu", seed=0)
    job.inputs[0][3] = 0
    arrays = [as_array(x) for x in job.inputs]
    for values, rounding in ((job.references(), False), (job.usual(), True)):
        (expected,) = oracle.evaluate(job.func, arrays, rounding=rounding).values()
        rows = np.take(expected, job.rows, axis=0).astype(np.float64)
        tolerance.assert_close(as_array(next(values)), rows, length=job.length, dtype=workload.dtype)
    wide = {name: x.float() if name == "weight" else x for name, x in job.named.items()}
    output = job.formula.compute(torch, wide).to(job.output_dtype)
    exact = check.Exact(job)
    assert exact.judge(output).ok, exact.judge(output).message
    for wrong in (torch.zeros_like(output), output.roll(1, dims=-1), output * 1.5):
        assert not exact.judge(wrong).ok
