"""The suite of routers: its programs against their definitions in torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import suites
from benchmarks.gpu.check import twin
from benchmarks.gpu.served import served
from benchmarks.suites import served as served_suites
from benchmarks.suites.entry import Entry
from tvm_cascade.evaluate import oracle, tolerance

torch = pytest.importorskip("torch")

_MODELS = [
    entry for entry in suites.entries("moe", ["models"]) if entry.label.endswith(" 16") and "32" not in entry.label
]
_LOGITS = [
    replace(entry, workload=entry.workload.with_shape(tokens=16, experts=64))
    for entry in suites.entries("moe", [served_suites.LOGITS])
]


def test_it_holds_redfusers_table_and_few_tokens_in_bfloat16() -> None:
    found = {entry.label: entry.workload for entry in suites.entries("moe")}
    assert found["R7"].shape == {"tokens": 2048, "hidden": 2048, "experts": 128, "topk": 8}
    assert [found[f"{n} tokens"].shape["tokens"] for n in (1, 8, 64)] == [1, 8, 64]
    logits = found.pop("moe_routing")
    assert (logits.dtype, dict(logits.shape)) == ("float16", {"tokens": 4096, "experts": 4096, "topk": 8})
    assert {workload.dtype for workload in found.values()} == {"bfloat16"}


@pytest.mark.parametrize("entry", [*_MODELS, *_LOGITS], ids=lambda entry: entry.label)
def test_programs_route_as_torch_does(entry: Entry) -> None:
    small = twin(entry.workload).with_dtype("float32")
    arrays, formula = small.inputs(np.random.default_rng(0)), served(small, torch.float32)
    assert formula is not None
    names = [argument.tensor.name for argument in small.program.arguments]
    wide = {name: torch.from_numpy(array).double() for name, array in zip(names, arrays, strict=True)}
    expected = formula.compute(torch, wide).numpy()
    (found,) = oracle.evaluate(small.build(), arrays).values()
    told = tolerance.check(found, expected, expected, length=small.length, dtype="float64")
    assert told.ok, told.message
