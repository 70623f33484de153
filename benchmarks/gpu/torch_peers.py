"""Peers from PyTorch: fused attention by backend, FlexAttention, and Inductor on the eager formula."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from benchmarks.gpu.formula import eager
from benchmarks.gpu.prepared import Prepared, allocating
from benchmarks.gpu.problem import Problem
from benchmarks.gpu.row_problem import RowProblem
from tvm_cascade.corpus.forms import Absent

_LARGEST_SCORES = 16 * 2**30
"""Bytes of the scores of a program that stores them; there are several tensors of that size at once."""


def sdpa(backend: str, problem: Problem) -> Prepared | Absent:
    """`scaled_dot_product_attention` with one backend of `torch.nn.attention.SDPBackend`."""
    form = problem.form
    if not form.scores_as_they_are or form.window is not None:
        return Absent("scaled_dot_product_attention has no ALiBi, soft cap or window of its own")
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen = [getattr(SDPBackend, backend)]
    kernel = problem.torch.nn.functional.scaled_dot_product_attention
    q, k, v = problem.q, problem.k, problem.v
    grouped = q.shape[1] != k.shape[1]

    def run() -> Any:
        with sdpa_kernel(chosen):
            return kernel(q, k, v, is_causal=form.causal, enable_gqa=grouped)

    return allocating(problem, run, backend)


def flex(problem: Problem) -> Prepared | Absent:
    """Compiled FlexAttention: masks as a block mask, ALiBi and soft cap as score modifications."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch, form, slopes = problem.torch, problem.form, problem.slopes
    q, k, v = problem.q, problem.k, problem.v

    def keeps(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
        kept = key <= query
        return kept if form.window is None else kept & (key > query - form.window)

    def modified(score: Any, _batch: Any, head: Any, query: Any, key: Any) -> Any:
        if form.cap is not None:
            score = form.cap * torch.tanh(score / form.cap)
        return score + slopes[head] * (key - query) if form.alibi else score

    length = (q.shape[2], k.shape[2])
    mask = create_block_mask(keeps, None, None, *length, device=q.device) if form.causal else None
    compiled = torch.compile(flex_attention, dynamic=False)
    options = {"score_mod": None if form.scores_as_they_are else modified, "block_mask": mask}
    return allocating(problem, lambda: compiled(q, k, v, enable_gqa=q.shape[1] != k.shape[1], **options))


def row_eager(problem: RowProblem) -> Prepared:
    """What a user of torch writes, kernel by kernel."""
    return allocating(problem, problem.eager)


def row_inductor(problem: RowProblem) -> Prepared:
    """`torch.compile` of the same."""
    # Configurations that another process has found best, beside others on the same GPU, are not taken over.
    options = {"autotune_local_cache": False}
    compiled = problem.torch.compile(partial(problem.formula, problem.torch), dynamic=False, options=options)
    return allocating(problem, lambda: compiled(*problem.inputs))


def inductor(problem: Problem) -> Prepared | Absent:
    """`torch.compile` of the eager formula; it knows some forms of attention, and stores the scores of others."""
    batch, heads, queries, _ = problem.q.shape
    scores = batch * heads * queries * problem.k.shape[2] * problem.q.element_size()
    if scores > _LARGEST_SCORES:
        return Absent(f"the eager formula stores scores of {scores / 2**30:.0f} GiB")
    compiled = problem.torch.compile(partial(eager, problem.torch, problem.form), dynamic=False)
    return allocating(problem, lambda: compiled(problem.q, problem.k, problem.v, problem.slopes))


def forget_compiled() -> None:
    """Drop what torch.compile knows: it would take further shapes for dynamic ones, and stop at a limit."""
    if (dynamo := sys.modules.get("torch._dynamo")) is not None:
        dynamo.reset()
