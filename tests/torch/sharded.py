"""Programs whose folds are sharded over ranks, and running them on several processes of one machine."""

from __future__ import annotations

import datetime
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tvm import te, tirx

from corpus.workload import Workload
from corpus.workloads import get
from tvm_cascade.te import topk

SECONDS = 60
"""How long a rank waits for others."""

LOWEST = te.min_value("float32")
Program = Callable[[], tirx.PrimFunc]
Body = Callable[..., Any]
"""What a rank does, from arguments; its result, or the error that it raises, is kept for each rank."""


def on_ranks(ranks: int, folder: Path, body: Body, *arguments: Any) -> list[Any]:
    """What a body gives on each rank of a new group; an error is given as it is."""
    mp.spawn(_rank, (ranks, str(folder), body, arguments), nprocs=ranks)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(ranks)]


def given_or_raised(found: Any) -> Any:
    """What a rank gave; its error, where it raised one."""
    if isinstance(found, Exception):
        raise found
    return found


def _rank(rank: int, ranks: int, folder: str, body: Body, arguments: Sequence[Any]) -> None:
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=SECONDS)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=ranks, timeout=limit)
    try:
        found = body(*arguments)
    except Exception as error:
        found = error.with_traceback(None)
        found.add_note(traceback.format_exc())
    torch.save(found, f"{folder}/{rank}.part")
    Path(f"{folder}/{rank}.part").rename(f"{folder}/{rank}.pt")
    dist.destroy_process_group()


Extent = int | tirx.Var


def attention(
    queries: Extent = 24,
    keys: Extent = 24,
    features: int = 8,
    causal: bool = False,
    bias: bool = False,
    cap: float = 0.0,
) -> tirx.PrimFunc:
    """Attention of one head, rows i over keys j."""
    shape = (queries, keys)
    q, k, v = (te.placeholder((n, features), name=name) for n, name in ((queries, "q"), (keys, "k"), (keys, "v")))
    b = te.placeholder(shape, name="b")
    d, j, c, p = (te.reduce_axis((0, n), name) for n, name in ((features, "d"), (keys, "j"), (keys, "c"), (keys, "p")))
    s = te.compute(shape, lambda i, j: te.sum(q[i, d] * k[j, d], axis=d), name="s")

    def score(i: tirx.Var, j: tirx.Var) -> Any:
        value = s[i, j] + b[i, j] if bias else s[i, j]
        value = cap * te.tanh(value / cap) if cap else value
        return tirx.if_then_else(j <= i, value, LOWEST) if causal else value

    z = te.compute(shape, score, name="z")
    m = te.compute((queries,), lambda i: te.max(z[i, j], axis=j), name="m")
    t = te.compute((queries,), lambda i: te.sum(te.exp(z[i, c] - m[i]), axis=c), name="t")
    o = te.compute((queries, features), lambda i, f: te.sum(te.exp(z[i, p] - m[i]) / t[i] * v[p, f], axis=p), name="o")
    return te.create_prim_func([q, k, v, *([b] if bias else []), o])


def _rows(name: str = "x", rows: int = 8, length: int = 24) -> te.Tensor:
    return te.placeholder((rows, length), name=name)


def _along(length: int = 24) -> tuple[te.IterVar, ...]:
    return tuple(te.reduce_axis((0, length), name) for name in ("j", "c", "p"))


def _softmax(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    (rows, _), (j, c, _) = x.shape, _along()
    m = te.compute((rows,), lambda i: te.max(x[i, j], axis=j), name="m")
    return m, te.compute((rows,), lambda i: te.sum(te.exp(x[i, c] - m[i]), axis=c), name="t")


def softmax() -> tirx.PrimFunc:
    """A result along the axis, with weights by position."""
    x = _rows()
    m, t = _softmax(x)
    y = te.compute(x.shape, lambda i, j: te.exp(x[i, j] - m[i]) / t[i] * (j + 1), name="y")
    return te.create_prim_func([x, y])


def layer_norm() -> tirx.PrimFunc:
    x, gain, (j, c, _) = _rows(), te.placeholder((24,), name="gain"), _along()
    s = te.compute((8,), lambda i: te.sum(x[i, j], axis=j), name="s")
    v = te.compute((8,), lambda i: te.sum((x[i, c] - s[i] / 24) * (x[i, c] - s[i] / 24), axis=c), name="v")
    y = te.compute(x.shape, lambda i, j: (x[i, j] - s[i] / 24) * te.rsqrt(v[i] / 24 + 1e-5) * gain[j], name="y")
    return te.create_prim_func([x, gain, y])


def variance() -> tirx.PrimFunc:
    x, (j, c, _) = _rows(), _along()
    s = te.compute((8,), lambda i: te.sum(x[i, j], axis=j), name="s")
    v = te.compute((8,), lambda i: te.sum((x[i, c] - s[i] / 24) * (x[i, c] - s[i] / 24), axis=c), name="v")
    return te.create_prim_func([x, v])


def cross_entropy() -> tirx.PrimFunc:
    """Of logits over a sharded vocabulary: the target's own logit is a sum under a mask by position."""
    x, label, (_, _, p) = _rows(), te.placeholder((8,), "int32", name="label"), _along()
    m, t = _softmax(x)
    own = te.compute((8,), lambda i: te.sum(tirx.if_then_else(p == label[i], x[i, p], 0.0), axis=p), name="own")
    loss = te.compute((8,), lambda i: te.log(t[i]) + m[i] - own[i], name="loss")
    return te.create_prim_func([x, label, loss])


def gathered_loss() -> tirx.PrimFunc:
    """The same, with the target's own logit read where it lies."""
    x, label = _rows(), te.placeholder((8,), "int32", name="label")
    m, t = _softmax(x)
    loss = te.compute((8,), lambda i: te.log(t[i]) + m[i] - x[i, label[i]], name="loss")
    return te.create_prim_func([x, label, loss])


def entropy() -> tirx.PrimFunc:
    x, (_, _, p) = _rows(), _along()
    m, t = _softmax(x)
    e = te.compute((8,), lambda i: te.sum(te.exp(x[i, p] - m[i]) / t[i] * (x[i, p] - m[i]), axis=p), name="e")
    return te.create_prim_func([x, e])


def weighted_mean() -> tirx.PrimFunc:
    """Guarded: Σ w·x/Σ w overflows as Σ w·x where the program's own terms do not."""
    x, w, (j, c, _) = _rows(), _rows("w"), _along()
    s = te.compute((8,), lambda i: te.sum(w[i, j], axis=j), name="s")
    mean = te.compute((8,), lambda i: te.sum(w[i, c] / s[i] * x[i, c], axis=c), name="mean")
    return te.create_prim_func([x, w, mean])


def largest() -> tirx.PrimFunc:
    """The largest magnitude, and each element over it."""
    x, (j, _, _) = _rows(), _along()
    a = te.compute((8,), lambda i: te.max(te.abs(x[i, j]), axis=j), name="a")
    y = te.compute(x.shape, lambda i, j: x[i, j] / (a[i] + 1e-6), name="y")
    return te.create_prim_func([x, a, y])


def top_three() -> tirx.PrimFunc:
    """Values and indices on the whole axis."""
    x = _rows()
    values, indices = topk(x, 3)
    return te.create_prim_func([x, values, indices])


def sampled() -> tirx.PrimFunc:
    """The most probable position under noise."""
    x, noise = _rows(), _rows("noise")
    z = te.compute(x.shape, lambda i, j: x[i, j] + noise[i, j], name="z")
    values, indices = topk(z, 1)
    return te.create_prim_func([x, noise, values, indices])


_SMALL = {
    "batch": 2, "heads": 8, "queries": 24, "keys": 48, "tokens": 16, "rows": 8, "length": 48, "hidden": 64,
    "features": 64,
}  # fmt: skip
"""Extents that the spans of four ranks divide."""

CORPUS = {
    "mla": "h",
    "mla_prefill": "i",
    "attention_gqa": "h",
    "attention_window": "i",
    "attention_alibi": "i",
    "decode_sink": "d",
    "decode_lengths": "h",
    "moe_routing": "token",
    "kl_divergence": "row",
    "covariance": "row",
    "third_moment": "row",
    "sum_sum": "row",
    "softmax_stats": "row",
    "logsumexp": "row",
    "layernorm_gemm": "column",
    "normed_gated": "column",
    "head_cross_entropy": "token",
    "head_divergence": "token",
    "head_best": "i0",
    "head_sample": "i0",
    "head_best_few": "i0",
    "product": "m",
}
"""Workloads of the corpus, with rows that may be sharded; of attention with features, which no other component has."""


def of_corpus(name: str) -> Workload:
    """A workload, small, in float32."""
    one = get(name).cpu.with_dtype("float32")
    known = {key: extent for key, extent in _SMALL.items() if one.shape.get(key, 1) > 1}
    return one.with_shape(**known)


PROGRAMS: dict[str, tuple[Program, str]] = {
    "attention": (attention, "i"),
    "causal": (lambda: attention(causal=True), "i"),
    "bias": (lambda: attention(causal=True, bias=True), "i"),
    "soft cap": (lambda: attention(cap=2.0), "i"),
    "softmax": (softmax, ""),
    "layer norm": (layer_norm, ""),
    "variance": (variance, "i"),
    "cross-entropy": (cross_entropy, ""),
    "gathered loss": (gathered_loss, "i"),
    "entropy": (entropy, "i"),
    "weighted mean": (weighted_mean, ""),
    "largest": (largest, "i"),
    "top three": (top_three, ""),
    "sampled": (sampled, ""),
    "ragged": (lambda: attention(25, 22), "i"),
    "few": (lambda: attention(1, 1, bias=True), "i"),
    **{name: (lambda name=name: of_corpus(name).build(), rows) for name, rows in CORPUS.items()},
}
"""By name: a program, and rows that may be sharded too."""

IN_BLOCKS = ("ragged", "few")
"""Of lengths that no spans divide, and of fewer positions than ranks: some have none."""


def drawn(name: str, shape: Sequence[int], dtype: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Data of an input."""
    if dtype == "int32":
        return rng.integers(0, 24, shape).astype(dtype)
    values = rng.standard_normal(shape).astype(dtype)
    return np.abs(values) if name == "w" else values
