"""A sharded function on the ranks of a group: what each rank has, and the steps that exchanges are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from tvm import tirx

from tvm_cascade.chunks.part import offset_of
from tvm_cascade.chunks.state import COUNTS, StatePart
from tvm_cascade.distributed.order import Share, size_of
from tvm_cascade.distributed.parts import Parts, parts_of
from tvm_cascade.distributed.pull import Gather, Memory, Pull, bytes_of, is_worthwhile, starts_of
from tvm_cascade.distributed.sharding import Along, Chunked, Sharding
from tvm_cascade.distributed.transport import Cut, Transport, pieces

Tensors = Mapping[str, torch.Tensor]
Values = Mapping[str, torch.Tensor | int]
"""Arguments by name."""

Call = Callable[[tirx.PrimFunc, Values], None]
"""Runs a function."""

Flags = list[torch.Tensor]
"""Not 0 where a result may not be used."""

State = list[torch.Tensor]
"""The buffers of a state, in the order of `Split.state`."""


@dataclass(frozen=True)
class Ranks:
    """A sharded function on the ranks of a group.

    Attributes
    ----------
    axis, rows : what each rank has of them; of rows that are not sharded nothing.
    memory : makes memory of so many bytes that all ranks read; None where they cannot.
    """

    sharding: Sharding
    transport: Transport
    axis: tuple[Share, ...]
    rows: tuple[Share, ...]
    memory: Callable[[int], Memory] | None = None

    def shares(self, along: Along) -> tuple[Share, ...]:
        """What each rank has of an axis."""
        return self.axis if along.name == self.sharding.axis.name else self.rows

    def own(self, along: Along) -> Share:
        """What this rank has of an axis."""
        return self.shares(along)[self.transport.rank]

    def bytes_along(self, along: Along) -> int:
        """Of all inputs of which ranks have shares of an axis, together."""
        sharding = self.sharding
        return sum(one.size or 0 for one in sharding.inputs if sharding.cut_along(one) is along)

    @property
    def others(self) -> float:
        """The share of what ranks have together that other ranks have."""
        return (self.transport.ranks - 1) / self.transport.ranks

    # Functions: over parts of rows, and over parts of the axis.

    @property
    def merge(self) -> tirx.PrimFunc:
        """From the states of all ranks to results."""
        return self.sharding.chunked.merge(self.transport.ranks)

    def over_rows(self, func: tirx.PrimFunc) -> Iterator[tirx.PrimFunc]:
        """A function over each length of rows that a rank has; itself where rows are not sharded."""
        rows = self.sharding.rows
        if rows is None:
            yield func
        else:
            yield from (self.sharding.over(func, rows, length) for length in lengths_of(self.rows))

    def over_spans(
        self, func: tirx.PrimFunc, along: Along | None, given: Values, share: Share | None = None
    ) -> Iterator[tuple[tirx.PrimFunc, Values]]:
        """A function over each span of a share of an axis, and its arguments; itself along no axis.

        Parameters
        ----------
        given : of what runs along the axis, the share.
        share : that of this rank by default.
        """
        if along is None:
            yield func, given
            return
        share, dimensions = share or self.own(along), self.sharding.dimensions(func, along)
        cut = {name: pieces(given[name], d, share) for name, d in dimensions.items() if name in given}
        for k, span in enumerate(share):
            if span.length:
                own = {name: several[k] for name, several in cut.items()}
                part = self.sharding.over(func, along, span.length)
                yield part, {**given, **own, offset_of(along.name): span.start}

    # Tensors: whole ones, and states.

    def whole(self, given: Tensors, along: Along) -> dict[str, torch.Tensor]:
        """The inputs of which ranks have shares of an axis, whole."""
        (found,) = self.brought(given, along)
        return found

    def brought(self, given: Tensors, along: Along, parts: Parts | None = None) -> Iterator[dict[str, torch.Tensor]]:
        """The same, once for each part of a loop: after it, what the part reads is there."""
        cuts, key = self.cuts(along), (along.name, parts is None)
        if key not in self._pulls:
            self._pulls[key] = self._pull(cuts, parts) if self.pulls(along) else None
        if (pull := self._pulls[key]) is None:
            found = self.transport.whole([replace(cut, tensor=given[name]) for name, cut in cuts.items()])
            yield dict(zip(cuts, found, strict=True))
        else:
            yield from (dict(zip(cuts, whole, strict=True)) for whole in pull.brought([given[name] for name in cuts]))

    def cuts(self, along: Along) -> dict[str, Cut]:
        """The inputs of which ranks have shares of an axis, without their elements."""
        if along.name not in self._cuts:
            cut = [one for one in self.sharding.inputs if self.sharding.cut_along(one) is along]
            like = {one.name: torch.empty(one.shape, dtype=getattr(torch, one.dtype), device="meta") for one in cut}
            shares = self.shares(along)
            self._cuts[along.name] = {name: Cut(one, along.dimensions[name], shares) for name, one in like.items()}
        return self._cuts[along.name]

    def pulls(self, along: Along) -> bool:
        """Whether ranks read these inputs from each other's memory: where that takes longer than to start it."""
        link, cuts = self.transport.link, [*self.cuts(along).values()]
        is_long = self.bytes_along(along) * self.others > 2 * link.seconds * link.bytes_per_second
        return self.memory is not None and is_long and is_worthwhile(cuts)

    def _pull(self, cuts: Mapping[str, Cut], parts: Parts | None) -> Pull:
        assert self.memory is not None
        own, spans = tuple(cuts.values()), 1 if parts is None else len(parts.spans)
        reads = [tuple({} if parts is None else parts.reads[name][k] for name in cuts) for k in range(spans)]
        return Pull(self.memory(starts_of(map(bytes_of, own))[-1]), self.transport.rank, own, tuple(reads))

    @cached_property
    def parts(self) -> Parts | None:
        """The parts of a loop that run while inputs along the axis come."""
        axis = self.sharding.axis
        return parts_of(self.sharding) if self.pulls(axis) else None

    @cached_property
    def _cuts(self) -> dict[str, dict[str, Cut]]:
        return {}

    @cached_property
    def _pulls(self) -> dict[tuple[str, bool], Pull | None]:
        return {}

    def states(self, given: Values, call: Call) -> State:
        """The states of all ranks, each buffer along a new first dimension."""
        chunked, share, gather = self.sharding.chunked, self.own(self.sharding.axis), self._gather
        state = self.state(chunked, given, share, call, None if gather is None else gather.own)
        return self.transport.gathered_together(state) if gather is None else gather.all()

    @cached_property
    def _gather(self) -> Gather | None:
        parts = self.sharding.chunked.state
        like = tuple((tuple(map(int, part.shape)), getattr(torch, part.dtype)) for part in parts)
        return None if self.memory is None else Gather(self.memory, self.transport.rank, self.transport.ranks, like)

    def state(self, chunked: Chunked, given: Values, share: Share, call: Call, room: State | None = None) -> State:
        """The state of a share of the axis.

        Parameters
        ----------
        given : of what runs along the axis, the share.
        room : for the state; new buffers by default.
        """
        like = next(one for one in given.values() if isinstance(one, torch.Tensor))
        cut = {name: pieces(given[name], d, share) for name, d in chunked.along.items()}
        found, states = room or empty(chunked.state, like), list[State]()
        is_one = sum(span.length > 0 for span in share) == 1
        for k, span in enumerate(share):
            if span.length:
                own = {name: several[k] for name, several in cut.items()}
                states.append(found if is_one else empty(chunked.state, like))
                left = named(chunked.state, states[-1])
                call(chunked.partial(span.length), {**given, **own, "offset": span.start, **left})
        if is_one:
            return found
        if not states:
            return [one.fill_(part.identity) for part, one in zip(chunked.state, found, strict=True)]
        together = [torch.stack(one) for one in zip(*states, strict=True)]
        count = like.new_empty([1], dtype=getattr(torch, COUNTS))
        left = {**named(chunked.state, found), "count": count}
        merged = stacked(chunked, together, [span.length for span in share])
        call(chunked.combine(len(states)), {**given, **merged, **left})
        return found

    def finished(self, calls: Iterable[tuple[tirx.PrimFunc, Values]], call: Call) -> Flags:
        """Runs functions that merge states; what they say of results that may not be used."""
        flags: Flags = []
        for func, arguments in calls:
            like = next(one for one in arguments.values() if isinstance(one, torch.Tensor))
            told = {
                param.name: like.new_empty([int(extent) for extent in param.ty.shape], dtype=torch.int32)
                for param in func.params
                if param.name not in arguments and tirx.is_buffer_var(param)
            }
            call(func, {**arguments, **told})
            flags += told.values()
        return flags

    @property
    def counts(self) -> list[int]:
        """Positions of each rank's share of the axis."""
        return [size_of(share) for share in self.axis]


def lengths_of(shares: Sequence[Share]) -> list[int]:
    """The lengths of spans that are not empty, on any rank."""
    return sorted({span.length for share in shares for span in share if span.length})


def empty(parts: Sequence[StatePart], like: torch.Tensor) -> State:
    """Buffers for a state."""
    shapes = [[int(extent) for extent in part.shape] for part in parts]
    return [like.new_empty(shape, dtype=getattr(torch, part.dtype)) for part, shape in zip(parts, shapes, strict=True)]


def named(parts: Sequence[StatePart], state: State) -> dict[str, torch.Tensor]:
    return {part.name: one for part, one in zip(parts, state, strict=True)}


def stacked(chunked: Chunked, states: State, counts: Sequence[int]) -> dict[str, torch.Tensor]:
    """The arguments of merging functions, of states that are one after another."""
    found = {f"{part.name}s": one for part, one in zip(chunked.state, states, strict=True)}
    return {**found, "counts": _counts(tuple(counts), states[0].device)}


@cache
def _counts(counts: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Made once, since a CUDA graph cannot record a copy from the host's memory."""
    return torch.tensor(counts, dtype=getattr(torch, COUNTS), device=device)
