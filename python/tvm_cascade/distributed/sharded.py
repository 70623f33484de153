"""A sharded function on one rank: what it has of tensors, what is done, and why, and the call."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import tvm
from tvm import tirx

from tvm_cascade.algebra.cascade import unlike
from tvm_cascade.distributed.backward import Backward
from tvm_cascade.distributed.exchanges import Exchange, GatherInputs, of_share
from tvm_cascade.distributed.order import size_of
from tvm_cascade.distributed.ranks import Ranks, Values
from tvm_cascade.distributed.sharding import Sharding
from tvm_cascade.distributed.transport import copy, laid_out
from tvm_cascade.driver.arguments import Parameter, parameters_of
from tvm_cascade.driver.entry import bound, results_of
from tvm_cascade.errors import DistributedError, InputError
from tvm_cascade.report.group import ExchangeReport, exchanges_text
from tvm_cascade.torch.operator import Code, code_on


@dataclass(frozen=True)
class Plan:
    """An exchange, and the estimated time of what moves, and of what ranks compute more than once."""

    exchange: Exchange | Backward
    seconds: float

    def reported(self, why: str) -> ExchangeReport:
        one = self.exchange
        return ExchangeReport(one.name, one.bytes, one.steps, self.seconds, why)


@dataclass(frozen=True)
class Sharded:
    """A sharded function on one rank: a callable on its tensors.

    Attributes
    ----------
    plan : what is done.
    plans : all that could be, the one of the least time first.
    signature : its tensors, whole, and the axes along which ranks have shares of them.
    unfit : why other exchanges cannot be taken.
    """

    ranks: Ranks
    plan: Plan
    plans: tuple[Plan, ...]
    signature: Sharding | Backward
    unfit: Mapping[str, str] = field(default_factory=dict)

    @property
    def report(self) -> str:
        """What ranks have, what they send each other, and what else was considered."""
        sharding, transport = self.ranks.sharding, self.ranks.transport
        axes = [one for one in (sharding.axis, sharding.rows) if one is not None]
        lines = [f"rank {transport.rank} of {transport.ranks}"]
        for along in axes:
            spans = ", ".join(f"{span.start}:{span.start + span.length}" for span in self.ranks.own(along))
            lines.append(f"{along.name}: {spans} of {along.length}")
        return "\n".join([*lines, exchanges_text(self.exchanges)])

    @property
    def exchanges(self) -> tuple[ExchangeReport, ...]:
        """What was considered, the least time first, and what cannot be taken: as `tvm_cascade.explain` tells it."""
        found = [plan.reported(self._why(plan)) for plan in self.plans]
        return (*found, *(ExchangeReport(name, None, None, None, why) for name, why in self.unfit.items()))

    def _why(self, plan: Plan) -> str:
        least = self.plans[0]
        if plan is self.plan:
            return "taken" if plan is least else "taken as it was asked for"
        later = (plan.seconds - least.seconds) * 1e6
        return f"{later:.0f} us more than {least.exchange.name}" if plan is not least else "another was asked for"

    @property
    def module(self) -> tvm.IRModule:
        """The functions that ranks call, of which each is compiled as any other."""
        named: dict[str, tirx.PrimFunc] = {}
        for func in dict.fromkeys(self.plan.exchange.functions()):
            symbol = str(func.attrs["global_symbol"])
            name = unlike(symbol, named)
            named[name] = func.with_attr("global_symbol", name)
        return tvm.IRModule(named)

    @cached_property
    def parameters(self) -> dict[str, tuple[Parameter, ...]]:
        """What this rank's function takes, as a compiled function tells it."""
        own = (replace(one, shape=self.shape(one.name)) for one in self.signature.parameters)
        return {"main": tuple(own)}

    def whole(self, name: str) -> tuple[int, ...]:
        """Extents of a parameter's tensor on all ranks together."""
        return tuple(map(int, self._named(name).shape or ()))

    def cut(self, name: str) -> int | None:
        """The dimension of a parameter's tensor of which ranks have shares; None of one that all have."""
        along = self.signature.cut_along(self._named(name))
        return None if along is None else self.signature.dimension(name, along)

    def shape(self, name: str) -> tuple[int, ...]:
        """Extents of this rank's tensor for a parameter."""
        one, shape = self._named(name), list(self.whole(name))
        if (along := self.signature.cut_along(one)) is not None:
            shape[self.signature.dimension(name, along)] = size_of(self.ranks.own(along))
        return tuple(shape)

    def local(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The share that this rank has of a whole tensor for a parameter, as a tensor of its own."""
        along = self.signature.cut_along(self._named(name))
        return (
            tensor.clone()
            if along is None
            else of_share(tensor, self.signature.dimension(name, along), self.ranks.own(along))
        )

    def _named(self, name: str) -> Parameter:
        known = {one.name: one for one in self.signature.parameters}
        if name not in known:
            raise InputError(f"a parameter among {', '.join(known)}", repr(name), "a sharded function")
        return known[name]

    def __call__(self, *tensors: torch.Tensor, **named: torch.Tensor) -> Any:
        """Fill the outputs, on all ranks together; those that are left out are made and returned, as by a `Compiled`.

        Raises
        ------
        InputError
            When tensors are not those of this rank; at the first call, on all ranks where they are not on one.
        DistributedError
            When another rank failed, is gone, or does not come within the time limit of the group.
        """
        given, wrong = self._filled(tensors, named)
        wrong = wrong or self._wrong(given)
        if not self._ready:
            self._prepare(given, wrong)
        elif wrong is not None:
            raise wrong
        exchange = self.plan.exchange
        flags = exchange.run(given, self._call)
        if self._is_guarded and self.ranks.transport.any(any(bool(one.any()) for one in flags)):
            GatherInputs(self.ranks).run(given, self._call)
        parameters = self.signature.parameters
        if len(tensors) < len(parameters):
            return results_of(parameters, [given[one.name] for one in parameters])
        return None

    def _filled(
        self, tensors: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], InputError | None]:
        """The tensors of a call by name, outputs that it leaves out as new ones; or why they are none."""
        parameters = self.parameters["main"]
        try:
            given = bound("main", parameters, tensors, named)
        except InputError as wrong:  # which all ranks have to hear of
            return {}, wrong
        first = next((one for one in given.values() if isinstance(one, torch.Tensor)), torch.empty(0))
        for place, one in enumerate(parameters):
            if place not in given:
                given[place] = first.new_empty(one.shape, dtype=getattr(torch, one.dtype))
        return {one.name: given[place] for place, one in enumerate(parameters)}, None

    @property
    def _is_guarded(self) -> bool:
        """Whether results are merged of states that may have lost what the function as written has not.

        Where any rank sees so of one row, all fold the whole axis instead, with the guards of one rank.
        """
        return self.plan.exchange.merges and self.ranks.sharding.chunked.is_guarded

    def _wrong(self, given: Mapping[str, object]) -> InputError | None:
        """Why tensors are not those of this rank."""
        for one in self.parameters["main"]:
            tensor = given[one.name]
            if not isinstance(tensor, torch.Tensor):
                return InputError("a torch.Tensor", type(tensor).__name__, f"`{one.name}`")
            expected, found = (one.dtype, one.shape or ()), (str(tensor.dtype).split(".")[-1], tuple(tensor.shape))
            if expected != found:
                hint = f"Sharded.local({one.name!r}, tensor) takes this rank's share of a whole tensor"
                where = f"`{one.name}` on rank {self.ranks.transport.rank}"
                return InputError(f"{expected[0]}{list(expected[1])}", f"{found[0]}{list(found[1])}", where, hint)
        return None

    def _prepare(self, given: Mapping[str, torch.Tensor], wrong: InputError | None) -> None:
        """Ranks agree that all can go on; the first compiles what any of them calls before the others do."""
        transport = self.ranks.transport
        text = self.ranks.sharding.func.script()
        same = (self.plan.exchange.name, self.ranks.axis, self.ranks.rows, hashlib.sha256(text.encode()).hexdigest())
        said = transport.agree((None if wrong is None else str(wrong), same), "call a sharded function")
        self._raise(wrong, [one for one, _ in said])
        if any(other != same for _, other in said):
            raise DistributedError("one function on all ranks", "different ones", f"rank {transport.rank}")
        for turn in (transport.rank == 0, transport.rank != 0):
            failed = self._compile(next(iter(given.values())).device) if turn else None
            found = transport.agree(None if failed is None else str(failed), "compile a sharded function")
            self._raise(failed, found)
        self._ready.append(True)

    def _compile(self, device: torch.device) -> Exception | None:
        try:
            again = GatherInputs(self.ranks).functions() if self._is_guarded else ()
            for func in (*self.plan.exchange.functions(), *again):
                self._code(func, device)
        except Exception as error:  # which all ranks have to hear of
            return error
        return None

    def _raise(self, own: Exception | None, said: Sequence[str | None]) -> None:
        """Raises what is wrong on this rank, or else on another."""
        if own is not None:
            raise own
        for rank, found in enumerate(said):
            if found is not None:
                raise DistributedError(f"all {len(said)} ranks to go on", found, f"rank {rank}")

    def _code(self, func: tirx.PrimFunc, device: torch.device) -> tuple[Code, tuple[Parameter, ...]]:
        if (func, device) not in self._codes:
            code = code_on(func, device, self.ranks.sharding.options)
            self._codes[func, device] = code, parameters_of(func)
        return self._codes[func, device]

    def _call(self, func: tirx.PrimFunc, values: Values) -> None:
        device = next(one.device for one in values.values() if isinstance(one, torch.Tensor))
        code, parameters = self._code(func, device)
        given = {one.name: values[one.name] for one in parameters}
        given = {name: one.detach() if isinstance(one, torch.Tensor) else one for name, one in given.items()}
        given, back = laid_out(given, {one.name for one in parameters if one.written})
        code(*given.values())
        for to, own in back:
            copy(to, own)

    @cached_property
    def _codes(self) -> dict[tuple[tirx.PrimFunc, torch.device], tuple[Code, tuple[Parameter, ...]]]:
        return {}

    @cached_property
    def _ready(self) -> list[bool]:
        """Not empty once ranks have agreed."""
        return []
