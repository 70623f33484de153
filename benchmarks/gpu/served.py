"""Formulas in torch of every program of a suite: eager programs, and in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.formula import ScoreForm, form_of, mapped
from benchmarks.gpu.head_formula import formula_of
from benchmarks.gpu.quantised_formula import multiply_exact, multiply_quantised
from benchmarks.gpu.routing_formula import route
from benchmarks.gpu.row_formula import FORMULAS, OF_ALL_ROWS
from corpus.programs import attention, caches, chain, head, normalisation, product, quantised, routing
from corpus.workload import Workload

_COMPARED_ROWS = 16

Named = Mapping[str, Any]
"""Tensors by the names of the program's parameters."""


@dataclass(frozen=True)
class Served:
    """A program as torch computes it.

    Attributes
    ----------
    compute : from the module and the inputs to the output.
    axis : of the output, along which some positions are compared.
    cut : of each input the axis that runs along that one; those that are not in it are read whole.
    exact : the same without what the program itself rounds inside, where it does.
    compared : how many positions, where the inputs can be cut along that axis.
    """

    compute: Callable[[Any, Named], Any]
    axis: int
    cut: Mapping[str, int]
    exact: Callable[[Named], Any] | None = None
    compared: int = 4


def dense(torch: Any, named: Named, name: str) -> Any:
    """The keys or values as [batch, head, position, feature], from pages and prefixes too."""
    if f"{name}_pages" in named:
        pages = named[f"{name}_pages"][named["table"].long()]  # [batch, page, slot, head, feature]
        return pages.flatten(1, 2).transpose(1, 2)
    own = named[name]
    if f"{name}_prefix" in named:
        shared = named[f"{name}_prefix"]
        return torch.cat([shared.expand(len(own), *shared.shape), own], dim=2)
    return own if own.ndim == 4 else own[None]


def attend(torch: Any, form: ScoreForm, named: Named) -> Any:
    """Attention over a cache: q[b, h, i, d] or [h, i, d] -> the same, the heads of a group beside each other."""
    q = named["q"] if named["q"].ndim == 4 else named["q"][None]
    k, v = (dense(torch, named, name).to(q.dtype) for name in ("k", "v"))
    batch, heads, queries, features = q.shape
    grouped = q.reshape(batch, k.shape[1], -1, features)
    scores = (grouped @ k.transpose(-2, -1)).mul(features**-0.5).reshape(batch, heads, queries, -1)
    lengths = named.get("lengths")
    first = k.shape[2] - queries if lengths is None else (lengths - queries)[:, None, None, None]
    wide = scores.to(torch.promote_types(q.dtype, torch.float32))
    logits = mapped(torch, form, wide, named.get("slopes"), first)
    if form.tree:
        logits = _within_tree(torch, logits, named["tree"], first)
    weights = _shares(torch, logits, named.get("sink")).to(q.dtype)
    out = (weights.reshape(batch, k.shape[1], -1, k.shape[2]) @ v).reshape(batch, heads, queries, -1)
    return out if named["q"].ndim == 4 else out[0]


def _within_tree(torch: Any, logits: Any, tree: Any, first: int) -> Any:
    draft = torch.arange(logits.shape[-1], device=logits.device) - first
    kept = (draft < 0) | tree[..., draft.clamp(min=0)]
    return logits.masked_fill(~kept[:, None], float("-inf"))


def _shares(torch: Any, logits: Any, sink: Any) -> Any:
    if sink is None:
        return logits.softmax(-1)
    further = sink.to(logits.dtype)[:, None, None].expand(*logits.shape[:3], 1)
    return torch.cat([logits, further], -1).softmax(-1)[..., :-1]


def attend_latent(torch: Any, latent_dim: int, named: Named) -> Any:
    """Latent attention of one query: q[b, h, d] -> [b, h, latent]."""
    q, kv = named["q"], named.get("kv")
    if kv is None:
        kv = named["kv_pages"][named["table"].long()].flatten(1, 2)
    scores = (q @ kv.transpose(-2, -1)).mul(q.shape[-1] ** -0.5).to(torch.promote_types(q.dtype, torch.float32))
    if "lengths" in named:
        behind = torch.arange(kv.shape[1], device=kv.device) >= named["lengths"][:, None]
        scores = scores.masked_fill(behind[:, None], float("-inf"))
    return scores.softmax(-1).to(q.dtype) @ kv[..., :latent_dim]


def multiply(torch: Any, form: product.Product, dtype: Any, named: Named) -> Any:
    """A matrix product as torch's users call it."""
    a, b = (
        x.transpose(-2, -1) if turned else x
        for x, turned in ((named["a"], form.a_transposed), (named["b"], form.b_transposed))
    )
    if form.operands and a.dtype == getattr(torch, form.operands):
        one = torch.ones((), device=a.device)
        out = torch._scaled_mm(a, b, one, one, out_dtype=dtype)
    else:
        out = a @ b
    if form.bias:
        out = out + named["bias"].to(out.dtype)
    return _ACTIVATIONS[form.activation](torch, out) if form.activation else out


def of_normed(torch: Any, form: normalisation.Normed, named: Named) -> Any:
    """A linear layer behind a normalisation, as torch's users compute it."""
    x, gain, functional = named["x"], named.get("gain"), torch.nn.functional
    if form.centred:
        normalised = functional.layer_norm(x, x.shape[1:], gain, named.get("bias"), normalisation.EPSILON)
    else:
        normalised = functional.rms_norm(x, x.shape[1:], gain, normalisation.EPSILON)
    products = [functional.linear(normalised, named[weight]) for weight in form.weights]
    return products[0] if not form.gated else functional.silu(products[0]) * products[1]


def of_chain(torch: Any, form: chain.Chain, named: Named) -> Any:
    """A feed-forward layer as torch's users compute it."""
    linear = torch.nn.functional.linear
    first, *others = (linear(named["x"], named[weight]) for weight in form.weights)
    hidden = _ACTIVATIONS[form.activation](torch, first)
    for other in others:
        hidden = hidden * other
    return linear(hidden, named["down"])


def of_convolved(torch: Any, activation: str, named: Named) -> Any:
    """Two convolutions of images whose channels are last in memory, as cuDNN reads them best."""

    def convolved(image: Any, weight: Any) -> Any:
        windows = weight.permute(0, 3, 1, 2) if weight.ndim == 4 else weight[..., None, None]
        return torch.nn.functional.conv2d(image, windows, padding=windows.shape[-1] // 2)

    hidden = _ACTIVATIONS[activation](torch, convolved(named["x"].permute(0, 3, 1, 2), named["up"]))
    return convolved(hidden, named["down"]).permute(0, 2, 3, 1)


_ACTIVATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "relu": lambda torch, x: torch.nn.functional.relu(x),
    "silu": lambda torch, x: torch.nn.functional.silu(x),
    "gelu": lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
}


def served(workload: Workload, dtype: Any) -> Served | None:
    """The formula of a workload's program; None where there is none.

    Parameters
    ----------
    dtype : of the output, in torch.
    """
    builder = workload.builder
    if builder in FORMULAS:
        of_rows = {one.tensor.name: 0 for one in workload.program.arguments if one.tensor.name not in OF_ALL_ROWS}
        formula = FORMULAS[builder]
        return Served(lambda torch, named: formula(torch, *named.values()), 0, of_rows, compared=_COMPARED_ROWS)
    if not isinstance(builder, functools.partial):
        return None
    if builder.func is product.product_of:
        (form,) = builder.args
        cut = {"a": 0, "b": 0} if "batch" in workload.shape else {"a": int(form.a_transposed)}
        return Served(lambda torch, named: multiply(torch, form, dtype, named), 0, cut)
    if builder.func is head.head_of:
        (asked,) = builder.args
        tokens = ("x", "teacher_x", "target", "seed", "temperature")
        return Served(formula_of(asked, workload.shape), 0, dict.fromkeys(tokens, 0))
    if builder.func is chain.chain_of:
        (layers,) = builder.args
        return Served(lambda torch, named: of_chain(torch, layers, named), 0, {"x": 0})
    if builder.func is chain.chain_convolved_of:
        (activation,) = builder.args
        return Served(lambda torch, named: of_convolved(torch, activation, named), 0, {})
    if builder.func is normalisation.normed_of:
        (norm,) = builder.args
        return Served(lambda torch, named: of_normed(torch, norm, named), 0, {"x": 0})
    if builder.func is routing.routed_by:
        (router,) = builder.args
        best = workload.shape["topk"]
        return Served(lambda torch, named: route(torch, router, best, named), 0, {"x": 0})
    if builder.func is quantised.quantised_of:
        (rounded,) = builder.args
        exact = functools.partial(multiply_exact, rounded)
        return Served(lambda torch, named: multiply_quantised(torch, rounded, dtype, named), 0, {"x": 0}, exact)
    if builder.func is caches.latent_attention_over:
        width, own = workload.shape["latent_dim"], ("q", "kv", "table", "lengths")
        return Served(lambda torch, named: attend_latent(torch, width, named), 0, dict.fromkeys(own, 0))
    if builder.func is attention.attention_over:
        scores = form_of(workload)
        return Served(lambda torch, named: attend(torch, scores, named), *_cut_attention(workload))
    return None


def _cut_attention(workload: Workload) -> tuple[int, Mapping[str, int]]:
    """By sequence; one alone by head, where each head has keys of its own, and else not at all."""
    shape = workload.shape
    if shape.get("batch", 1) > 1:
        return 0, dict.fromkeys(("q", "k", "v", "table", "lengths", "tree"), 0)
    head = int("batch" in shape)
    alone = shape.get("kv_heads", shape["heads"]) == shape["heads"]
    return head, {**dict.fromkeys(("q", "k", "v"), head), "slopes": 0, "sink": 0} if alone else {}
