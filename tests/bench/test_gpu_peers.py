"""Peers that do not take a workload say why; what a CPU can run of them gives the right answer."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import types
from typing import Any

import pytest

from benchmarks import suites
from benchmarks.gpu import check, flashinfer_peer, torch_peers, tvm_peers
from benchmarks.gpu.prepared import Prepared
from benchmarks.gpu.problem import SelfAttention, problem_class
from benchmarks.judge.forms import Absent
from benchmarks.peers import ATTENTION_PEERS, of_suite
from corpus import workloads
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.tuning.compilation import compile

torch = pytest.importorskip("torch")


def problem(name: str, length: int = 48) -> SelfAttention:
    return SelfAttention.drawn(torch, workloads.get(name).cpu.with_length(length), "cpu", seed=0)


@pytest.mark.parametrize("name", ["PF_ALIBI", "PF_SOFTCAP", "PF_WINDOWED"])
def test_sdpa_has_no_form_of_some_scores(name: str) -> None:
    found = ATTENTION_PEERS["cudnn"](problem(name))
    assert isinstance(found, Absent) and "soft cap" in found.reason


@pytest.mark.parametrize("name", ["tvm-default", "ours-cuda-cores"])
def test_slow_programs_only_run_at_the_smallest_size(name: str) -> None:
    found = ATTENTION_PEERS[name](problem("H1"))
    assert isinstance(found, Absent) and "smallest" in found.reason


def test_missing_flashinfer_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = flashinfer_peer.flashinfer(problem("H1"))
    assert isinstance(found, Absent) and "pip install" in found.reason


def test_inductor_is_left_out_where_scores_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_peers, "_LARGEST_SCORES", 2**10)
    found = torch_peers.inductor(problem("H1"))
    assert isinstance(found, Absent) and "scores" in found.reason


@pytest.mark.parametrize("name", ["H1", "PF_CAUSAL", "PF_GQA"])
def test_sdpa_computes_the_workload(name: str) -> None:
    job = problem(name)
    prepared = torch_peers.sdpa("MATH", job)
    assert isinstance(prepared, Prepared)
    judged = check.Exact(job).judge(check.result(prepared))
    assert judged.ok, judged.message


@pytest.mark.parametrize("name", ["PF_GLOBAL", "PF_GQA", "PF_ALIBI", "PF_SOFTCAP", "PF_WINDOWED"])
@pytest.mark.parametrize("peer", ["flex", "inductor"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_what_torch_compiles_computes_the_workload(peer: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    job = problem(name)
    prepared = ATTENTION_PEERS[peer](job)
    assert isinstance(prepared, Prepared)
    judged = check.Exact(job).judge(check.result(prepared))
    assert judged.ok, judged.message


@pytest.mark.parametrize("name", ["H1", "PF_GQA", "PF_ALIBI", "PF_WINDOWED"])
def test_flashinfer_gets_the_options_of_the_scores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = problem(name)
    seen: dict[str, Any] = {}
    stub = types.ModuleType("flashinfer")
    stub.BatchPrefillWithRaggedKVCacheWrapper = type("Wrapper", (_Wrapper,), {"seen": seen})  # type: ignore[attr-defined]
    stub.single_prefill_with_kv_cache = lambda q, k, v, **given: seen.update(given) or q  # type: ignore[attr-defined]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "flashinfer", stub)
    prepared = flashinfer_peer.flashinfer(job)
    assert isinstance(prepared, Prepared)
    assert torch.equal(check.result(prepared), job.inputs[0]), "q goes there and back through its layout"
    assert seen["causal"] == job.form.causal and seen["logits_soft_cap"] == job.form.cap
    assert seen["window_left"] == (-1 if job.form.window is None else job.form.window - 1)
    assert seen["pos_encoding_mode"] == ("ALIBI" if job.form.alibi else "NONE")


class _Wrapper:
    seen: dict[str, Any]

    def __init__(self, workspace: Any, **given: Any) -> None:
        self.seen.update(given)

    def plan(self, *sizes: Any, **given: Any) -> None:
        self.seen.update(given)

    def run(self, q: Any, k: Any, v: Any) -> Any:
        return q


def test_our_rows_fill_an_output_that_was_nan() -> None:
    job = problem("PF_GLOBAL")

    def add(q: Any, k: Any, v: Any, output: Any) -> None:
        assert output.isnan().all()
        output.copy_(q)

    prepared = tvm_peers.filling(job, add, lambda: "a kernel")
    assert torch.equal(check.result(prepared), job.inputs[0])
    assert torch.equal(check.result(prepared), job.inputs[0])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(
    ("name", "suite", "label", "told"),
    [
        ("ours", "mha", "H4", "^the tensor-core kernel `stream`, [^;]*$"),
        ("ours", "float8", "d64s512", "^the tensor-core kernel `stream`, .*; narrow_sums$"),
        ("ours", "gemm", "product_float8", "^the tensor-core kernel `product`, .*; narrow_sums$"),
        ("ours-cuda-cores", "mha", "H4", "^an S-TIR schedule"),
        ("tvm-default", "mha", "H4", "^dlight$"),
    ],
)
def test_programs_from_tvm_build_without_a_gpu(
    name: str, suite: str, label: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hopper = resolve_target({"kind": "cuda", "arch": "sm_90a"})
    monkeypatch.setattr(tvm_peers, "resolve_target", lambda target: hopper)
    monkeypatch.setattr(tvm_peers, "compile", lambda func, target, **options: compile(func, hopper, **options))
    workload = check.twin(suites.entries(suite, [label])[0].workload)
    prepared = of_suite(suite)[name](problem_class(workload).drawn(torch, workload, "cpu", seed=0, smallest=True))
    assert isinstance(prepared, Prepared)
    assert re.search(told, prepared.configuration())
