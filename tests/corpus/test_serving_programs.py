"""Programs of servers, and plain products: through LLVM, unfused, each computes its definition in float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.corpus.test_programs import agrees, as_float64, attend, run

from corpus import workloads
from corpus.programs import attention, caches, head
from corpus.programs.caches import lengths_of, pages_of
from corpus.workload import Workload

from ..tiers import quick_but

Array = NDArray[Any]
Answer = Callable[[Workload, list[Array]], Array]
"""From the workload and its inputs to the output."""


def one_by_one(job: Workload, q: Array, sequences: Iterator[tuple[Array, Array]], **options: Any) -> Array:
    """Each sequence on its own, its keys and values [kv_head, position, feature] repeated for the heads of a group."""
    out = []
    for number, (k, v) in enumerate(sequences):
        group = q.shape[1] // k.shape[0]
        queries, keys = q.shape[2], k.shape[1]
        given = {name: option(number, queries, keys) for name, option in options.items()}
        out.append(attend(q[number], np.repeat(k, group, 0), np.repeat(v, group, 0), **given))
    return np.stack(out)


def distance(queries: int, keys: int) -> Array:
    """How far a key is before the last one that a query sees."""
    return np.arange(queries)[:, None] + keys - queries - np.arange(keys)


def causal(_number: int, queries: int, keys: int) -> Array:
    return distance(queries, keys) >= 0


def plain(
    job: Workload, arrays: list[Array], kept: Callable[[int, int, int], Array] = causal, cap: Any = None
) -> Array:
    q, k, v, *_ = arrays
    options: dict[str, Any] = {"kept": kept}
    if cap is not None:
        options["cap"] = lambda *_: cap
    return one_by_one(job, q, zip(k, v, strict=True), **options)


def unmasked(job: Workload, arrays: list[Array]) -> Array:
    return plain(job, arrays, lambda _number, queries, keys: np.ones((queries, keys), bool))


def tree(job: Workload, arrays: list[Array], flipped: bool = False) -> Array:
    def kept(number: int, queries: int, keys: int) -> Array:
        draft = arrays[3][number].astype(bool)
        return np.hstack([np.ones((queries, keys - queries), bool), draft.T if flipped else draft])

    return plain(job, arrays, kept)


def alibi(job: Workload, arrays: list[Array], sign: float = -1.0) -> Array:
    q, k, v, slopes = arrays
    bias = lambda _number, queries, keys: sign * slopes[:, None, None] * distance(queries, keys)  # noqa: E731
    return one_by_one(job, q, zip(k, v, strict=True), bias=bias, kept=causal)


def window(job: Workload, arrays: list[Array], wider: int = 0) -> Array:
    def kept(_number: int, queries: int, keys: int) -> Array:
        found = distance(queries, keys)
        return (found >= 0) & (found < job.shape["window"] + wider)

    return plain(job, arrays, kept)


def sink(job: Workload, arrays: list[Array], scale: float = 1.0) -> Array:
    """A further key of the sink's score, whose value is zero."""
    q, k, v, score = arrays
    group, out = q.shape[1] // k.shape[1], np.empty_like(q)
    for b, h in np.ndindex(*q.shape[:2]):
        scores = q[b, h] @ k[b, h // group].T / np.sqrt(q.shape[-1])
        scores = np.where(distance(*scores.shape) >= 0, scores, -np.inf)
        weights, own = np.exp(scores), scale * np.exp(score[h])
        out[b, h] = weights @ v[b, h // group] / (weights.sum(-1, keepdims=True) + own)
    return out


def cut(job: Workload, arrays: list[Array], longer: int = 0) -> Array:
    q, k, v, lengths = arrays
    ends = (lengths + longer).astype(int)
    sequences = ((k[b, :, :end], v[b, :, :end]) for b, end in enumerate(ends))
    return one_by_one(job, q, sequences, kept=causal)


def gathered(pages: Array, table: Array, length: int) -> Array:
    """The positions of one sequence, outermost."""
    return np.concatenate(pages[table.astype(int)])[:length]


def paged(job: Workload, arrays: list[Array], first: int = 0) -> Array:
    q, k, v, table, lengths = arrays
    sequences = (
        tuple(np.moveaxis(gathered(x, np.roll(row, first), int(length)), 0, 1) for x in (k, v))
        for row, length in zip(table, lengths, strict=True)
    )
    return one_by_one(job, q, sequences, kept=causal)  # type: ignore[arg-type]


def prefixed(job: Workload, arrays: list[Array], keep: bool = True) -> Array:
    q, k_prefix, k, v_prefix, v = arrays
    join = (lambda shared, own: np.concatenate([shared, own], axis=1)) if keep else (lambda shared, own: own)
    return one_by_one(job, q, ((join(k_prefix, x), join(v_prefix, y)) for x, y in zip(k, v, strict=True)))


def paged_latent(job: Workload, arrays: list[Array], shorter: int = 0) -> Array:
    q, pages, table, lengths = arrays
    out = []
    for row, length, query in zip(table, lengths, q, strict=True):
        kv = gathered(pages, row, int(length) - shorter)
        out.append(attend(query, kv, kv[:, : job.shape["latent_dim"]]))
    return np.stack(out)


def product(job: Workload, arrays: list[Array], turned: str = "", bias: float = 1.0) -> Array:
    a, b, *_ = arrays
    a, b = (np.swapaxes(x, -1, -2) if name in turned else x for x, name in ((a, "a"), (b, "b")))
    if len(arrays) == 2:
        return a @ b
    x = a @ b + bias * arrays[2]
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def logits_of(job: Workload, arrays: list[Array], shifted: int = 0) -> Array:
    """The logits of a head, and the classes from one on."""
    return (arrays[0] @ arrays[1].T / np.sqrt(job.shape["hidden"]))[:, shifted:]


def log_softmax(logits: Array) -> Array:
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def log_sum_exp(job: Workload, arrays: list[Array], shifted: int = 0) -> Array:
    return np.log(np.exp(logits_of(job, arrays, shifted)).sum(1))


def chosen(values: Array, target: Array, shifted: int = 0) -> Array:
    return values[np.arange(len(values)), (target.astype(int) + shifted) % values.shape[1]]


def cross_entropy(job: Workload, arrays: list[Array], shifted: int = 0) -> Array:
    return -chosen(log_softmax(logits_of(job, arrays)), arrays[2], shifted)


def entropy(job: Workload, arrays: list[Array], shifted: int = 0) -> Array:
    log_p = log_softmax(logits_of(job, arrays, shifted) / arrays[2][:, None])
    return -(np.exp(log_p) * log_p).sum(1)


def divergence(job: Workload, arrays: list[Array], turned: bool = False) -> Array:
    own, teacher = (log_softmax(logits_of(job, pair)) for pair in (arrays[:2], arrays[2:]))
    p, q = (own, teacher) if turned else (teacher, own)
    return (np.exp(p) * (p - q)).sum(1)


def training_loss(job: Workload, arrays: list[Array], smoothed: float = head.SMOOTHED) -> Array:
    capped, target = head.CAP * np.tanh(logits_of(job, arrays) / head.CAP), arrays[2]
    log_p, log_sum = log_softmax(capped), np.log(np.exp(capped).sum(1))
    own = -(1 - smoothed) * chosen(log_p, target) - smoothed * log_p.mean(1) + head.Z_WEIGHT * log_sum**2
    return np.where(target == head.IGNORED, 0.0, own)


def sample(job: Workload, arrays: list[Array], seeded: int = 0) -> Array:
    """With the hash in Python's own integers."""
    logits, seed, temperature = logits_of(job, arrays), arrays[2].astype(np.int64) + seeded, arrays[3]

    def mixed(h: int) -> int:
        for shift, factor in head.MIXING:
            h = (h ^ h >> shift) * factor % 2**32
        return h ^ h >> head.MIXING[0][0]

    uniform = [[mixed(int(s) % 2**32 ^ mixed(c)) // 2**9 + 0.5 for c in range(logits.shape[1])] for s in seed]
    noise = -np.log(-np.log(np.array(uniform) / 2**23))
    return (logits / temperature[:, None] + noise).argmax(1)


def best_few(job: Workload, arrays: list[Array], shifted: int = 0) -> Array:
    log_p = log_softmax(logits_of(job, arrays))
    return -np.sort(-log_p, axis=1)[:, shifted : job.shape["ranks"] + shifted]


def normed(
    job: Workload,
    arrays: list[Array],
    gain: float = 0.0,
    bias: float = 0.0,
    shift: float = 0.0,
    swapped: bool = False,
) -> Array:
    """A linear layer behind a normalisation, with so much of its gain and of its bias."""
    builder: Any = job.builder
    (form,) = builder.args
    x, own = arrays[0] - arrays[0].mean(-1, keepdims=True) * form.centred, arrays[1 + form.gain :]
    normalised = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) + shift
    if form.gain:
        normalised = normalised * (gain * arrays[1] + 1.0 - gain)
    if form.centred:
        normalised, own = normalised + bias * arrays[2], own[1:]
    first, *others = [normalised @ weight.T for weight in (reversed(own) if swapped else own)]
    return first / (1.0 + np.exp(-first)) * others[0] if others else first


def chain(job: Workload, arrays: list[Array], inner: int | None = None, swapped: bool = False) -> Array:
    """Two linear layers, over so many of the hidden features."""
    x, *weights, down = arrays
    first, *others = [x @ weight.T for weight in (weights[::-1] if swapped else weights)]
    hidden = first / (1.0 + np.exp(-first)) * others[0] if others else np.maximum(first, 0.0)
    return hidden[:, :inner] @ down[:, :inner].T


def convolve(image: Array, weight: Array, further: int = 0) -> Array:
    """A convolution, place by place of its windows, which begin so much further on."""
    weight = weight if weight.ndim == 4 else weight[:, None, None]
    (_, height, width, _), side = image.shape, weight.shape[1]
    around = np.pad(image, ((0, 0), (side, side), (side, side), (0, 0)))
    first, found = side - side // 2 + further, np.zeros((*image.shape[:3], len(weight)))
    for p, q in np.ndindex(side, side):
        found += around[:, first + p : first + p + height, first + q : first + q + width] @ weight[:, p, q].T
    return found


def convolved(job: Workload, arrays: list[Array], further: int = 0) -> Array:
    image, up, down = arrays
    return convolve(np.maximum(convolve(image, up, further), 0.0), down)


def without_last(definition: Answer) -> Answer:
    return lambda job, arrays: definition(job, [arrays[0][..., :-1], arrays[1][..., :-1, :], *arrays[2:]])


# Name: (definition, a near miss that the tolerance must tell from it).
DEFINITIONS: dict[str, tuple[Answer, Answer]] = {
    "decode": (unmasked, lambda job, x: unmasked(job, [x[0], x[1][:, :, 1:], x[2][:, :, 1:]])),
    "decode_draft": (plain, unmasked),
    "decode_tree": (tree, partial(tree, flipped=True)),
    "decode_alibi": (alibi, partial(alibi, sign=1.0)),
    "decode_softcap": (partial(plain, cap=50.0), partial(plain, cap=5.0)),
    "decode_window": (window, partial(window, wider=1)),
    "decode_sink": (sink, partial(sink, scale=0.0)),
    "decode_float8": (unmasked, lambda job, x: unmasked(job, [x[0], x[1], x[2][:, ::-1]])),
    "decode_lengths": (cut, partial(cut, longer=-1)),
    "decode_paged": (paged, partial(paged, first=1)),
    "decode_prefix": (prefixed, partial(prefixed, keep=False)),
    "mla_paged": (paged_latent, partial(paged_latent, shorter=1)),
    "mla_prefill": (plain, unmasked),
    "head_cross_entropy": (cross_entropy, partial(cross_entropy, shifted=1)),
    "head_log_sum_exp": (log_sum_exp, partial(log_sum_exp, shifted=1)),
    "head_entropy": (entropy, partial(entropy, shifted=1)),
    "head_divergence": (divergence, partial(divergence, turned=True)),
    "head_training_loss": (training_loss, partial(training_loss, smoothed=0.0)),
    "head_best": (
        lambda job, x: logits_of(job, x).argmax(1),
        lambda job, x: logits_of(job, x, shifted=1).argmax(1),
    ),
    "head_sample": (sample, partial(sample, seeded=1)),
    "head_best_few": (best_few, partial(best_few, shifted=1)),
    "normed_rms": (partial(normed, gain=1.0), partial(normed, gain=0.0)),
    "normed_rms_plain": (normed, partial(normed, shift=0.1)),
    "normed_layer": (partial(normed, gain=1.0, bias=1.0), partial(normed, gain=1.0)),
    "normed_gated": (partial(normed, gain=1.0), partial(normed, gain=1.0, swapped=True)),
    "chain": (chain, partial(chain, inner=-1)),
    "chain_gated": (chain, partial(chain, swapped=True)),
    "chain_convolved": (convolved, partial(convolved, further=1)),
    "product": (product, without_last(product)),
    "product_nt": (partial(product, turned="b"), lambda job, x: product(job, [x[0], x[1][::-1]], turned="b")),
    "product_tn": (partial(product, turned="a"), lambda job, x: product(job, [x[0][:, ::-1], x[1]], turned="a")),
    "product_batched": (product, without_last(product)),
    "product_gelu": (product, partial(product, bias=0.0)),
    "product_float8": (partial(product, turned="b"), lambda job, x: product(job, [x[0], x[1][::-1]], turned="b")),
    "product_float32": (product, without_last(product)),
}


def test_every_program_of_servers_has_a_definition() -> None:
    assert set(DEFINITIONS) == set(workloads.names(source=workloads.SERVING))


OTHERS = {"decode_window", "decode_alibi", "decode_softcap"}
"""Decoded with the score maps and masks that test_programs.py has."""


@pytest.mark.parametrize("name", quick_but(OTHERS, DEFINITIONS))
def test_program_computes_its_definition(name: str) -> None:
    job = workloads.get(name).cpu
    if "float8" not in name:  # TVM's LLVM path rounds sums of float8 products to float16
        job = job.with_dtype("float32")  # whose tolerance tells every near miss
    arrays = job.inputs(np.random.default_rng(7))
    definition, near_miss = DEFINITIONS[name]
    (found,) = run(job, arrays)
    assert agrees(job, found, definition(job, as_float64(arrays)))
    assert not agrees(job, found, near_miss(job, as_float64(arrays)))


def test_both_convolutions_of_a_chain_may_have_windows_and_images_be_several() -> None:
    job = workloads.get("chain_convolved").cpu.with_dtype("float32").with_shape(batch=2, first=1, second=3)
    arrays = job.inputs(np.random.default_rng(7))
    (found,) = run(job, arrays)
    assert agrees(job, found, convolved(job, as_float64(arrays)))
    assert job.flops() == 2 * 2 * 6 * 7 * 48 * (64 + 9 * 56)


def test_lengths_go_from_the_shortest_to_the_longest_and_pages_hold_them() -> None:
    job = workloads.get("decode_paged")
    lengths = lengths_of(job.shape)
    assert (lengths.min(), lengths.max(), len(lengths)) == (100, 8000, 64)
    assert not (np.sort(lengths) == lengths).all()
    table, drawn = (argument.values(np.random.default_rng(0), "normal") for argument in job.program.arguments[-2:])
    assert np.array_equal(drawn, lengths)
    counts = pages_of(job.shape)
    assert (counts * 16 >= lengths).all() and (counts * 16 - lengths < 16).all()
    taken = np.concatenate([row[:count] for row, count in zip(table, counts, strict=True)])
    assert np.array_equal(np.sort(taken), np.arange(counts.sum())), "each page of the pool belongs to one sequence"
    assert int(job.program.arguments[1].tensor.shape[0]) == counts.sum()


@pytest.mark.parametrize("page", [1, 64, 256])
def test_pages_of_any_size_hold_the_same_sequences(page: int) -> None:
    job = workloads.get("decode_paged").cpu.with_shape(page=page, queries=4)
    arrays = job.inputs(np.random.default_rng(7))
    assert agrees(job, run(job, arrays)[0], paged(job, as_float64(arrays)))


def test_work_and_traffic_are_those_of_the_lengths() -> None:
    job = workloads.get("decode_paged")
    positions = int(lengths_of(job.shape).sum())
    assert job.flops() == 4 * 64 * 128 * positions
    traffic = 2 * 2 * 8 * 128 * 16 * int(pages_of(job.shape).sum()) + 2 * 2 * 64 * 64 * 128 + 4 * 64 * (500 + 1)
    assert job.bytes() == traffic


def test_a_cache_of_narrow_floats_leaves_the_query_wide() -> None:
    builder = attention.attention(attention.VARIANTS["full"], cached="float8_e4m3fn", cache=caches.PAGED)
    job = workloads.get("decode_paged").cpu
    dtypes = [str(x.tensor.dtype) for x in builder(job.shape, job.precision).arguments]
    assert dtypes == ["bfloat16", "float8_e4m3fn", "float8_e4m3fn", "int32", "int32"]
