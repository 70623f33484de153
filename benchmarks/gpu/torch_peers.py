"""Peers from PyTorch: eager, cuBLAS, Inductor, FlexAttention, and fused attention by backend."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from benchmarks.gpu import formula
from benchmarks.gpu.prepared import Prepared, allocating
from benchmarks.gpu.problem import Problem, SelfAttention
from benchmarks.gpu.quantised_formula import quantise
from benchmarks.judge.forms import Absent

_NO_ATTENTION = Absent("not an attention with keys and values of its own")


def eager(problem: Problem) -> Prepared:
    """What a user of torch writes, kernel by kernel; of a product, cuBLAS."""
    return allocating(problem, problem.eager)


def cublas(problem: Problem) -> Prepared | Absent:
    """A plain product in cuBLAS; it computes nothing else."""
    return eager(problem) if problem.multiplies else Absent("not a plain matrix product")


def product_alone(problem: Problem) -> Prepared | Absent:
    """The product that a program starts with, by cuBLAS; what is made of it is computed beside the time."""
    x, w = problem.named.get("x"), problem.named.get("gate")
    if x is None or w is None:
        return Absent("no product of x and gate")
    output = problem.empty_output()
    return Prepared(lambda: x @ w, lambda _: problem.eager(), lambda: output)


def float8_alone(problem: Problem) -> Prepared | Absent:
    """The product of activations that are float8 already; scales are undone outside of what is timed."""
    builder: Any = problem.workload.builder
    (form,) = builder.args
    if form.blocks:
        return Absent("its scales change along k")
    torch, weight = problem.torch, problem.named["weight"].t()
    narrow, scale = quantise(torch, form, problem.named["x"])
    down, one = (torch.full((), value, device=weight.device) for value in (_INTO_RANGE, 1.0))
    dtype, back = problem.output_dtype, scale / _INTO_RANGE * problem.named.get("weight_scale", 1.0)

    def run() -> Any:
        return torch._scaled_mm(narrow, weight, down, one, out_dtype=dtype, use_fast_accum=True)

    plain = allocating(problem, run)
    return Prepared(plain.run, lambda found: (found.float() * back).to(dtype), plain.poison, plain.configuration)


_INTO_RANGE = 2.0**-10
"""What sums of products of the largest float8 numbers are multiplied by, to be in the range of float16."""


def inductor(problem: Problem, mode: Mapping[str, bool] = MappingProxyType({})) -> Prepared | Absent:
    """`torch.compile` of the same; it knows some forms of attention, and stores the scores of others.

    Parameters
    ----------
    mode : further options of Inductor.
    """
    torch = problem.torch
    # Configurations that another process has found best, beside others on the same GPU, are not taken over.
    options = {"autotune_local_cache": False, **mode}
    if not isinstance(problem, SelfAttention):
        compute = torch.compile(partial(problem.formula.compute, torch), dynamic=False, options=options)
        return allocating(problem, lambda: compute(problem.named))
    q, k, v, slopes = problem.q, problem.dense("k"), problem.dense("v"), problem.slopes
    scores = q[..., 0].numel() * k.shape[2] * q.element_size()
    if scores > _LARGEST_SCORES:
        return Absent(f"the eager formula stores scores of {scores / 2**30:.0f} GiB")
    attend = torch.compile(partial(formula.eager, torch, problem.form), dynamic=False)
    return _of_shape(problem, lambda: attend(q, k, v, slopes))


_LARGEST_SCORES = 16 * 2**30
"""Bytes of the scores of a program that stores them; there are several tensors of that size at once."""


def sdpa(backend: str, problem: Problem) -> Prepared | Absent:
    """`scaled_dot_product_attention` with one backend of `torch.nn.attention.SDPBackend`, on a contiguous cache."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    if not problem.attends:
        return _NO_ATTENTION
    form, torch, named = problem.form, problem.torch, problem.named
    if form.window is not None or not form.scores_as_they_are or form.tree:
        return Absent("scaled_dot_product_attention has no ALiBi, soft cap, window, sink or tree of its own")
    if not {"k", "v"} <= named.keys() or "lengths" in named or "k_prefix" in named:
        return Absent("scaled_dot_product_attention reads one tensor of keys whose sequences are of one length")
    q, k, v = problem.q, problem.dense("k"), problem.dense("v")
    chosen, kernel = [getattr(SDPBackend, backend)], torch.nn.functional.scaled_dot_product_attention
    queries, keys = q.shape[2], k.shape[2]
    square, one = queries == keys, queries == 1
    bias = causal_lower_right(queries, keys) if form.causal and not (square or one) else None
    options = {"is_causal": form.causal and square, "attn_mask": bias, "enable_gqa": q.shape[1] != k.shape[1]}

    def run() -> Any:
        with sdpa_kernel(chosen):
            return kernel(q, k, v, **options)

    return _of_shape(problem, run, backend)


def flex(problem: Problem) -> Prepared | Absent:
    """Compiled FlexAttention on a contiguous cache: masks as a block mask, the rest as a score modification."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if not problem.attends:
        return _NO_ATTENTION
    torch, form, slopes, named = problem.torch, problem.form, problem.slopes, problem.named
    if form.sink:
        return Absent("flex_attention has no sink of its own")
    q = problem.q
    k, v = problem.dense("k").contiguous(), problem.dense("v").contiguous()
    queries, keys = q.shape[2], k.shape[2]
    lengths, tree = named.get("lengths"), named.get("tree")

    def context(batch: Any) -> Any:
        return keys - queries if lengths is None else lengths[batch] - queries

    def keeps(batch: Any, _head: Any, query: Any, key: Any) -> Any:
        draft = key - context(batch)
        kept = draft <= query
        if form.window is not None:
            kept = kept & (draft > query - form.window)
        if tree is not None:
            kept = kept & ((draft < 0) | tree[batch, query, draft.clamp(0, queries - 1)])
        return kept

    def modified(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
        if form.cap is not None:
            score = form.cap * torch.tanh(score / form.cap)
        return score + slopes[head] * (key - context(batch) - query) if form.alibi else score

    masked = form.causal or lengths is not None
    by_sequence = None if lengths is None and tree is None else len(q)
    mask = create_block_mask(keeps, by_sequence, None, queries, keys, device=q.device) if masked else None
    compiled = torch.compile(flex_attention, dynamic=False)
    options = {"score_mod": None if form.scores_as_they_are else modified, "block_mask": mask}
    grouped = q.shape[1] != k.shape[1]
    told = "" if "k" in named and "k_prefix" not in named else "contiguous"
    return _of_shape(problem, lambda: compiled(q, k, v, enable_gqa=grouped, **options), told)


def _of_shape(problem: Problem, run: Any, configuration: str = "") -> Prepared:
    """A row whose runs give [batch, head, query, feature], where the program may have no batch."""
    own = allocating(problem, run, configuration)
    batched = problem.named["q"].ndim == 4
    return Prepared(own.run, lambda found: found if batched else found[0], own.poison, own.configuration)


def forget_compiled() -> None:
    """Drop what torch.compile knows: it would take further shapes for dynamic ones, and stop at a limit."""
    if (dynamo := sys.modules.get("torch._dynamo")) is not None:
        dynamo.reset()
