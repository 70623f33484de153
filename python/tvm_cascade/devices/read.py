"""Reads the device of a target: a CPU from its features, a GPU from the row of its card."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target, codegen

from tvm_cascade.devices import cards
from tvm_cascade.devices.device import Cpu, Device, Gpu
from tvm_cascade.devices.rates import measured_rates

ANY_CPU = Cpu()
"""What programs are cut for where no target is named."""

_AVX512, _AVX, _SHORT = 64, 32, 16
"""Bytes of a vector register."""


def given_device(func: tirx.PrimFunc) -> Device:
    """The device of `given_target`; any CPU where there is none."""
    target = given_target(func)
    return ANY_CPU if target is None else device_of(target)


def given_target(func: tirx.PrimFunc) -> Target | None:
    """A function's target where none is passed: its attribute `target`, else TVM's current target, else None.

    For the entries that TVM or its users call without a target: passes, schedule primitives and schedule rules. Nothing
    below them asks again.
    """
    own = func.attrs.get("target") if func.attrs is not None else None
    return Target.current(allow_none=True) if own is None else Target(own)


def device_of(target: Target) -> Device:
    """The CPU or the GPU that a target describes."""
    if target.kind.name == "llvm":
        return cpu_of(target)
    return ANY_CPU if "cpu" in target.keys or target.kind.name == "c" else card_of(target)


def cpu_of(target: Target) -> Cpu:
    """The CPU of an LLVM target; vectors of 128 bits where its features say nothing."""
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    name, cores = str(target.attrs.get("mcpu", "")), int(target.attrs.get("num-cores", 0) or 0) or 1
    memory = CACHES.get(name, {})
    if "avx512f" in features:
        return Cpu(name, cores, _AVX512, 32, **memory)
    if "avx" in features:
        return Cpu(name, cores, _AVX, 16, **memory)
    arm = any(feature in features for feature in ("neon", "sve"))
    return Cpu(name, cores, _SHORT, 32 if arm else 16, **memory)


def card_of(target: Target) -> Gpu:
    """The GPU of a target: the card that its `model` names, or the first of its architecture, or any of its kind.

    A target may restrict the threads of a block, and the shared memory that one declares. A card without a row of its
    own is asked for its processors where it is the one of this machine. Its rates may be measured ones.
    """
    arch, model = _named(target, "arch") or _named(target, "mcpu"), _named(target, "model")
    known = [card for card in cards.CARDS if card.arch == arch]
    unknown = dataclasses.replace(cards.UNKNOWN.get(target.kind.name, cards.ANY_GPU), arch=arch)
    card = next((card for card in known if card.name == model), known[0] if known else unknown)
    if model not in ("", card.name):
        card = _as_reported(card, target.kind.name, model)
    return dataclasses.replace(
        card,
        rates=measured_rates(card.name) or card.rates,
        warp=int(target.attrs.get("thread_warp_size", 0) or card.warp),
        max_threads=int(target.attrs.get("max_num_threads", 0) or card.max_threads),
        static_shared_bytes=min(
            card.static_shared_bytes,
            int(target.attrs.get("max_shared_memory_per_block", 0) or card.static_shared_bytes),
        ),
    )


def _named(target: Target, attribute: str) -> str:
    return str(target.attrs.get(attribute, "") or "")


def _as_reported(card: Gpu, kind: str, model: str) -> Gpu:
    """A card with what the driver says of the GPU of that name; as it was where this machine has none."""
    device = tvm.device(kind, 0)
    if not device.exist or str(device.device_name) != model:
        return card
    return dataclasses.replace(
        card,
        name=model,
        processors=int(device.multi_processor_count),
        l2_bytes=int(device.l2_cache_size_bytes or card.l2_bytes),
    )


_KIB = 1024

CACHES: Mapping[str, dict[str, Any]] = {
    "znver4": {
        "l1_bytes": 32 * _KIB,
        "l2_bytes": 1024 * _KIB,
        "levels": ((1e6, 128.0), (32e6, 60.0), (math.inf, 20.0)),
    },
}
"""The table of CPUs by the names that LLVM has for them, with what a core has of memory, see `Cpu`.

Of Zen 4, the third level is that of eight cores; sums over 8 and 32 MiB read 60 and 24 bytes a ns (measured)."""
