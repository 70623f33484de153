"""A workload's formula in torch: the float64 reference, and the eager program for Inductor.

`tests/bench/test_gpu_formula.py` holds it against the float64 oracle of the TensorIR program, variant by variant.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from corpus.programs.attention import GEMMA_CAP, VARIANTS
from corpus.workload import Workload, WorkloadError

_ROWS_AT_ONCE = 1024  # of queries in the reference: 32 Ki keys take 256 MiB in float64


@dataclass(frozen=True)
class ScoreForm:
    """The map and mask of scaled scores before the softmax, as parameters of attention kernels.

    Attributes
    ----------
    causal : keys after the query's own position are masked.
    window : how many keys, its own included, a query sees at most; None for all.
    cap : c·tanh(score/c); None for none.
    alibi : slope[head]·(key − query) is added.
    tree : of the keys of the queries themselves, those are masked that a tensor does not keep.
    sink : each head has a further score, without a value.
    """

    causal: bool = False
    window: int | None = None
    cap: float | None = None
    alibi: bool = False
    tree: bool = False
    sink: bool = False

    @property
    def scores_as_they_are(self) -> bool:
        """Whether nothing but masks touches the scores."""
        return self.cap is None and not self.alibi and not self.sink


_CAUSAL = ScoreForm(causal=True)
_FORMS: Mapping[str, ScoreForm] = {
    "full": ScoreForm(),
    "causal": _CAUSAL,
    "softcap": ScoreForm(cap=GEMMA_CAP),
    "causal_softcap": replace(_CAUSAL, cap=GEMMA_CAP),
    "alibi": ScoreForm(alibi=True),
    "causal_alibi": replace(_CAUSAL, alibi=True),
    "window": _CAUSAL,
    "window_softcap": replace(_CAUSAL, cap=GEMMA_CAP),
    "tree": replace(_CAUSAL, tree=True),
    "sink": replace(_CAUSAL, sink=True),
    "window_sink": replace(_CAUSAL, sink=True),
}


def form_of(workload: Workload) -> ScoreForm:
    """The form of an attention workload's scores.

    Raises
    ------
    WorkloadError
        When the workload is no attention of such a form.
    """
    builder = workload.builder
    given = builder if isinstance(builder, functools.partial) else functools.partial(builder)
    name = next((name for name, variant in VARIANTS.items() if (variant,) == given.args), "")
    if name not in _FORMS:
        raise WorkloadError("an attention that kernels have a form of", workload.family, f"workload `{workload.name}`")
    form = replace(_FORMS[name], window=workload.shape.get("window"))
    # Aligned with the last key that its sequence has, a query sees none behind it.
    return replace(form, causal=True) if "lengths" in given.keywords["cache"].tables(workload.shape) else form


def mapped(torch: Any, form: ScoreForm, scores: Any, slopes: Any, first: Any) -> Any:
    """The logits of scaled scores[batch, head, query, key].

    Parameters
    ----------
    slopes : [head]; only read where the form has ALiBi.
    first : the key that query 0 is aligned with, or [batch, 1, 1, 1] of them.
    """
    queries, keys = (torch.arange(extent, device=scores.device) for extent in scores.shape[-2:])
    distance = keys - (queries[:, None] + first)
    if form.cap is not None:
        scores = form.cap * (scores / form.cap).tanh()
    if form.alibi:
        scores = scores + slopes.to(scores.dtype)[:, None, None] * distance.to(scores.dtype)
    if form.causal:
        scores = scores.masked_fill(distance > 0, float("-inf"))
    if form.window is not None:
        scores = scores.masked_fill(distance <= -form.window, float("-inf"))
    return scores


def eager(torch: Any, form: ScoreForm, q: Any, k: Any, v: Any, slopes: Any) -> Any:
    """softmax(map(q·kᵀ/√d))·v for q[b, h, i, d], as a user writes it: in the operands' dtype, soft caps in float32."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q.matmul(k.transpose(-2, -1)).mul(q.shape[-1] ** -0.5)
    first = k.shape[2] - q.shape[2]
    if form.scores_as_they_are:
        return mapped(torch, form, scores, slopes, first).softmax(dim=-1).matmul(v)
    return mapped(torch, form, scores.float(), slopes, first).softmax(dim=-1).to(v.dtype).matmul(v)


def reference(torch: Any, form: ScoreForm, q: Any, k: Any, v: Any, slope: Any) -> Any:
    """The exact output of one head, q[i, d] with k and v[j, d], in float64 and by blocks of queries.

    Parameters
    ----------
    slope : [1], of this head; only read where the form has ALiBi.
    """
    wide, keys, values = (x.to(torch.float64) for x in (q, k, v))
    blocks = []
    for first in range(0, len(q), _ROWS_AT_ONCE):
        scores = wide[first : first + _ROWS_AT_ONCE] @ keys.T * q.shape[-1] ** -0.5
        blocks.append(mapped(torch, form, scores[None], slope, first + len(k) - len(q))[0].softmax(dim=-1) @ values)
    return torch.cat(blocks)
