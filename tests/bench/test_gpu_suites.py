"""Which workloads the GPU suites hold, and which rows are asked for."""

from __future__ import annotations

import math

import pytest

from benchmarks import peers, suites
from benchmarks.gpu import check
from benchmarks.gpu.formula import form_of
from benchmarks.judge import forms
from benchmarks.record import OURS
from benchmarks.suites import kernels
from corpus.workload import WorkloadError
from tvm_cascade.errors import OptionError


def sizes(suite: str) -> dict[str, tuple[int, ...]]:
    return {entry.label: tuple(entry.workload.shape.values()) for entry in suites.entries(suite)}


def test_prefill_is_sixteen_thousand_tokens_full_and_causal() -> None:
    found = sizes("prefill")
    full = {label for label in found if not label.endswith("c")}
    assert found.keys() - full == {f"{label}c" for label in full}
    assert found["d128s512"] == (32, 16, 512, 512, 128) and found["d64s16384c"] == (1, 32, 16384, 16384, 64)
    assert found["d256s4096"] == found["d256s4096c"] == (4, 8, 4096, 4096, 256)
    for entry in suites.entries("prefill"):
        assert entry.workload.dtype == "bfloat16"
        assert form_of(entry.workload).causal == entry.label.endswith("c")
        assert math.prod(entry.workload.shape[x] for x in ("batch", "queries")) == 16384


def test_float8_is_prefill_with_scores_of_float8() -> None:
    halves, narrow = sizes("prefill"), sizes("float8")
    assert narrow and narrow.items() <= halves.items()
    for entry in suites.entries("float8"):
        q, k, v = entry.workload.program.arguments
        assert [str(x.tensor.dtype) for x in (q, k, v)] == ["float8_e4m3fn", "float8_e4m3fn", "bfloat16"]
        assert check.twin(entry.workload).allowances == entry.workload.allowances == ("narrow_sums",)
        assert form_of(entry.workload).causal == entry.label.endswith("c")


def test_mha_is_redfusers_table() -> None:
    assert list(sizes("mha")) == ["H1", "H2", "H3", "H4", "H5", "H6", "flashdecoding"]
    assert {entry.workload.dtype for entry in suites.entries("mha")} == {"float16"}


def test_neptune_is_its_prefill_operators_at_three_lengths() -> None:
    found = suites.entries("neptune")
    forms = {entry.workload.name: form_of(entry.workload) for entry in found}
    assert forms["PF_WINDOWED"].window == 4096 and forms["PF_SOFTCAP"].cap == 50.0 and forms["PF_ALIBI"].alibi
    assert len(found) == 3 * len(forms)
    assert {entry.workload.shape["keys"] for entry in found} == {2048, 8192, 32768}


@pytest.mark.parametrize("suite", suites.KERNELS)
def test_labels_are_distinct_and_some_entry_is_the_smallest(suite: str) -> None:
    found = suites.entries(suite)
    assert len({entry.label for entry in found}) == len(found)
    smallest = sum(entry.smallest for entry in found)
    assert smallest == len(found) if suite in suites.OF_ROWS else smallest < len(found)
    assert smallest or suite in ("paged", "prefix", "ffn", "loss", "normgemm", "quant")


def test_suites_of_rows_are_redfusers_and_those_of_models() -> None:
    assert list(sizes("variance")) == [*(f"V{k}" for k in range(1, 9)), "one row of 16 Mi"]
    assert sizes("inertia")["I8"] == (1024, 32768)
    others = {kernels.UNALIGNED, kernels.FEW}
    row = [entry for entry in suites.entries("row") if not others & set(entry.groups)]
    assert {entry.workload.shape["length"] for entry in row} == {1024, 8192, 32768, 131072}
    assert {entry.workload.shape["rows"] for entry in row} == {4096}
    backward = {entry.label for entry in row if kernels.BACKWARD in entry.groups}
    assert backward == {entry.label for entry in row if "_gradient" in entry.workload.name}


def test_rows_that_no_vector_divides_and_few_rows_are_groups_of_their_own() -> None:
    unaligned = suites.entries("row", [kernels.UNALIGNED])
    assert {entry.workload.shape["length"] for entry in unaligned} == {197, 5003, 12345, 50257}
    assert all(check.twin(entry.workload).shape["length"] % 2 for entry in unaligned)
    streamed = suites.entries("row", [kernels.UNALIGNED_STREAMED])
    assert {entry.label for entry in streamed} < {entry.label for entry in unaligned}
    assert all(entry.workload.bytes() > 64 * 2**20 for entry in streamed)
    few = suites.entries("row", [kernels.FEW])
    assert {entry.workload.shape["rows"] for entry in few} == {1, 16, 64}
    assert [entry.label for entry in suites.entries("row", ["rms_norm 16x8192 bfloat16"])] == [
        "rms_norm 16x8192 bfloat16"
    ]


def test_groups_tell_what_the_memory_bounds() -> None:
    for suite in suites.OF_ROWS:
        for entry in suites.entries(suite):
            if not {kernels.BACKWARD, kernels.UNALIGNED, kernels.FEW} & set(entry.groups) and entry.groups:
                assert (kernels.STREAMED in entry.groups) == (entry.workload.bytes() > 64 * 2**20)
    assert [entry.label for entry in suites.entries("inertia", [kernels.LARGEST_INERTIA])] == ["I6", "I7", "I8"]


def test_what_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "_LARGEST_BYTES", 2**29)
    assert {entry.workload.shape["keys"] for entry in suites.entries("neptune")} == {2048, 8192}


def test_only_takes_labels_names_and_groups() -> None:
    assert [entry.label for entry in suites.entries("prefill", ["d64s512c"])] == ["d64s512c"]
    assert [entry.label for entry in suites.entries("prefill", ["d256 full"])] == ["d256s4096"]
    assert len(suites.entries("neptune", ["PF_GQA"])) == 3
    with pytest.raises(WorkloadError, match="d1024"):
        suites.entries("prefill", ["d1024"])
    with pytest.raises(WorkloadError, match="prefill, float8, mha"):
        suites.entries("training")


def test_ours_is_always_among_the_rows() -> None:
    known = peers.ATTENTION_PEERS
    assert list(peers.chosen(["flash", "cudnn"], known)) == ["cudnn", "flash", OURS]
    assert list(peers.chosen([], known)) == [OURS]
    assert list(peers.chosen(None, known)) == list(known)
    with pytest.raises(OptionError, match="cudmm"):
        peers.known(["cudmm"], known)
    ours = [name for name in forms.FORMS if name != forms.TVM_DEFAULT]
    assert list(peers.chosen(["numpy"], peers.CPU_PEERS)) == ["numpy", *ours]
