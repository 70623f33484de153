"""The target "cuda" is the card of this machine: its row, or what its driver says where it has none."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import tvm

from tvm_cascade.devices import cards
from tvm_cascade.devices.device import Gpu
from tvm_cascade.devices.read import card_of
from tvm_cascade.driver.targets import resolve_target


def put_in(monkeypatch: pytest.MonkeyPatch, name: str, processors: int, capability: str = "9.0") -> None:
    """A card in this machine."""
    card = SimpleNamespace(
        exist=True,
        device_name=name,
        compute_version=capability,
        multi_processor_count=processors,
        l2_cache_size_bytes=48 << 20,
    )
    monkeypatch.setattr(tvm, "cuda", lambda _index: card)
    monkeypatch.setattr(tvm, "device", lambda _kind, _index: card)


@pytest.mark.parametrize("card", [cards.H200, cards.H100], ids=lambda card: card.name)
def test_a_card_with_a_row(card: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch, card.name, 7)
    target = resolve_target("cuda")
    assert target.attrs["arch"] == "sm_90a" and target.attrs["model"] == card.name
    assert card_of(target) == card, "a row says more than a driver, and the same everywhere"


def test_a_card_without_a_row_has_the_processors_that_its_driver_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch, "NVIDIA H100 PCIe", 114)
    expected = dataclasses.replace(cards.H200, name="NVIDIA H100 PCIe", processors=114, l2_bytes=48 << 20)
    assert card_of(resolve_target("cuda")) == expected


def test_its_target_means_the_first_card_of_the_architecture_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as here:
        put_in(here, "NVIDIA H100 PCIe", 114)
        target = resolve_target("cuda")
    put_in(monkeypatch, "NVIDIA L40S", 142, "8.9")
    assert card_of(target) == cards.H200


def test_a_stated_architecture_is_not_that_of_this_machine_s_card(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch, "NVIDIA L40S", 142, "8.9")
    assert card_of(resolve_target({"kind": "cuda", "arch": "sm_90a"})) == cards.H200
