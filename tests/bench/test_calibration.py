"""Calibration: rates are found back from kernels of a card whose rates are known, written, and read again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from tvm.target import Target

from benchmarks import calibrate
from benchmarks.calibrate import Calibration, Measured, fitted, write
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Gpu
from tvm_cascade.devices.rates import VARIABLE, Rates
from tvm_cascade.devices.read import device_of
from tvm_cascade.errors import InputError
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.estimate import Work

NAMES = [field.name for field in dataclasses.fields(Rates)]
APART = {"scheduled_memory_share", "scheduled_compute_share", "beside_share"}
"""Rates of plans, which no kernel alone tells of."""


def _of_products(rate: str) -> list[Counts]:
    long = Counts(steps=1e4, products=4e6, products_rate=rate)
    return [long, long._replace(load=1.0), long._replace(crowded=True)]


def _of_copies(rate: str) -> list[Counts]:
    long = Counts(steps=1e4, copied=1e5, copies_rate=rate)
    return [long, long._replace(unaligned=1e5), long._replace(unshared=True), long._replace(under_way=2e4)]


def population() -> list[Counts]:
    """Counts in which every rate of a kernel is what one of them takes most of its time for."""
    found = [one for name in NAMES if name.startswith("tensor_") for one in _of_products(name)]
    for name in ("copied_bytes_per_second", "own_bytes_per_second", "two_stage_bytes_per_second"):
        found += _of_copies(name)
    between = [name for name in NAMES if name.endswith(("_seconds", "_bytes_per_second"))]
    found += [Counts(between={name: 1e9 if name.endswith("_per_second") else 1e5}) for name in between]
    found += [Counts(steps=1e5, instructions=64.0), Counts(steps=1e5, fragments=1e5), Counts(steps=1e5, gathered=1e4)]
    found += [Counts(steps=1e4, paced=True), Counts(bytes=1e9), Counts(stored=1e9), Counts(threads=50.0)]
    return [*found, Counts(Work(bytes=1e9)), Counts(Work(flops=1e12))]


def fabricated(truth: Gpu) -> list[Measured]:
    """The population as timed on a card."""
    times = ((one, truth.launch_seconds + seconds(one, truth)) for one in population())
    return [Measured(str(place), "made", one, time) for place, (one, time) in enumerate(times)]


def card(seed: int) -> Gpu:
    """A card of which every rate is another than that of the row."""
    drawn = np.random.default_rng(seed).uniform(0.7, 1.4, len(NAMES))
    rates = {name: getattr(H200.rates, name) * by for name, by in zip(NAMES, drawn, strict=True)}
    return dataclasses.replace(H200, rates=Rates(**rates))


def test_the_rates_of_a_card_are_found_back() -> None:
    """Each within 2 %; one that the model ignored would stay as it was, up to 40 % off."""
    truth = card(0)
    found = fitted(H200, fabricated(truth))
    off = {name: getattr(found.gpu.rates, name) / getattr(truth.rates, name) for name in {*NAMES} - APART}
    assert {name: by for name, by in off.items() if abs(by - 1) > 0.02} == {}
    assert abs(found.errors(found.gpu)).max() < 0.01 < 0.2 < abs(found.errors(H200)).max()


def test_what_no_kernel_tells_of_stays() -> None:
    truth = card(1)
    known = [one for one in fabricated(truth) if one.counts.bytes or one.counts.stored]
    rates = fitted(H200, known).gpu.rates
    assert abs(rates.bulk_memory_share / truth.rates.bulk_memory_share - 1) < 0.01
    assert dataclasses.replace(rates, bulk_memory_share=H200.rates.bulk_memory_share) == H200.rates


def test_a_file_of_rates_is_that_of_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth, path = card(2), tmp_path / "rates.json"
    write(Calibration(H200, truth, ()), path)
    monkeypatch.setenv(VARIABLE, str(path))
    target = {"kind": "cuda", "arch": "sm_90a"}
    assert device_of(Target(target)) == truth
    assert device_of(Target(target | {"arch": "sm_120"})).rates != truth.rates


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "JSONDecodeError"), ("[]", "TypeError"), (json.dumps({"card": "x", "rates": {"lanes": 1}}), "lanes")],
)
def test_a_file_that_is_no_such_is_refused(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rates.json").write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "rates.json"))
    with pytest.raises(InputError, match=told):
        device_of(Target({"kind": "cuda", "arch": "sm_90a"}))


@pytest.mark.parametrize(
    ("arguments", "told"), [(["--target", "sm_90a"], "a device of kind cuda"), (["--only", "V3"], "names among")]
)
def test_what_cannot_be_measured_is_a_message(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate.main(arguments) == 2
    assert told in capsys.readouterr().err
