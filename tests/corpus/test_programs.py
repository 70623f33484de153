"""Programs: through LLVM, unfused, each computes the definition of its name in float64 NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray

from corpus import workloads
from corpus.programs.program import dtype_of, extents
from corpus.workload import Workload
from tvm_cascade.evaluate import tolerance

Array = NDArray[Any]
Definition = Callable[..., Any]
"""From the inputs to the output, or to a tuple of the outputs."""

PRIME = 97
GQA_GROUP = 4
WINDOW = 24


def visible(queries: int, keys: int, window: int | None = None) -> Array:
    distance = np.arange(queries)[:, None] + keys - queries - np.arange(keys)
    return (distance >= 0) & (distance < (window or keys))


def attend(q: Array, k: Array, v: Array, kept: Array | bool = True, cap: float = math.inf, bias: Any = 0.0) -> Array:
    scores = np.einsum("...id,...jd->...ij", q, k) / math.sqrt(q.shape[-1])
    scores = scores if math.isinf(cap) else cap * np.tanh(scores / cap)
    weights = np.where(kept, np.exp(scores + bias), 0.0)
    return np.einsum("...ij,...jd->...id", weights / weights.sum(-1, keepdims=True), v)


def attend_visible(q: Array, k: Array, v: Array, window: int | None = None) -> Array:
    return attend(q, k, v, visible(q.shape[1], k.shape[1], window))


def attend_alibi(q: Array, k: Array, v: Array, slopes: Array) -> Array:
    queries, keys = q.shape[1], k.shape[1]
    distance = np.arange(keys) - (np.arange(queries)[:, None] + keys - queries)
    return attend(q, k, v, visible(queries, keys), bias=slopes[:, None, None] * distance)


def attend_latent(q: Array, kv: Array, first: int = 0) -> Array:
    latent = workloads.get("mla").cpu.shape["latent_dim"]
    return attend(q, kv, kv[..., first : first + latent])


def drop_first_key(definition: Callable[..., Array]) -> Callable[..., Array]:
    return lambda q, k, v: definition(q, k[:, 1:], v[:, 1:])


def log_softmax(x: Array) -> Array:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(p: Array, q: Array) -> Array:
    return (np.exp(log_softmax(p)) * (log_softmax(p) - log_softmax(q))).sum(-1)


def softmax_entropy(x: Array) -> Array:
    return -(np.exp(log_softmax(x)) * log_softmax(x)).sum(-1)


def class_loss(x: Array, target: Array) -> Array:
    return -log_softmax(x)[np.arange(len(x)), target.astype(int)]


def centred(x: Array) -> Array:
    return x - x.mean(-1, keepdims=True)


def inertia(mass: Array, position: Array, centre: Array | None = None) -> Array:
    if centre is None:
        centre = (mass[..., None] * position).sum(1, keepdims=True) / mass.sum(1)[:, None, None]
    return (mass * ((position - centre) ** 2).sum(-1)).sum(1)


def rms_linear(x: Array, gain: Array, weight: Array) -> Array:
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain) @ weight


def layer_linear(x: Array, gain: Array, bias: Array, weight: Array) -> Array:
    return (centred(x) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias) @ weight


def normalised_product(x1: Array, x2: Array, offset: float = 10.0) -> Array:
    return (x1 * x2).sum(-1) / np.sqrt(np.maximum((x1 * x1).sum(-1) - offset, 1.0))


# Name: (definition, a near miss that the tolerance must tell from it).
DEFINITIONS: dict[str, tuple[Definition, Definition]] = {
    "attention": (attend, drop_first_key(attend)),
    "attention_causal": (attend_visible, drop_first_key(attend_visible)),
    "attention_mask": (attend, lambda q, k, v, mask: attend(q, k, v)),
    "attention_softcap": (partial(attend, cap=50.0), partial(attend, cap=49.0)),
    "attention_alibi": (attend_alibi, lambda q, k, v, slopes: attend_alibi(q, k, v, slopes[::-1])),
    "attention_gqa": (
        lambda q, k, v: attend(q, np.repeat(k, GQA_GROUP, axis=0), np.repeat(v, GQA_GROUP, axis=0)),
        lambda q, k, v: attend(q, np.tile(k, (GQA_GROUP, 1, 1)), np.tile(v, (GQA_GROUP, 1, 1))),
    ),
    "attention_window": (partial(attend_visible, window=WINDOW), partial(attend_visible, window=WINDOW + 1)),
    "mla": (attend_latent, lambda q, kv: attend_latent(q, kv, first=1)),
    "softmax": (lambda x: np.exp(log_softmax(x)), lambda x: np.exp(log_softmax(np.maximum(x, -2.0)))),
    "softmax_stats": (
        lambda x: (x.max(-1), np.exp(x - x.max(-1, keepdims=True)).sum(-1)),
        lambda x: (x.max(-1), np.exp(x).sum(-1)),
    ),
    "logsumexp": (lambda x: np.log(np.exp(x).sum(-1)), lambda x: np.log(np.exp(x[:, 1:]).sum(-1))),
    "cross_entropy": (class_loss, lambda x, target: class_loss(x, target - 1)),
    "entropy": (softmax_entropy, lambda x: softmax_entropy(x[:, 1:])),
    "kl_divergence": (divergence, lambda p, q: divergence(q, p)),
    "variance": (lambda x: x.var(-1), lambda x: x.var(-1, ddof=1)),
    "third_moment": (lambda x: (centred(x) ** 3).mean(-1), lambda x: (x**3).mean(-1)),
    "covariance": (lambda x, y: (centred(x) * centred(y)).mean(-1), lambda x, y: (x * y).mean(-1)),
    "inertia": (inertia, lambda mass, position: inertia(mass, position, position.mean(1, keepdims=True))),
    "rmsnorm_gemm": (rms_linear, lambda x, gain, weight: rms_linear(centred(x), gain, weight)),
    "layernorm_gemm": (layer_linear, lambda x, gain, bias, weight: layer_linear(x, gain, 0 * bias, weight)),
    "sum_sum": (normalised_product, lambda x1, x2: normalised_product(x1, x2, offset=9.0)),
}


def run(job: Workload, arrays: list[Array]) -> list[Array]:
    """Outputs of the unfused program, in buffers that start with every byte 255: NaN, or −1."""
    outputs = []
    for tensor in job.program.outputs:
        outputs.append(np.full(math.prod(extents(tensor)) * dtype_of(tensor).itemsize, 255, np.uint8))
    tensors = [
        tvm.runtime.tensor(poison.view(dtype_of(tensor)).reshape(extents(tensor)))
        for poison, tensor in zip(outputs, job.program.outputs, strict=True)
    ]
    tvm.compile(job.build(), target="llvm")["main"](*map(tvm.runtime.tensor, arrays), *tensors)
    return [tensor.numpy() for tensor in tensors]


def as_float64(arrays: list[Array]) -> list[Array]:
    return [array.astype(np.float64) for array in arrays]


def agrees(job: Workload, found: Array, expected: Array) -> bool:
    """By the contract's floor alone; the longest of all sums may be the one over features, and over a window."""
    longest = max(job.shape.values()) * max(job.shape.get(side, 1) for side in ("first", "second")) ** 2
    return tolerance.check(found, expected, length=longest, dtype=job.dtype).ok


def test_every_own_program_has_a_definition() -> None:
    assert set(DEFINITIONS) == set(workloads.names(source="tvm-cascade"))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_program_computes_its_definition(name: str) -> None:
    job = workloads.get(name).cpu.with_length(PRIME)
    arrays = job.inputs(np.random.default_rng(7))
    definition, near_miss = DEFINITIONS[name]
    expected, missed = definition(*as_float64(arrays)), near_miss(*as_float64(arrays))
    if not isinstance(expected, tuple):
        expected, missed = (expected,), (missed,)
    found = run(job, arrays)
    assert all(agrees(job, output, right) for output, right in zip(found, expected, strict=True))
    assert not all(agrees(job, output, wrong) for output, wrong in zip(found, missed, strict=True))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["attention_causal", "variance", "rmsnorm_gemm"])
def test_dtypes_round_only_what_they_store(name: str, dtype: str) -> None:
    job = workloads.get(name).cpu.with_dtype(dtype)
    arrays = job.inputs(np.random.default_rng(7))
    expected = DEFINITIONS[name][0](*as_float64(arrays))
    (found,) = run(job, arrays)
    assert str(found.dtype) == dtype
    assert agrees(job, found, expected)


def test_batch_is_an_axis_of_its_own() -> None:
    job = workloads.get("H4").cpu
    arrays = job.inputs(np.random.default_rng(7))
    assert arrays[0].ndim == 4
    assert agrees(job, run(job, arrays)[0], attend(*as_float64(arrays)))


def test_one_decoded_query_sees_every_key() -> None:
    job = workloads.get("DC_GQA").cpu
    q, k, v = as_float64(arrays := job.inputs(np.random.default_rng(7)))
    group = q.shape[0] // k.shape[0]
    expected = attend(q, np.repeat(k, group, axis=0), np.repeat(v, group, axis=0))
    assert agrees(job, run(job, arrays)[0], expected)


@pytest.mark.parametrize("name", ["R5", "moe_routing"])
def test_routing_gives_the_largest_shares_in_order(name: str) -> None:
    job = workloads.get(name).cpu
    given = as_float64(arrays := job.inputs(np.random.default_rng(7)))
    shares = np.exp(log_softmax(given[0] @ given[1] if len(given) == 2 else given[0]))
    order = np.argsort(-shares, axis=-1)[:, : job.shape["topk"]]
    weights, ids = run(job, arrays)
    assert np.array_equal(ids, order)
    assert agrees(job, weights, np.take_along_axis(shares, order, axis=-1))


@pytest.mark.parametrize("name", ["Q1", "ptpc_gemm"])
def test_quantised_gemm_is_the_product_up_to_float8_rounding(name: str) -> None:
    job = workloads.get(name).cpu
    x, weight, *scales = as_float64(arrays := job.inputs(np.random.default_rng(7)))
    weight = (weight * scales[0][:, None]).T if scales else weight
    found = run(job, arrays)[0].astype(np.float64)

    def within_rounding(expected: Array) -> bool:
        # 2.7 % is what rounding to three bits of mantissa costs on normal data. TVM's LLVM path may cost less: it keeps
        # a float8 temporary in float16.
        return bool(np.linalg.norm(found - expected) <= 0.03 * np.linalg.norm(expected))

    assert within_rounding(x @ weight)
    assert not within_rounding(x[:, 1:] @ weight[1:])


def test_quantised_gemm_casts_to_float8_at_each_tokens_own_scale() -> None:
    text = workloads.get("Q1").build().script()
    assert 'T.Cast("float8_e4m3fn", T.Cast("float32", x[v_token, v_k]) / scale[v_token])' in text


def test_a_token_of_zeros_is_quantised_to_zeros() -> None:
    job = workloads.get("Q1").cpu
    assert not run(job, job.inputs(np.random.default_rng(7), "zeros"))[0].any()
