"""FlexAttention: attention whose scores are modified and masked by functions that are part of the graph.

Both are graphs of one score: of its batch, head, query and key, and of tensors that they capture. `torch.vmap` makes
functions of all scores of them, whose operators are converted like any others; what those compute is read back element
by element, as an expression in a score, its place, and elements of what is captured:

    mask(q, k) = doc[q] == doc[k],  mod(s, h, q, k) = s + slope[h]·(k − q)
      →  score[b, h, q, k] = if doc[q] == doc[k] then s + slope[h]·(k − q) else −∞

So an attention is one function, forward and backward, and no tensor of scores is. Which tiles are masked whole is found
from the expression, and from the lists of blocks that a mask comes with: a key takes part where its block is listed.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
import tvm
import tvm_ffi
from torch import fx
from tvm import ir, relax, te, tirx

from tvm_cascade.analysis.tir import DISJUNCTIONS, conjuncts, loads_of, uses
from tvm_cascade.errors import ModelError
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.torch.attention import LOG_SUMS, Attention, adjoints, attention, group_size, scaling
from tvm_cascade.torch.elements import element_of
from tvm_cascade.torch.results import extents_of
from tvm_cascade.torch.site import Site, accumulator, broadcast, hinted, type_name
from tvm_cascade.torch.values import UNFIT, data_like


def flex_attention(site: Site) -> tuple[relax.Expr | None, ...]:
    """The result, lse = log₂ Σ exp(score) of each row, and its highest score over log 2, as far as they are read.

    Rows that are masked everywhere are 0, and both others −∞.
    """
    flex = _Flex.of(site, "score_mod")
    asked = sorted({int(user.args[1]) for user in site.node.users})

    def formula(given: list[te.Tensor], sizes: list[Any]) -> list[te.Tensor]:
        found = flex.attention(given, sizes, guarded=True)
        wide = str(found.sums.dtype)

        def of_rows(name: str, value: Callable[..., Any]) -> te.Tensor:
            def scaled(*i: Any) -> Any:
                none = tirx.const(float("-inf"), wide)
                return tirx.Select(found.sums(*i) == 0.0, none, value(*i) / _log_2(wide)).astype("float32")

            return te.compute(found.sums.shape, scaled, name=name)

        results = (found.result, of_rows("lse", found.logarithm), of_rows("highest_score", found.highest))
        return [results[k] for k in asked]

    made = site.compute(formula, [*flex.operands.values()], flex.sizes, name="attention")
    parts = [made] if len(asked) == 1 else [site.emit(relax.TupleGetItem(made, k)) for k in range(len(asked))]
    found = dict(zip(asked, parts, strict=True))
    return tuple(found.get(k) for k in range(len(site.node.meta["val"])))


def flex_attention_backward(site: Site) -> tuple[Any, ...]:
    """Adjoints of query, key and value, and a tuple of those of captured tensors, as far as they are read."""
    flex = _Flex.of(site, "fw_graph")
    read = {int(user.args[1]): user for user in site.node.users}
    further = read.pop(len(_NAMES)).users if len(_NAMES) in read else ()
    captured = sorted(int(user.args[1]) for user in further if isinstance(user.meta.get("val"), torch.Tensor))
    _check_derivative(flex, captured)
    asked = [*(_NAMES[k] for k in sorted(read)), *map(_captured, captured)]
    wide = accumulator(type_name(flex.operands["query"]))
    lse = site.compute(_natural, flex["logsumexp"], wide, name="lse")
    of_lse = flex["grad_logsumexp"]
    if of_lse is not None:
        of_lse = site.cast(site.emit(relax.op.divide(of_lse, relax.const(math.log(2.0), "float32"))), wide)
    adjoint_of = [(flex["out"], flex["grad_out"]), (None, of_lse)]

    def forward(given: Sequence[te.Tensor], sizes: Sequence[Any]) -> list[te.Tensor]:
        found = flex.attention(given, sizes, guarded=False)
        logarithms = te.compute(found.sums.shape, found.logarithm, name="logarithms")
        both = zip((found.result, logarithms), adjoint_of, strict=True)
        return [one for one, (_, adjoint) in both if adjoint is not None]

    results = [one for one in adjoint_of if one[1] is not None]
    given = flex.operands, flex.sizes
    found = dict(zip(asked, adjoints(site, forward, given, asked, {LOG_SUMS: lse}, results), strict=True))
    rest = tuple(found.get(_captured(k)) for k in range(len(site.node.meta["val"][-1])))
    return *(found.get(name) for name in _NAMES), rest


def with_lists_alone(module: fx.GraphModule) -> fx.GraphModule:
    """The graph, whose attention is given of a mask's blocks only what is read: others are made for nobody then."""
    for node in module.graph.nodes:
        if node.target in _OPERATORS:
            place = _names(node).index("block_mask")
            *blocks, queries, keys, mask = node.args[place]
            read = _lists(node.args[place])
            node.update_arg(place, (*(one if one in read else None for one in blocks), queries, keys, mask))
    return module


def _lists(given: Sequence[Any]) -> list[fx.Node]:
    """Of what a mask is given by: how many blocks of keys each block of queries has, which, and these of full blocks.

    Nothing where the only block is everything, as without blocks.
    """
    return [] if _EVERYTHING in given else [one for one in given[2:6] if one is not None]


_OF_A_KIND = 2
"""Of the lists, those of blocks that are full or of those that are not."""

_EVERYTHING = 1 << 30
"""The size of a block that holds everything."""


_SAMPLES = 4


def _check_derivative(flex: _Flex, captured: Sequence[int]) -> None:
    """Refuses a function of scores whose derivative is said to be another one, as by .detach(), at samples of it.

    Parameters
    ----------
    captured : the numbers of the tensors for which it is compared too.
    """
    scores, *rest = flex.inputs[: flex.first + 1]
    wanted = [0, *(1 + scores.dim() + k for k in captured)]
    dtype = type_name(flex.operands["query"])  # what PyTorch's graph of the derivative may round to
    for sample in range(_SAMPLES):
        score, *given = (_sample(one, sample + k) for k, one in enumerate([scores.new_empty(()), *rest]))
        places = [torch.tensor(sample % hinted(extent), device=score.device) for extent in scores.shape]
        read = [score, *(given[k] for k in captured)]
        try:
            with torch.enable_grad():
                value = flex.modification(score, *places, *given)
                exact = torch.autograd.grad(value, read, materialize_grads=True)
            with torch.no_grad():
                found = flex["joint_graph"](score, *places, torch.ones_like(score), *given)
        except UNFIT:
            continue
        for k, one in zip(wanted, exact, strict=True):
            if not (outcome := check(found[k].double().cpu(), one.double().cpu(), length=1, dtype=dtype)).ok:
                hint = "detach what the function captures outside of it"
                where = f"score_mod of flex_attention: {outcome.message}"
                raise ModelError("a function with the derivative of its operators", "another one", where, hint)


def _sample(value: Any, seed: int) -> Any:
    """What is captured, made up, on its device where there is one; floats are float64 and have gradients."""
    if not isinstance(value, torch.Tensor):
        return hinted(value)
    data = data_like(value, 0, seed).to(value.device if torch.cuda.is_available() else "cpu")
    return data.double().requires_grad_() if data.is_floating_point() else data


_OPERATORS = (torch.ops.higher_order.flex_attention, torch.ops.higher_order.flex_attention_backward)


def _names(node: fx.Node) -> list[str]:
    """The names of the arguments of an operator, all of which are positional."""
    return [*inspect.signature(type(node.target).__call__).parameters][1:]


def _log_2(dtype: str) -> Any:
    """PyTorch gives highest scores and logarithms of sums to the base 2."""
    return tirx.const(math.log(2.0), dtype)


def _natural(lse: te.Tensor, dtype: str) -> te.Tensor:
    """Natural logarithms; 0 in rows that are masked everywhere, whose weights exp(−∞ − 0) are 0 then."""

    def value(*i: Any) -> Any:
        is_none = lse(*i) == tirx.const(float("-inf"), lse.dtype)
        return tirx.Select(is_none, tirx.const(0.0, dtype), lse(*i).astype(dtype) * _log_2(dtype))

    return te.compute(lse.shape, value, name="lse")


_NAMES = ("query", "key", "value")
_BLOCKS = "listed"


def _captured(k: int) -> str:
    return f"captured_{k}"


def _in_some_list(lists: Sequence[te.Tensor], blocks: Any) -> te.Tensor:
    """2 where a row of blocks lists one of so many as full, 1 where it lists it otherwise, 0 elsewhere.

    Parameters
    ----------
    lists : how many each row lists, [batch, head, row], and which, [batch, head, row, place in the list], in turn; all
        have as many places.
    """
    pairs, none = [*zip(lists[::2], lists[1::2], strict=True)], tirx.const(False, "bool")
    place = te.reduce_axis((0, lists[1].shape[-1]), "place")

    def value(*i: Any) -> Any:
        row, block = i[:-1], i[-1]
        found = [tirx.if_then_else(place < n(*row), of(*row, place) == block, none) for n, of in pairs]
        return te.max(reduce(tirx.max, (tirx.Select(one, k, 0) for k, one in enumerate(found, 1))), axis=place)

    return te.compute((*lists[0].shape, blocks), value, name="listed")


def _apart(score: Any, is_full: Callable[[Any], bool], places: Sequence[tirx.Var]) -> Any:
    """The score with `full | mask` taken apart: where a block is full, each part of the mask holds.

    Parts that compare places say by themselves which tiles are visited and which are whole.
    """

    def compares(part: Any) -> bool:
        by_data = any(uses(index, places) for load in loads_of(part) for index in load.indices)
        return not by_data and not isinstance(part, DISJUNCTIONS)

    def apart(node: Any) -> Any:
        if not is_full(node.a):
            return node
        return tirx.all(*(one if compares(one) else tirx.Or(node.a, one) for one in conjuncts(node.b)))

    return tvm_ffi.structural_map(score, [(kind, apart) for kind in DISJUNCTIONS])


@dataclass(frozen=True)
class _Flex:
    """A call of an operator, forward or backward.

    Attributes
    ----------
    modification : the graph of a modified score; the other one is that of a mask.
    captured : what the functions are given beside a score and its place: of the one `first`, then of the other.
    """

    site: Site
    given: Mapping[str, Any]
    modification: fx.GraphModule
    mask: fx.GraphModule
    captured: Sequence[Any]
    first: int

    @classmethod
    def of(cls, site: Site, name: str) -> _Flex:
        """The call, whose argument of that name is the function of scores."""
        given = dict(zip(_names(site.node), site.node.args, strict=False))
        buffers = [given.get(f"{kind}_mod_other_buffers", ()) for kind in ("score", "mask")]
        score, mask = (site.importer.env[node] for node in (given[name], given["block_mask"][-1]))
        return cls(site, given, score, mask, [*buffers[0], *buffers[1]], len(buffers[0]))

    def __getitem__(self, name: str) -> Any:
        node = self.given[name]
        return None if node is None else self.site.importer.env[node]

    @cached_property
    def operands(self) -> dict[str, relax.Expr]:
        """Query, key, value, the tensors that are captured, and which blocks are listed."""
        tensors = {_captured(k): one for k, one in enumerate(self.captured) if isinstance(_value(one), torch.Tensor)}
        given = {name: self[name] for name in _NAMES} | {k: self.site.importer.env[one] for k, one in tensors.items()}
        return given if self._listed is None else given | {_BLOCKS: self._listed}

    @cached_property
    def _block(self) -> list[Any]:
        """Queries and keys of a block of the mask."""
        *_, queries, keys, _ = self.given["block_mask"]
        return [self._size(_value(one)) for one in (queries, keys)]

    def _size(self, value: Any) -> Any:
        """A size in TVM's variables."""
        return extents_of(self.site, self.inputs[0].new_empty((value, 0)))[0]

    @cached_property
    def _listed(self) -> relax.Expr | None:
        """[batch, head, block of queries, block of keys]: 0 where it is not listed; None where all are.

        Layers that are given the same mask share it.
        """
        if not (lists := _lists(self.given["block_mask"])):
            return None
        *_, keys, _ = extents_of(self.site, _value(self.given["key"]))
        made = self.site.importer.env
        key = "listed blocks", *lists
        if key not in made:
            blocks = tirx.ceildiv(keys, self._block[1])
            made[key] = self.site.compute(_in_some_list, [made[one] for one in lists], blocks, name="listed_blocks")
        return made[key]

    @cached_property
    def inputs(self) -> list[Any]:
        """A fake tensor of all scores, what is captured, and whether a score's block is full, where that is known."""
        q, k = (_value(self.given[name]) for name in _NAMES[:2])
        wide, every = torch.promote_types(q.dtype, torch.float32), (*q.shape[:-1], k.shape[-2])
        full = [q.new_empty(every, dtype=torch.bool)] if len(_lists(self.given["block_mask"])) > _OF_A_KIND else []
        return [q.new_empty(every, dtype=wide), *map(_value, self.captured), *full]

    @cached_property
    def _read(self) -> tuple[tvm.IRModule, Sequence[int]]:
        """The module of all scores, and which of the inputs its `main` takes."""
        return self.site.read(self._scores, self.inputs)

    def _scores(self, scores: torch.Tensor, *captured: Any) -> tuple[torch.Tensor]:
        """All scores, modified and masked."""
        places = [torch.arange(extent, device=scores.device) for extent in scores.shape]
        score, mask = (_Scalars(one).run for one in (self.modification, self.mask))
        of_score, of_mask = captured[: self.first], captured[self.first : len(self.captured)]
        for axis in reversed(range(len(places))):
            own = [0 if axis == other else None for other in range(len(places))]
            score = torch.vmap(score, in_dims=(0, *own, *[None] * len(of_score)))
            mask = torch.vmap(mask, in_dims=(*own, *[None] * len(of_mask)))
        kept = mask(*places, *of_mask)
        for full in captured[len(self.captured) :]:
            kept = full | kept
        return (torch.where(kept, score(scores, *places, *of_score), -math.inf),)

    @cached_property
    def sizes(self) -> list[Any]:
        """The captured sizes that no tensor has, for which `main` is given tensors of that extent; those of blocks."""
        found = [self.inputs[k] for k in self._read[1] if not isinstance(self.inputs[k], torch.Tensor)]
        return [*map(self._size, found), *(() if self._listed is None else self._block)]

    def attention(self, given: Sequence[te.Tensor], sizes: Sequence[Any], guarded: bool) -> Attention:
        """The attention of tensors like the operands, and of sizes like `sizes`; `guarded` as of `attention`."""
        q, k, v, *_ = given
        (module, places), factor = self._read, scaling(q, self.given["scale"])
        tensors, rest = dict(zip(self.operands, given, strict=True)), iter(sizes)
        extents, lowest = [*q.shape[:-1], k.shape[-2]], tirx.const(float("-inf"), accumulator(str(q.dtype)))

        def shape(place: int) -> Sequence[Any]:
            if not 0 < place <= len(self.captured):
                return extents
            return tensors[_captured(place - 1)].shape if _captured(place - 1) in tensors else [next(rest), 0]

        def kind_of(indices: Sequence[Any]) -> Any:
            """Of a score's block: 0 where it is not listed, 2 where it is full."""
            of_blocks = (place // size for place, size in zip(indices[-2:], sizes[-2:], strict=True))
            return broadcast(tensors[_BLOCKS], (*indices[:-2], *of_blocks))

        shapes = [*map(shape, places)]

        def score(product: Any, i: tuple[Any, ...]) -> Any:
            def element(k: int, indices: Sequence[Any]) -> Any:
                if places[k] > len(self.captured):
                    return kind_of(indices) > 1
                return tensors[_captured(places[k] - 1)](*indices) if places[k] else product * factor

            def rewritten(found: Any, known: Mapping[tirx.Var, int]) -> Any:
                full = {buffer for buffer, k in known.items() if places[k] > len(self.captured)}
                return _apart(found, lambda one: isinstance(one, ir.TensorLoad) and one.source in full, i[-2:])

            found = element_of(module, shapes, dict(zip(i, extents, strict=True)), element, rewritten)
            return tirx.if_then_else(kind_of(i) > 0, found, lowest) if _BLOCKS in tensors else found

        return attention(q, k, v, score, group_size(q, k), guarded)


class _Scalars(fx.Interpreter):
    """Runs a function of scalars; positions are given to its indexing as vectors of one, of which `vmap` takes any."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is not torch.ops.aten.index.Tensor:
            return super().call_function(target, args, kwargs)
        tensor, positions = args
        return target(tensor, [one.unsqueeze(0) for one in positions]).squeeze(0)


def _value(one: Any) -> Any:
    return one.meta["val"] if isinstance(one, fx.Node) else one
