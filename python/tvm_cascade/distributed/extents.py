"""A sharded function of symbolic extents: for those of a call, the function of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from tvm import tirx

from tvm_cascade.analysis.program import at_sizes
from tvm_cascade.distributed.sharded import Sharded
from tvm_cascade.distributed.transport import Transport
from tvm_cascade.driver.arguments import parameters_of
from tvm_cascade.driver.entry import bound
from tvm_cascade.errors import CascadeError, DistributedError, InputError


class _Place(NamedTuple):
    """Where an extent stands: a dimension of a parameter, and whether ranks have shares of it."""

    is_cut: bool
    parameter: int
    dimension: int


class OfExtents:
    """A sharded function of symbolic extents, on one rank: a callable on its tensors.

    Extents that some input has whole are those of that input. Of the others each call tells all ranks its own, in one
    collective of a few numbers, and the whole is the sum.

    Parameters
    ----------
    made : shards a function of numbers.
    """

    def __init__(self, func: tirx.PrimFunc, transport: Transport, made: Callable[[tirx.PrimFunc], Sharded]) -> None:
        self.func, self.transport, self._made = func, transport, made
        self._known: dict[tuple[int, ...], Sharded] = {}
        self._parameters = parameters_of(func)
        shapes = [one.shape or () for one in self._parameters]
        named = [e for shape in shapes for e in shape if isinstance(e, str) and e.isidentifier()]
        self.extents = tuple(dict.fromkeys(named))

    def at(self, **extents: int) -> Sharded:
        """The function at whole extents, by name: made, and at its first call compiled, once for each.

        Raises
        ------
        InputError
            When one is missing, is no positive integer, or is none of the function's.
        """
        if missing := [name for name in self.extents if name not in extents]:
            raise InputError(f"extents {', '.join(self.extents)}", f"none for {', '.join(missing)}", "at(…)")
        key = tuple(extents[name] for name in self.extents)
        if key not in self._known or len(extents) > len(key):
            self._known[key] = self._made(at_sizes(self.func, extents))
        return self._known[key]

    @cached_property
    def _places(self) -> dict[str, _Place]:
        """Where the inputs of a call have each extent, whole if any has it so: the same at all extents."""
        known = self.at(**{extent: 2 * self.transport.ranks * (k + 3) for k, extent in enumerate(self.extents)})
        found: dict[str, list[_Place]] = {}
        for number, one in enumerate(self._parameters):
            cut = known.cut(one.name)
            for d, extent in enumerate(one.shape or ()) if not one.written else ():
                found.setdefault(str(extent), []).append(_Place(d == cut, number, d))
        return {extent: min(found[extent]) for extent in self.extents if extent in found}

    def __call__(self, *tensors: torch.Tensor, **named: torch.Tensor) -> Any:
        """As `Sharded`, which it is at the extents of the call."""
        cut = [extent for extent, place in self._places.items() if place.is_cut]
        try:
            own = self._own(tensors, named)
        except CascadeError:
            self._told([-1] * len(cut))  # all ranks have to hear of it
            raise
        wholes = self._told([own[extent] for extent in cut])
        return self.at(**own | dict(zip(cut, wholes, strict=True)))(*tensors, **named)

    def _own(self, tensors: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]) -> dict[str, int]:
        """The extents of this rank's tensors."""
        given, found = bound("main", self._parameters, tensors, named), dict[str, int]()
        for extent, (_, number, d) in self._places.items():
            one, tensor = self._parameters[number], given[number]
            rank = len(one.shape or ())
            if not isinstance(tensor, torch.Tensor) or tensor.dim() != rank:
                text = f"{tensor.dim()}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
                raise InputError(f"a torch.Tensor of {rank} dimensions", text, f"`{one.name}`")
            found[extent] = tensor.shape[d]
        return found

    def _told(self, own: Sequence[int]) -> list[int]:
        """The sums over ranks of what each says; -1 where something is wrong on it."""
        if not own:
            return []
        said = self.transport.gathered(torch.tensor(own, device=self.transport.device))
        wrong = [rank for rank, one in enumerate(said.tolist()) if min(one) < 0]
        if wrong and min(own) >= 0:
            raise DistributedError(f"tensors of the function on all {len(said)} ranks", "others", f"rank {wrong[0]}")
        found: list[int] = said.sum(0).tolist()
        return found
