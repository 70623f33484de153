"""Exchanges: what ranks send each other so that a fold over a sharded axis is whole.

| exchange | what moves                                           | what each rank computes                      |
|----------|------------------------------------------------------|----------------------------------------------|
| inputs   | inputs along the axis, to all ranks                  | its rows over the whole axis                 |
| states   | states of all rows, to all ranks                     | all rows over its share, and all merges      |
| rows     | inputs of rows to all ranks, states to the row's own | all rows over its share, merges of its rows  |
| ring     | inputs along the axis, from rank to rank             | its rows over one share after another        |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import torch
from tvm import tirx

from tvm_cascade.chunks.state import StatePart
from tvm_cascade.distributed.order import Share, size_of
from tvm_cascade.distributed.ranks import Call, Flags, Ranks, State, Tensors, Values, lengths_of, stacked
from tvm_cascade.distributed.sharding import Along, Chunked, in_chunks
from tvm_cascade.distributed.transport import Copies, copy, laid_out, pieces, resized


class Exchange(Protocol):
    """One of the table's.

    Attributes
    ----------
    name : as users ask for it.
    of_rows : whether it is for rows that are sharded; None where it is for both.
    merges : whether results are merged of states: what a guard rejects cannot be reduced again as it was written.
    bytes : that a rank receives.
    steps : collectives, one after another.
    again : the share of the whole work that a rank does, over its own.
    """

    name: ClassVar[str]
    of_rows: ClassVar[bool | None]
    merges: ClassVar[bool]

    def __init__(self, ranks: Ranks) -> None: ...

    @property
    def bytes(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def again(self) -> int: ...

    def functions(self) -> Iterator[tirx.PrimFunc]:
        """All that any rank calls, in an order that ranks agree on."""

    def run(self, given: Tensors, call: Call) -> Flags:
        """Fills the outputs among the tensors of this rank; tells which may not be used."""


@dataclass(frozen=True)
class GatherInputs:
    """Every rank gets the whole axis, and folds its own rows."""

    ranks: Ranks
    name: ClassVar[str] = "inputs"
    of_rows: ClassVar[bool | None] = None
    merges: ClassVar[bool] = False
    steps: ClassVar[int] = 1

    @property
    def bytes(self) -> int:
        return int(self.ranks.bytes_along(self.ranks.sharding.axis) * self.ranks.others)

    @property
    def again(self) -> int:
        return 1 if self.ranks.sharding.rows else self.ranks.transport.ranks

    def functions(self) -> Iterator[tirx.PrimFunc]:
        parts = self.ranks.parts
        for func in self.ranks.over_rows(self.ranks.sharding.func):
            if parts is None:
                yield func
            else:
                yield from (self.ranks.sharding.over(func, parts.along, n) for n in lengths_of([parts.spans]))

    def run(self, given: Tensors, call: Call) -> Flags:
        sharding, axis, parts = self.ranks.sharding, self.ranks.sharding.axis, self.ranks.parts
        values: dict[str, torch.Tensor] = {**given}
        cut = {one.name: axis.dimensions[one.name] for one in sharding.outputs if sharding.cut_along(one) is axis}
        for name, d in cut.items():
            values[name] = resized(given[name], d, axis.length)
        brought = self.ranks.brought(given, axis, parts)
        spans, back = self._spans({**values, **next(brought)})
        for k in range(1 if parts is None else len(parts.spans)):
            for func, own in spans:
                parted = [(func, own)] if parts is None else self.ranks.over_spans(func, parts.along, own, parts.spans)
                call(*[*parted][k])
            next(brought, None)
        for to, result in back:
            copy(to, result)
        for name, d in cut.items():
            share = self.ranks.own(axis)
            for span, piece in zip(share, pieces(given[name], d, share), strict=True):
                copy(piece, values[name].narrow(d, span.start, span.length))
        return []

    def _spans(self, values: Values) -> tuple[list[tuple[tirx.PrimFunc, Values]], Copies]:
        """The function over each span of this rank's rows, and what of its results is then copied where."""
        sharding, found, back = self.ranks.sharding, list[tuple[tirx.PrimFunc, Values]](), Copies()
        written = {one.name for one in sharding.outputs}
        for func, arguments in self.ranks.over_spans(sharding.func, sharding.rows, values):
            own, results = laid_out(arguments, written)
            found.append((func, own))
            back += results
        return found, back


@dataclass(frozen=True)
class GatherStates:
    """Every rank folds its share of the axis, gets the states of all, and merges them: the same bits everywhere."""

    ranks: Ranks
    name: ClassVar[str] = "states"
    of_rows: ClassVar[bool | None] = False
    merges: ClassVar[bool] = True
    steps: ClassVar[int] = 1
    again: ClassVar[int] = 1

    @property
    def bytes(self) -> int:
        return self.ranks.sharding.chunked.bytes * (self.ranks.transport.ranks - 1)

    @property
    def _along(self) -> Along | None:
        """The axis, where some output runs along it."""
        axis = self.ranks.sharding.axis
        return axis if any(one.name in axis.dimensions for one in self.ranks.sharding.outputs) else None

    def functions(self) -> Iterator[tirx.PrimFunc]:
        yield from partial_functions(self.ranks, self.ranks.sharding.chunked)
        merge, along = self.ranks.merge, self._along
        if along is None:
            yield merge
        else:
            yield from (self.ranks.sharding.over(merge, along, length) for length in lengths_of(self.ranks.axis))

    def run(self, given: Tensors, call: Call) -> Flags:
        ranks, chunked = self.ranks, self.ranks.sharding.chunked
        values = {**given, **stacked(chunked, ranks.states(given, call), ranks.counts)}
        return ranks.finished(ranks.over_spans(ranks.merge, self._along, values), call)


@dataclass(frozen=True)
class ExchangeStates:
    """Every rank folds all rows over its share of the axis, and gets the states of its own rows from all others."""

    ranks: Ranks
    name: ClassVar[str] = "rows"
    of_rows: ClassVar[bool | None] = True
    merges: ClassVar[bool] = True
    steps: ClassVar[int] = 2
    again: ClassVar[int] = 1

    @property
    def _rows(self) -> Along:
        rows = self.ranks.sharding.rows
        assert rows is not None
        return rows

    @property
    def bytes(self) -> int:
        cut = self._rows_of_states
        others = (part.size * (1 if name in cut else self.ranks.transport.ranks) for name, part in self._states.items())
        return int((self.ranks.bytes_along(self._rows) + sum(others)) * self.ranks.others)

    @property
    def _states(self) -> dict[str, StatePart]:
        """The buffers of a state, by their names in merging functions."""
        return {f"{part.name}s": part for part in self.ranks.sharding.chunked.state}

    @cached_property
    def _rows_of_states(self) -> Mapping[str, int]:
        """The dimension of each along the rows, after that of chunks; parts that have none go to all ranks whole."""
        return self.ranks.sharding.dimensions(self.ranks.merge, self._rows)

    def functions(self) -> Iterator[tirx.PrimFunc]:
        yield from partial_functions(self.ranks, self.ranks.sharding.chunked)
        yield from self.ranks.over_rows(self.ranks.merge)

    def run(self, given: Tensors, call: Call) -> Flags:
        ranks, axis, chunked = self.ranks, self.ranks.sharding.axis, self.ranks.sharding.chunked
        whole, share = ranks.whole(given, self._rows), ranks.own(axis)
        for name in whole.keys() & axis.dimensions.keys():  # of what runs along both, ranks have rows
            whole[name] = of_share(whole[name], axis.dimensions[name], share)
        state = ranks.state(chunked, {**given, **whole}, share, call)
        cut, parts = self._rows_of_states, list(zip(self._states, state, strict=True))
        sent = [[of_share(one, cut[name] - 1, to) if name in cut else one for name, one in parts] for to in ranks.rows]
        states = ranks.transport.exchanged(sent, sent[ranks.transport.rank])
        values = {**given, **stacked(chunked, states, ranks.counts)}
        return ranks.finished(ranks.over_spans(ranks.merge, self._rows, values), call)


@dataclass(frozen=True)
class Ring:
    """Inputs along the axis go round: each rank folds its rows over the share that it has, while the next one comes."""

    ranks: Ranks
    name: ClassVar[str] = "ring"
    of_rows: ClassVar[bool | None] = True
    merges: ClassVar[bool] = True
    again: ClassVar[int] = 1

    @property
    def steps(self) -> int:
        return self.ranks.transport.ranks - 1

    @property
    def bytes(self) -> int:
        return int(self.ranks.bytes_along(self.ranks.sharding.axis) * self.ranks.others)

    @cached_property
    def _chunked(self) -> dict[int, Chunked]:
        """The function over parts of its rows, by their length, in chunks."""
        sharding, rows = self.ranks.sharding, self.ranks.sharding.rows
        assert rows is not None
        lengths = lengths_of(self.ranks.rows)
        return {n: in_chunks(sharding.over(sharding.func, rows, n), sharding.options) for n in lengths}

    def functions(self) -> Iterator[tirx.PrimFunc]:
        for chunked in self._chunked.values():
            yield from partial_functions(self.ranks, chunked)
            yield chunked.merge(self.ranks.transport.ranks)

    def run(self, given: Tensors, call: Call) -> Flags:
        ranks, sharding, transport = self.ranks, self.ranks.sharding, self.ranks.transport
        names = [one.name for one in sharding.inputs if sharding.cut_along(one) is sharding.axis]
        dimensions = [sharding.axis.dimensions[name] for name in names]
        passing = [given[name].contiguous() for name in names]
        both = [one.name for one in sharding.inputs if one.name in sharding.axis.dimensions and one.name not in names]

        def both_of(arguments: Values, owner: int) -> Tensors:
            """What runs along rows and the axis, over the share of a rank."""
            at = sharding.axis.dimensions
            return {name: of_share(arguments[name], at[name], ranks.axis[owner]) for name in both}

        spans = list(ranks.over_spans(sharding.func, sharding.rows, given))
        lengths = [span.length for span in ranks.rows[transport.rank] if span.length]
        states: list[list[State]] = [[] for _ in spans]
        for hop in range(transport.ranks):
            owner = (transport.rank - hop) % transport.ranks
            coming, waits = passing, tuple[Any, ...]()
            if hop + 1 < transport.ranks and passing:
                share = ranks.axis[owner - 1]
                coming = [resized(one, d, size_of(share)) for one, d in zip(passing, dimensions, strict=True)]
                waits = transport.passed_on(passing, coming)
            for (_, arguments), length, found in zip(spans, lengths, states, strict=True):
                values = {**arguments, **both_of(arguments, owner), **dict(zip(names, passing, strict=True))}
                found.append(ranks.state(self._chunked[length], values, ranks.axis[owner], call))
            transport.wait(waits)
            passing = coming
        merges: list[tuple[tirx.PrimFunc, Values]] = []
        for (_, arguments), length, found in zip(spans, lengths, states, strict=True):
            chunked = self._chunked[length]
            in_order = [found[(transport.rank - owner) % transport.ranks] for owner in range(transport.ranks)]
            together = [torch.stack(one) for one in zip(*in_order, strict=True)]
            values = {**arguments, **stacked(chunked, together, ranks.counts)}
            merges.append((chunked.merge(transport.ranks), values))
        return ranks.finished(merges, call)


EXCHANGES: tuple[type[Exchange], ...] = (GatherInputs, GatherStates, ExchangeStates, Ring)


def partial_functions(ranks: Ranks, chunked: Chunked) -> Iterator[tirx.PrimFunc]:
    """All that leave the state of a share."""
    yield from (chunked.partial(length) for length in lengths_of(ranks.axis))
    yield from (chunked.combine(spans) for spans in sorted({len(share) for share in ranks.axis}) if spans > 1)


def of_share(tensor: torch.Tensor, dimension: int, share: Share) -> torch.Tensor:
    """What a share has of a whole tensor."""
    found = resized(tensor, dimension, size_of(share))
    for span, piece in zip(share, pieces(found, dimension, share), strict=True):
        copy(piece, tensor.narrow(dimension, span.start, span.length))
    return found
