"""Where states are kept, and how threads meet: no two registers have one place, no two uses one named barrier."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tvm import tirx

from corpus.programs.normalisation import Normed
from tvm_cascade.tile.hopper import barrier
from tvm_cascade.tile.hopper.barrier import NamedBarriers
from tvm_cascade.tile.merge.grid import GridStates, PieceStates
from tvm_cascade.tile.merge.places import FOUR, SPAN, Slots
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.tile.skeletons.stream.skeleton import HalvesSkeleton
from tvm_cascade.tile.state import PartForm

from . import checked, test_fixups, test_folded_products, test_halves, test_products, test_prologues
from .test_compiled_kernels import KERNELS

FORMS = {
    "scalars": [PartForm("float32"), PartForm("int32")],
    "a vector between": [PartForm("float32"), PartForm("float32", 2 * SPAN), PartForm("int32")],
    "vectors of two widths": [PartForm("float32", SPAN), PartForm("float32", 3 * SPAN), PartForm("int32")],
}
SET = 3
"""Of a launch: others have the memory before and after."""


def at(index: Any) -> int:
    return int(index) if isinstance(index, int) else int(index.value)


def constant(value: int) -> Any:
    return tirx.const(value, "int32")


def slot_places(form: list[PartForm]) -> Iterator[tuple[Any, int]]:
    slots = Slots(form, 5, lambda elements, dtype: elements)
    for slot in range(5):
        for k, part in enumerate(form):
            for number in range(part.width):
                yield (k, at(slots.place(part, slot, number))), slots.arrays[k]


def grid_places(form: list[PartForm]) -> Iterator[tuple[Any, int]]:
    states = GridStates("k", 3, 4, form)
    states.set = constant(SET)
    words = 3 * 4 * sum(part.width for part in form)
    for segment in range(3):
        for row in range(4):
            for k, part in enumerate(form):
                for number in range(part.width):
                    yield at(states._index(constant(segment), constant(row), k, number)) - SET * words, words


def piece_places(form: list[PartForm]) -> Iterator[tuple[Any, int]]:
    """Of two groups, which have slots of their own."""
    slots, rows = 6, 7
    for group in range(2):
        states = PieceStates("k", slots, 3, rows, form, groups=2, group=group)
        states.set = constant(SET)
        words = 2 * slots * (-(-sum(part.width for part in form) * rows // FOUR) * FOUR)
        for slot in range(slots):
            for row in range(rows):
                for k, part in enumerate(form):
                    if part.width == 1:
                        yield at(states._index(constant(slot), k, constant(row))) - SET * words, words
                        continue
                    for span in range(part.width // SPAN):
                        for lane in range(SPAN // FOUR):
                            first = at(states._index(constant(slot), k, constant(row), span, lane)) - SET * words
                            assert first % FOUR == 0, "four are stored at once"
                            yield from ((first + e, words) for e in range(FOUR))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("places", [slot_places, grid_places, piece_places])
def test_every_register_of_every_state_has_a_place_of_its_own(places: Any, form: str) -> None:
    found = list(places(FORMS[form]))
    assert len({place for place, _ in found}) == len(found)
    assert all(0 <= (place if isinstance(place, int) else place[-1]) < end for place, end in found)


def attention_of(name: str) -> Kernel:
    make, config = KERNELS[name]
    return checked.kernel_of(make(), config)


def product_of(name: str) -> Kernel:
    case, config, _ = test_products.COMPILED[name]
    return test_products.kernel_of(case.build(), config, narrow_sums=True)


def folded_of(config: Any) -> Kernel:
    fold = next(iter(test_folded_products.FOLDS.values()))[0]
    return test_folded_products.kernel_of(fold(130, 44, 128), config)


def halves_of(name: str) -> Kernel:
    case, cut = test_halves.CASES[name]
    return checked.kernel_of(case.build(), cut, skeleton=HalvesSkeleton())


KINDS = {
    "attention in turns": lambda: attention_of("128"),
    "pieces of short pages": lambda: test_fixups.CASES["all warps of the producer copy rows"]()[0],
    "halves with pieces": lambda: halves_of("pieces that do not"),
    "halves that vote": lambda: halves_of("row tiles and requests for one block in turn"),
    "parts of a product": lambda: product_of("split"),
    "rows on chip": lambda: folded_of(test_folded_products.rows(48, 2, tile_rows=128, sharing=4)),
    "stretches": lambda: folded_of(test_folded_products.stretches(32, 2)),
    "a product behind a norm": lambda: test_prologues.kernel_of(
        test_prologues.linear(Normed(gated=True)), test_prologues.SMALL
    ),
}


def named_barriers(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, range], set[int]]:
    """What uses have taken while a kernel is emitted, and the numbers from which on its text has barriers."""
    taken: dict[str, range] = {}
    take = NamedBarriers.take

    def recorded(self: NamedBarriers, use: str, count: int = 1) -> barrier.NamedBarrier:
        found = take(self, use, count)
        taken.update(self.taken)
        return found

    monkeypatch.setattr(NamedBarriers, "take", recorded)
    calls = re.findall(r"T\.ptx\.bar\w*\((.*)", kernel.func.script())
    numbers = {int(n) for call in calls for n in re.findall(r"T\.(?:uint32\(|Cast\(\"uint32\", .*?)(\d+)", call)[:1]}
    return taken, numbers


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_uses_of_a_kernel_have_a_named_barrier_in_common(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that its text names are some use's."""
    taken, numbers = named_barriers(KINDS[kind](), monkeypatch)
    every = [number for own in taken.values() for number in own]
    assert numbers and numbers <= set(every)
    assert len(set(every)) == len(every) and all(0 < number < 16 for number in every)
