"""What is tuned to see how good the model's own choices are: programs of every kind that there are designs of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tvm_cascade.bench import suites
from tvm_cascade.bench.gpu import suites as gpu_suites
from tvm_cascade.bench.suites import selected
from tvm_cascade.corpus import workloads
from tvm_cascade.corpus.workload import Workload

_VARIANTS = ("attention", "attention_causal", "attention_gqa", "attention_window")
_HEAD_DIMS, _LENGTHS, _LONG = (64, 96, 128), (128, 512, 1000, 2048), 4096
_FOLDS = ("softmax_stats", "logsumexp", "entropy", "variance", "inertia", "kl_divergence")
_ROWS = ((1024, 1000), (1024, 8192), (64, 131072))
_PRODUCTS = ("rmsnorm_gemm", "layernorm_gemm")
_TOKENS = (64, 512)


def _cpu() -> Iterator[Workload]:
    """Attention of several forms, features and lengths, folds of rows, and norms into products, in float32."""
    for name in _VARIANTS:
        for head_dim in _HEAD_DIMS:
            for length in (*_LENGTHS, _LONG) if head_dim == _HEAD_DIMS[0] else _LENGTHS:
                heads = 8 if length < _LONG else 4
                shape = {"heads": heads, "queries": length, "keys": length, "head_dim": head_dim}
                yield workloads.get(name).with_shape(**shape)
    for rows, length in _ROWS:
        yield from (workloads.get(name).with_shape(rows=rows, length=length) for name in _FOLDS)
    for tokens in _TOKENS:
        yield from (workloads.get(name).with_shape(tokens=tokens) for name in _PRODUCTS)


_OF_GPU_SUITES: Mapping[str, tuple[str, ...]] = {
    "prefill": ("d128s512", "d128s2048c", "d128s4096", "d128s4096c", "d64s2048", "d64s4096c", "d256s4096"),
    "decode": ("DC_CAUSAL 32768", "DC_GQA 2048", "H8", "32/8 16x4096 q1", "64/8 64x1024 q4", "64/8 1x32768 q1"),
    "row": (
        "softmax 8192 float16", "layer_norm 8192 float32", "cross_entropy 50257 float16", "softmax 197 float16",
        "rms_norm 16x8192 bfloat16", "layer_norm_gradient 8192 float16",
    ),
    "normgemm": ("normed_rms 4096x4096", "normed_layer 4096x4096"),
    "moe": ("R3", "R6", "R8"),
    "mla": ("L3",),
    "quant": ("Q5",),
    "loss": ("cross entropy 4096", "cross entropy 16"),
    "variance": ("V5",),
    "inertia": ("I7",),
}  # fmt: skip
"""A few programs of each suite: at least one for each skeleton."""


def _gpu() -> Iterator[Workload]:
    for suite, labels in _OF_GPU_SUITES.items():
        yield from (entry.workload for entry in gpu_suites.entries(suite, labels))


_OWN: Mapping[str, Callable[[], Iterator[Workload]]] = {"tuning-cpu": _cpu, "tuning-gpu": _gpu}

SUITES = (*_OWN, *suites.SUITES, *gpu_suites.SUITES)
"""Those of `bench` too."""


def entries(suite: str, only: Sequence[str] = ()) -> list[Workload]:
    """The programs of a suite, in order.

    Parameters
    ----------
    suite : one of `SUITES`.
    only : labels or names of workloads to keep; all by default.

    Raises
    ------
    WorkloadError
        When there is no such suite, or something in `only` is not in it.
    """
    if suite in gpu_suites.SUITES:
        return [entry.workload for entry in gpu_suites.entries(suite, only)]
    if suite in suites.SUITES:
        return list(suites.entries(suite, only))
    own = {name: lambda made=made: list(made()) for name, made in _OWN.items()}
    return selected(own, suite, only, lambda job: (job.label, job.name))
