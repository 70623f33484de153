"""What a converted operator must give: the values that PyTorch gives, on data made up for its arguments.

Each use of an operator that differs from the others in shapes, dtypes or numbers is run once, on the CPU and by itself,
when a model is compiled. Left out are uses that are too large to be run in passing (`MOST_ELEMENTS`, `MOST_PRODUCTS`),
and those that take none of the made-up data. Extents that may change are those of the example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import tvm
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree
from tvm import relax
from tvm.target import Target

from tvm_cascade.evaluate.tolerance import Comparison, check
from tvm_cascade.relax.pipeline import unfused
from tvm_cascade.torch.constants import LITERALS
from tvm_cascade.torch.degenerate import has_nothing
from tvm_cascade.torch.precision import PRODUCTS
from tvm_cascade.torch.site import ConversionError, Site, dtype_name, hinted, origin, told
from tvm_cascade.torch.tensors import to_torch, to_tvm

MOST_ELEMENTS = 1 << 19
"""Of arguments and results of an operator that is compared."""

MOST_PRODUCTS = 1 << 26
"""Of multiplications of an operator that is compared."""

_OF_NO_VALUE = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
"""Operators that promise nothing of their results."""

_AMONG_EQUALS = ("topk", "sort", "median", "mode", "kthvalue")
"""Operators that give values and their positions, and of equal values the position of any."""

_UP_TO = {"_grouped_mm": "offs"}
"""Operators that promise nothing of rows from the last of some numbers on, and the argument that has these."""

_ASCENDING = {"bucketize": "boundaries"}
"""Operators that take for granted that an argument ascends."""

_FIRST_INTEGERS = (0, 1)
"""What integers are counted from; in the second try there is no 0, which nothing can be divided by."""

UNFIT = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError)
"""What PyTorch raises at data that an operator does not take."""

Translate = Callable[[Callable[..., Any], Sequence[Any]], tuple[tvm.IRModule, Sequence[int]]]
"""The module of a function, of fake tensors that it is traced on, and which of these its `main` takes."""


@dataclass(frozen=True)
class Trial:
    """A use of an operator on made-up data.

    Attributes
    ----------
    node : the use.
    arguments : args and kwargs: tensors of the CPU, constants, and nodes that stand for a filled tensor.
    expected : what PyTorch gives, a tensor or several.
    """

    node: fx.Node
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    expected: Any

    @property
    def name(self) -> str:
        return str(self.node.target._schema.name.removeprefix("aten::"))

    def given(self, name: str) -> Any:
        """The argument of that name in the operator's schema."""
        args, kwargs = self.arguments
        place = [one.name for one in self.node.target._schema.arguments].index(name)
        return args[place] if place < len(args) else kwargs.get(name)

    def results(self) -> list[int | None]:
        """The numbers of the results that the graph uses; None of an only one."""
        if isinstance(self.expected, torch.Tensor):
            return [None]
        return [*sorted({int(user.args[1]) for user in self.node.users})]

    def call(self, change: Callable[[Any], Any] = lambda one: one) -> Any:
        """What PyTorch gives for the arguments with a change made to each leaf of them."""
        args, kwargs = map_aggregate(self.arguments, lambda one: change(_evaluated(one)))
        with torch.no_grad():
            return self.node.target(*args, **kwargs)


def compared(graph: fx.Graph, translate: Translate) -> None:
    """Refuse a graph in which a converted operator gives other values than PyTorch.

    Parameters
    ----------
    translate : the conversion of a function, whose operators are taken as they are.

    Raises
    ------
    ConversionError
        Where one does, or cannot be run; it names the operator.
    """
    trials = list(_trials(graph))
    try:
        found = _run(trials, translate)
    except Exception:  # raised again, with the operator that it comes from where one by itself tells
        for trial in trials:
            try:
                _run([trial], translate)
            except Exception as error:
                expected = f"a use of {trial.node.target} that TVM generates code for"
                raise ConversionError([trial.node.target], expected, told(error), origin(trial.node)) from error
        raise
    for trial, results in zip(trials, found, strict=True):
        for number, result in zip(trial.results(), results, strict=True):
            if not (outcome := _judged(trial, number, result)).ok:
                hint = "this is a fault of the conversion: please report the operator"
                where = f"result {number or 0} of {trial.node.target}, {origin(trial.node)}"
                raise ConversionError(
                    [trial.node.target], "the values that PyTorch gives", outcome.message, where, hint
                )


def _trials(graph: fx.Graph) -> Iterator[Trial]:
    """A trial of each use that differs from those before it."""
    seen = set[str]()
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not node.users or has_nothing(node) or schema.name.removeprefix("aten::") in _OF_NO_VALUE:
            continue
        key = str((node.target, map_aggregate((node.args, node.kwargs), _kind)))
        if key not in seen and (trial := _trial(node)) is not None:
            yield trial
        seen.add(key)


def _kind(argument: Any) -> Any:
    """An argument, as far as conversions can tell it from others."""
    if not isinstance(argument, fx.Node):
        return argument
    if _is_filled(argument):
        return argument.target, argument.args, argument.kwargs
    value = argument.meta.get("val")
    return (value.dtype, tuple(value.shape), value.stride()) if isinstance(value, torch.Tensor) else value


def _is_filled(node: object) -> bool:
    return isinstance(node, fx.Node) and getattr(node.target, "__name__", "") in LITERALS and not node.all_input_nodes


def _evaluated(argument: Any) -> Any:
    if isinstance(argument, fx.Node):
        return argument.target(*argument.args, **{**argument.kwargs, "device": None})
    return argument


def _trial(node: fx.Node) -> Trial | None:
    """A trial on the first data that PyTorch takes; None where it takes none, or the use is too large."""
    used = [one.meta.get("val") for one in (*_nodes(node.args), node)]
    tensors = [one for one in pytree.tree_leaves(used) if isinstance(one, torch.Tensor)]
    sizes = sorted(math.prod(map(hinted, one.shape)) for one in tensors)
    if sum(sizes) > MOST_ELEMENTS or any(one.is_complex() or one.is_sparse for one in tensors):
        return None
    if node.target._schema.name.removeprefix("aten::") in PRODUCTS and math.prod(sizes[-3:]) > MOST_PRODUCTS**2:
        return None  # the root is the number of products, or near it
    for first in _FIRST_INTEGERS:
        made: dict[fx.Node, Any] = {}
        arguments = map_aggregate((node.args, node.kwargs), lambda one, first=first, made=made: _made(one, first, made))
        trial = Trial(node, arguments, None)
        try:
            if (name := _ASCENDING.get(trial.name)) is not None:
                trial.given(name).copy_(trial.given(name).sort(-1)[0])
            expected = trial.call()
        except UNFIT:
            continue
        return Trial(node, arguments, expected) if _agree(expected, node.meta.get("val")) else None
    return None


def _nodes(arguments: Any) -> list[fx.Node]:
    """The nodes in arguments, one that is twice an argument twice."""
    return [one for one in pytree.tree_leaves(arguments) if isinstance(one, fx.Node)]


def _made(argument: Any, first: int, made: dict[fx.Node, Any]) -> Any:
    """An argument of a trial; a node that is twice an argument is one tensor."""
    if isinstance(argument, torch.device):
        return torch.device("cpu")
    if not isinstance(argument, fx.Node) or _is_filled(argument):
        return argument
    if argument not in made:
        value = argument.meta.get("val")
        numbers = {torch.SymInt: hinted, torch.SymFloat: lambda _: 1.5, torch.SymBool: bool}
        make = numbers.get(type(value), lambda value: data_like(value, first, len(made)))
        made[argument] = make(value)
    return made[argument]


def data_like(value: torch.Tensor, first: int, seed: int) -> torch.Tensor:
    """Data of a tensor's kind: normal floats; integers that are positions of any axis, no two along an axis alike.

    Along axes that have no stride elements are the same.
    """
    extents, stride = tuple(map(hinted, value.shape)), tuple(map(hinted, value.stride()))
    shape = tuple(extent if step else min(extent, 1) for extent, step in zip(extents, stride, strict=True))
    generator = torch.Generator().manual_seed(seed)
    if value.is_floating_point():
        data = torch.randn(shape, generator=generator).to(value.dtype)
    elif value.dtype == torch.bool:
        data = torch.rand(shape, generator=generator) < 0.5
    else:
        places = [torch.arange(n).view(-1, *[1] * (len(shape) - k - 1)) for k, n in enumerate(shape)]
        data = ((torch.zeros(shape) + sum(places)) % max(min(extents, default=1), 1) + first).to(value.dtype)
    data = data if 0 in stride else torch.empty_strided(shape, stride, dtype=value.dtype).copy_(data)
    return data.expand(extents)


def _agree(expected: Any, value: Any) -> bool:
    """Whether what PyTorch gives on a CPU is tensors, and of the dtypes and shapes that it gives in the graph."""
    found, wanted = pytree.tree_leaves(expected), pytree.tree_leaves(value)
    kinds = [
        [(one.dtype, tuple(map(hinted, one.shape))) for one in tensors if isinstance(one, torch.Tensor)]
        for tensors in (found, wanted)
    ]
    return bool(found) and len(kinds[0]) == len(found) == len(wanted) and kinds[0] == kinds[1]


def _run(trials: Sequence[Trial], translate: Translate) -> list[list[torch.Tensor]]:
    """The results of the converted operators, per trial."""
    if not trials:
        return []
    leaves = [one for trial in trials for one in pytree.tree_leaves(trial.arguments) if isinstance(one, torch.Tensor)]
    places, numbers = {id(one): place for place, one in enumerate(leaves)}, [trial.results() for trial in trials]

    def uses(*given: torch.Tensor) -> list[torch.Tensor]:
        found = (one.call(lambda leaf: given[places[id(leaf)]] if id(leaf) in places else leaf) for one in trials)
        return [one if k is None else one[k] for own, one in zip(numbers, found, strict=True) for k in own]

    mode, device = FakeTensorMode(), tvm.cpu()
    module, taken = translate(uses, [mode.from_tensor(one) for one in leaves])
    executable = unfused(module, Target({"kind": "llvm", "opt-level": 0}))
    function = relax.VirtualMachine(executable, device)["main"]
    found = iter([to_torch(one) for one in function(*(to_tvm(leaves[place], device) for place in taken))])
    return [[next(found) for _ in own] for own in numbers]


def _judged(trial: Trial, number: int | None, found: torch.Tensor) -> Comparison:
    """How a result compares by the rule for right results; with float64 where PyTorch computes in it."""
    expected = trial.expected if number is None else trial.expected[number]
    promised = _promised(trial)
    found, expected = found[promised], expected[promised]
    are_positions = number == 1 and trial.name in _AMONG_EQUALS
    if are_positions:
        found, expected = (_values_at(trial, positions) for positions in (found, expected))
    tensors = [one for one in (*pytree.tree_leaves(trial.arguments), expected) if isinstance(one, torch.Tensor)]
    length = max(one.numel() for one in tensors)
    dtype = dtype_name(expected.dtype)
    outcome = check(found.double(), expected.double(), length=length, dtype=dtype)
    if outcome.ok or are_positions or not expected.is_floating_point():
        return outcome
    try:
        exact = trial.call(_in_float64)
    except UNFIT:
        return outcome
    exact = (exact if number is None else exact[number])[promised]
    return check(found.double(), exact.double(), expected.double(), length=length, dtype=dtype)


def _promised(trial: Trial) -> Any:
    """The part of a result that an operator promises."""
    name = _UP_TO.get(trial.name)
    ends = None if name is None else trial.given(name)
    return ... if ends is None else slice(int(ends[-1]))


def _values_at(trial: Trial, positions: torch.Tensor) -> torch.Tensor:
    """What stands at positions along the axis of an operator; the positions themselves where some are out of range."""
    data, dim = trial.arguments[0][0], Site(trial.node, None).given("dim")
    if isinstance(data, fx.Node):  # filled with one number
        data = torch.zeros(tuple(map(hinted, data.meta["val"].shape)))
    if not data.dim() or not ((positions >= 0) & (positions < data.shape[dim])).all():
        return positions
    whole = positions if positions.dim() == data.dim() else positions.unsqueeze(dim)
    return data.gather(dim, whole)


def _in_float64(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor) and argument.is_floating_point():
        return argument.double()
    return torch.float64 if isinstance(argument, torch.dtype) and argument.is_floating_point else argument
