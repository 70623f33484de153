"""Peers: every way to compute a workload gives what the oracle gives, and says why where there is none."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks import numpy_peer, peers, suites, torch_peer
from benchmarks.judge.case import Case
from benchmarks.judge.check import check
from benchmarks.judge.forms import Absent, Runnable
from benchmarks.peers import CPU_PEERS
from corpus import workloads
from corpus.workload import Workload
from tvm_cascade.cli.jobs import GivenFunction
from tvm_cascade.devices.host import host_target
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions

FORMULAS = [
    ("attention", "attention", {"heads": 2, "queries": 5, "keys": 37, "head_dim": 8}),
    ("attention", "attention_gqa", {"heads": 6, "kv_heads": 2, "queries": 5, "keys": 37, "head_dim": 8}),
    ("attention", "H1", {"batch": 2, "heads": 3, "queries": 5, "keys": 37, "head_dim": 8}),
    ("variance", "variance", {"rows": 7, "length": 101}),
    ("variance", "variance", {"rows": 9, "length": 40009}),  # several blocks, the last one shorter
    ("inertia", "inertia", {"rows": 7, "length": 101}),
    ("logsumexp", "logsumexp", {"rows": 7, "length": 101}),
]


def case(name: str, **shape: int) -> Case:
    return Case(workloads.get(name).with_shape(**shape), FuseOptions(), host_target(), seed=0)


@pytest.mark.parametrize("kind", ["normal", "large_offset", "late_spike"])
@pytest.mark.parametrize(("formula", "name", "shape"), FORMULAS)
def test_numpy_and_torch_forms(formula: str, name: str, shape: dict[str, int], kind: str) -> None:
    pytest.importorskip("torch")
    job = workloads.get(name).with_shape(**shape)
    assert peers.formula_of(job) == formula
    inputs = job.inputs(np.random.default_rng(1), kind)
    before = [array.copy() for array in inputs]
    (exact,) = oracle.evaluate(job.build(), inputs).values()
    length = shape.get("keys") or shape["length"]
    results = [numpy_peer.FORMULAS[formula](inputs)(), torch_peer.prepare(formula, inputs)().numpy()]
    # float32 holds x − mean to its own eps·|x|, whatever the algorithm; the unfused program sets the baseline.
    (baseline,) = oracle.evaluate(job.build(), inputs, rounding=True).values()
    for result in results:
        assert result.dtype == np.dtype(job.dtype)
        tolerance.assert_close(result, exact, baseline, length=length, dtype=job.dtype)
    assert all(np.array_equal(array, copy) for array, copy in zip(inputs, before, strict=True))


def test_a_numpy_form_can_be_called_again() -> None:
    x = np.random.default_rng(0).standard_normal((3, 50), dtype=np.float32)
    call = numpy_peer.FORMULAS["logsumexp"]([x])
    assert np.array_equal(call(), call())


def jobs(suite: str) -> list[Workload]:
    return [entry.workload for entry in suites.entries(suite)]


def test_every_formula_of_a_suite_is_written() -> None:
    used = {peers.formula_of(job) for suite in ("cpu", "redfuser-cpu") for job in jobs(suite)} - {None}
    assert used == set(numpy_peer.FORMULAS) == set(torch_peer.FORMULAS)


def test_without_torch_its_row_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    row = CPU_PEERS[peers.TORCH](case("variance", rows=4, length=65))
    assert isinstance(row, Absent)
    assert "tvm-cascade[bench]" in row.reason


def test_a_program_without_a_formula_has_no_numpy_and_no_torch_row() -> None:
    job = case("entropy", rows=4, length=65)
    assert all(isinstance(CPU_PEERS[name](job), Absent) for name in (peers.NUMPY, peers.TORCH))
    assert peers.formula_of(GivenFunction("variance", "mine.py", job.func)) is None  # whatever users call theirs


def test_dlight_says_where_no_rule_applies() -> None:
    scheduled = CPU_PEERS[peers.TVM_DLIGHT](case("variance", rows=4, length=65))
    untouched = CPU_PEERS[peers.TVM_DLIGHT](case("inertia", rows=4, length=65))
    assert isinstance(scheduled, Runnable)
    assert isinstance(untouched, Absent) and "tvm default" in untouched.reason


def test_the_unfused_program_stays_as_it_is() -> None:
    job = case("variance", rows=4, length=65)
    before = job.func.script()
    check(job, CPU_PEERS)
    assert job.func.script() == before
