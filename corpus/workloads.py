"""The workloads as data: RedFuser's 52 rows and 3 examples, Neptune's ten operators, our own, and those of servers.

    import numpy as np
    from corpus import workloads

    job = workloads.get("attention").with_shape(queries=1024, keys=1024)
    function = job.build()                                # unfused S-TIR, named "main"
    arrays = job.inputs(np.random.default_rng(0))         # in the order of the parameters

Every workload has a twin (`.cpu`) of the same program, small enough for a float64 oracle in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from corpus.programs import (
    attention,
    caches,
    chain,
    head,
    moments,
    normalisation,
    product,
    quantised,
    routing,
    softmax,
)
from corpus.programs.program import Builder
from corpus.workload import Workload, WorkloadError
from tvm_cascade.errors import near

_NEPTUNE_LENGTH = 4096
_NEPTUNE_HEAD_DIM = 128
_NEPTUNE_WINDOW = 4096


@dataclass(frozen=True)
class _Table:
    """Workloads of one program, all summed in float32: a row is a name and its extents, in the order of `columns`."""

    family: str
    source: str
    builder: Builder
    dtype: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[int, ...]]
    length: tuple[str, ...]

    def workloads(self) -> Iterator[Workload]:
        for name, extents in self.rows.items():
            shape = dict(zip(self.columns, extents, strict=True))
            yield Workload(name, self.family, self.source, shape, self.dtype, "float32", self.builder, self.length)


def _variant(name: str) -> Builder:
    return attention.attention(attention.VARIANTS[name])


_HEADS = ("batch", "heads", "queries", "keys", "head_dim")
_LATENT = ("batch", "heads", "keys", "latent_dim", "rope_dim")
_ROUTER = ("tokens", "hidden", "experts", "topk")
_LINEAR = ("tokens", "columns", "hidden")
_ROWS = ("rows", "length")


def _grid(prefix: str) -> Mapping[str, tuple[int, int]]:
    """RedFuser's grid of rows and lengths: <prefix>1 to <prefix>8, odd ones short."""
    sizes = [(rows, length) for rows in (1, 128, 512, 1024) for length in (8192, 32768)]
    return {f"{prefix}{number}": size for number, size in enumerate(sizes, start=1)}


# RedFuser (arXiv 2603.10026), tables 2a to 2d and 3. It states no dtypes; its public examples store float16 and
# accumulate in float32, and its table 3 (variance, inertia) is not about machine learning: float32 here.
_REDFUSER = (
    _Table(
        "attention", "RedFuser table 2a", _variant("full"), "float16", _HEADS,
        {
            "H1": (32, 8, 512, 512, 64),
            "H2": (32, 12, 512, 512, 64),
            "H3": (32, 16, 512, 512, 64),
            "H4": (32, 12, 256, 256, 64),
            "H5": (32, 16, 256, 256, 64),
            "H6": (32, 16, 256, 256, 80),
        },
        length=("queries", "keys"),
    ),
    _Table(
        "attention", "RedFuser table 2a", _variant("full"), "float16", _HEADS,
        {
            "H7": (32, 64, 1, 1024, 128),
            "H8": (32, 64, 1, 2048, 128),
            "H9": (32, 64, 1, 4096, 128),
        },
        length=("keys",),
    ),
    _Table(
        "mla", "RedFuser table 2b", caches.latent_attention, "float16", _LATENT,
        {
            "L1": (32, 128, 1024, 512, 64),
            "L2": (32, 128, 2048, 512, 64),
            "L3": (32, 128, 4096, 512, 64),
            "L4": (16, 128, 1024, 512, 64),
            "L5": (16, 128, 2048, 512, 64),
            "L6": (16, 128, 4096, 512, 64),
            "L7": (1, 128, 1024, 512, 64),
            "L8": (1, 128, 2048, 512, 64),
            "L9": (1, 128, 4096, 512, 64),
        },
        length=("keys",),
    ),
    _Table(
        "routing", "RedFuser table 2c", routing.routing, "float16", _ROUTER,
        {
            "R1": (2048, 768, 128, 1),
            "R2": (2048, 1024, 128, 1),
            "R3": (2048, 4096, 128, 1),
            "R4": (2048, 2560, 64, 6),
            "R5": (2048, 8192, 64, 8),
            "R6": (2048, 2048, 64, 6),
            "R7": (2048, 2048, 128, 8),
            "R8": (2048, 4096, 128, 8),
        },
        length=("experts",),
    ),
    _Table(
        "quantised", "RedFuser table 2d", quantised.quantised_gemm, "float16", _LINEAR,
        {
            "Q1": (4096, 1536, 2560),
            "Q2": (4096, 2560, 1536),
            "Q3": (4096, 3584, 8192),
            "Q4": (4096, 8192, 3584),
            "Q5": (4096, 7168, 2048),
            "Q6": (4096, 2048, 7168),
            "Q7": (4096, 2048, 768),
            "Q8": (4096, 768, 2048),
            "Q9": (4096, 4096, 1536),
            "Q10": (4096, 1536, 4096),
        },
        length=("hidden",),
    ),
    _Table("moments", "RedFuser table 3", moments.variance, "float32", _ROWS, _grid("V"), length=("length",)),
    _Table("moments", "RedFuser table 3", moments.inertia, "float32", _ROWS, _grid("I"), length=("length",)),
)  # fmt: skip

# What the programs compute that RedFuser's repository writes by hand, in python/tvm/redfuser/example.
_EXAMPLES = (
    _Table(
        "attention", "alibaba/redfuser tir_flashdecoding.py", _variant("full"), "float16", _HEADS,
        {"flashdecoding": (128, 16, 512, 512, 64)},
        length=("queries", "keys"),
    ),
    _Table(
        "routing", "alibaba/redfuser tir_moe_routing.py", routing.routing, "float16", ("tokens", "experts", "topk"),
        {"moe_routing": (4096, 4096, 8)},
        length=("experts",),
    ),
    _Table(
        "quantised", "alibaba/redfuser tir_ptpc_gemm.py", quantised.quantised(quantised.Quantised(columns=True)),
        "float16", ("tokens", "columns", "features"),
        {"ptpc_gemm": (4096, 4096, 4096)},
        length=("features",),
    ),
)  # fmt: skip

_PREFILL = {
    # name: (variant, heads, kv_heads)
    "PF_GLOBAL": ("full", 32, 32),
    "PF_CAUSAL": ("causal", 32, 32),
    "PF_ALIBI": ("causal_alibi", 32, 32),
    "PF_GQA": ("causal", 64, 8),
    "PF_SOFTCAP": ("causal_softcap", 32, 16),
    "PF_WINDOWED": ("window_softcap", 32, 8),
}
_DECODE = {
    "DC_CAUSAL": ("full", 32, 32),
    "DC_ALIBI": ("alibi", 32, 32),
    "DC_GQA": ("full", 64, 8),
    "DC_SOFTCAP": ("softcap", 32, 16),
}


def _neptune() -> Iterator[_Table]:
    """Neptune's ten operators at its length 4096; `Workload.with_length` gives its others, 2^8 to 2^15."""
    for operators, queries, length in ((_PREFILL, _NEPTUNE_LENGTH, ("queries", "keys")), (_DECODE, 1, ("keys",))):
        for name, (variant, heads, kv_heads) in operators.items():
            shape = {"heads": heads, "kv_heads": kv_heads, "queries": queries, "keys": _NEPTUNE_LENGTH}
            shape["head_dim"] = _NEPTUNE_HEAD_DIM
            if variant.startswith("window"):
                shape["window"] = _NEPTUNE_WINDOW
            row = {name: tuple(shape.values())}
            yield _Table("attention", "Neptune", _variant(variant), "float16", tuple(shape), row, length)


def _own(family: str, name: str, builder: Builder, length: str, /, **shape: int) -> _Table:
    return _Table(family, "tvm-cascade", builder, "float32", tuple(shape), {name: tuple(shape.values())}, (length,))


_SQUARE = {"heads": 8, "queries": 512, "keys": 512, "head_dim": 64}
_MATRIX = {"rows": 1024, "length": 8192}
_LAYER = {"tokens": 512, "columns": 1024, "hidden": 1024}
_OURS = (
    _own("attention", "attention", _variant("full"), "keys", **_SQUARE),
    _own("attention", "attention_causal", _variant("causal"), "keys", **_SQUARE),
    _own("attention", "attention_mask", _variant("mask"), "keys", **_SQUARE),
    _own("attention", "attention_softcap", _variant("softcap"), "keys", **_SQUARE),
    _own("attention", "attention_alibi", _variant("causal_alibi"), "keys", **_SQUARE),
    _own("attention", "attention_gqa", _variant("full"), "keys", **_SQUARE, kv_heads=2),
    _own("attention", "attention_window", _variant("window"), "keys", **_SQUARE, window=128),
    _own("mla", "mla", caches.latent_attention, "keys", batch=1, heads=16, keys=1024, latent_dim=512, rope_dim=64),
    _own("softmax", "softmax", softmax.softmax, "length", **_MATRIX),
    _own("softmax", "softmax_stats", softmax.softmax_stats, "length", **_MATRIX),
    _own("softmax", "logsumexp", softmax.logsumexp, "length", **_MATRIX),
    _own("softmax", "cross_entropy", softmax.cross_entropy, "length", **_MATRIX),
    _own("softmax", "entropy", softmax.entropy, "length", **_MATRIX),
    _own("softmax", "kl_divergence", softmax.kl_divergence, "length", **_MATRIX),
    _own("moments", "variance", moments.variance, "length", **_MATRIX),
    _own("moments", "inertia", moments.inertia, "length", **_MATRIX),
    _own("moments", "covariance", moments.covariance, "length", **_MATRIX),
    _own("moments", "third_moment", moments.third_moment, "length", **_MATRIX),
    _own("normalisation", "rmsnorm_gemm", normalisation.rmsnorm_gemm, "hidden", **_LAYER),
    _own("normalisation", "layernorm_gemm", normalisation.layernorm_gemm, "hidden", **_LAYER),
    _own("normalisation", "sum_sum", normalisation.sum_sum, "length", **_MATRIX),
)


def _served(family: str, name: str, builder: Builder, length: str, dtype: str, /, **shape: int) -> _Table:
    return _Table(family, SERVING, builder, dtype, tuple(shape), {name: tuple(shape.values())}, (length,))


def _decode(variant: str, where: caches.Cache = caches.CONTIGUOUS, cached: str | None = None) -> Builder:
    return attention.attention(attention.VARIANTS[variant], cached=cached, cache=where)


SERVING = "serving"
"""The source of programs that a server of language models runs between prefills, and of plain products."""

_CACHED = {"batch": 16, "heads": 32, "kv_heads": 8, "queries": 1, "keys": 4096, "head_dim": 128}
_DRAFTED = {**_CACHED, "queries": 4}
_UNEVEN = {**_CACHED, "batch": 64, "heads": 64, "keys": 8000, "shortest": 100}
_PREFIX = {**_CACHED, "batch": 64, "keys": 8448, "prefix": 8192}
_MLA = {"batch": 32, "heads": 128, "keys": 4096, "latent_dim": 512, "rope_dim": 64}
_EXPANDED = {"batch": 1, "heads": 128, "queries": 4096, "keys": 4096, "head_dim": 192, "value_dim": 128}
_FLOAT8 = product.Product(b_transposed=True, operands="float8_e4m3fn")
_CUBE = {"m": 4096, "n": 4096, "k": 4096}
_CHAIN = {"m": 128, "n": 2048, "k": 512, "l": 512}
_CONVOLVED = {"batch": 1, "height": 56, "width": 56, "k": 64, "n": 64, "l": 256, "first": 3, "second": 1}
_NORMED_SHAPE = {"tokens": 4096, "features": 4096, "columns": 4096}
_HEAD = {"tokens": 4096, "hidden": 4096, "classes": 128256}
_SERVED = (
    _served("decode", "decode", _decode("full"), "keys", "bfloat16", **_CACHED),
    _served("decode", "decode_draft", _decode("causal"), "keys", "bfloat16", **_DRAFTED),
    _served("decode", "decode_tree", _decode("tree"), "keys", "bfloat16", **_DRAFTED),
    _served("decode", "decode_alibi", _decode("causal_alibi"), "keys", "bfloat16", **_CACHED),
    _served("decode", "decode_softcap", _decode("causal_softcap"), "keys", "bfloat16", **_CACHED),
    _served("decode", "decode_window", _decode("window"), "keys", "bfloat16", **_CACHED, window=1024),
    _served("decode", "decode_sink", _decode("sink"), "keys", "bfloat16", **_CACHED),
    _served("decode", "decode_float8", _decode("full", cached="float8_e4m3fn"), "keys", "bfloat16", **_CACHED),
    _served("decode", "decode_lengths", _decode("full", caches.RAGGED), "keys", "bfloat16", **_UNEVEN),
    _served("decode", "decode_paged", _decode("full", caches.PAGED), "keys", "bfloat16", **_UNEVEN, page=16),
    _served("decode", "decode_prefix", _decode("full", caches.PREFIXED), "keys", "bfloat16", **_PREFIX),
    _served("mla", "mla_paged", caches.paged_latent_attention, "keys", "bfloat16", **_MLA, shortest=100, page=64),
    _served("mla", "mla_prefill", _decode("causal"), "keys", "bfloat16", **_EXPANDED),
    _served("head", "head_cross_entropy", head.head(head.CROSS_ENTROPY), "classes", "bfloat16", **_HEAD),
    _served("head", "head_log_sum_exp", head.head(head.LOG_SUM_EXP), "classes", "bfloat16", **_HEAD),
    _served("head", "head_entropy", head.head(head.ENTROPY), "classes", "bfloat16", **_HEAD),
    _served("head", "head_divergence", head.head(head.DIVERGENCE), "classes", "bfloat16", **_HEAD),
    _served("head", "head_training_loss", head.head(head.TRAINING_LOSS), "classes", "bfloat16", **_HEAD),
    _served("head", "head_best", head.head(head.BEST), "classes", "bfloat16", **_HEAD),
    _served("head", "head_sample", head.head(head.SAMPLE), "classes", "bfloat16", **_HEAD),
    _served("head", "head_best_few", head.head(head.BEST_FEW), "classes", "bfloat16", **_HEAD, ranks=8),
    *(
        _served("normed", name, normalisation.normed(form), "features", "bfloat16", **_NORMED_SHAPE)
        for name, form in (
            ("normed_rms", normalisation.Normed()),
            ("normed_rms_plain", normalisation.Normed(gain=False)),
            ("normed_layer", normalisation.Normed(centred=True)),
            ("normed_gated", normalisation.Normed(gated=True)),
        )
    ),
    _served("chain", "chain", chain.chain(chain.Chain("relu")), "k", "float16", **_CHAIN),
    _served("chain", "chain_gated", chain.chain(chain.Chain("silu", gated=True)), "k", "float16", **_CHAIN),
    _served("chain", "chain_convolved", chain.chain_convolved("relu"), "k", "float16", **_CONVOLVED),
    _served("product", "product", product.product(product.Product()), "k", "bfloat16", **_CUBE),
    _served("product", "product_nt", product.product(product.Product(b_transposed=True)), "k", "bfloat16", **_CUBE),
    _served("product", "product_tn", product.product(product.Product(a_transposed=True)), "k", "bfloat16", **_CUBE),
    _served(
        "product", "product_batched", product.product(product.Product()), "k", "bfloat16", batch=64, m=512, n=512, k=512
    ),
    _served(
        "product",
        "product_gelu",
        product.product(product.Product(bias=True, activation="gelu")),
        "k",
        "bfloat16",
        **_CUBE,
    ),
    _served("product", "product_float8", product.product(_FLOAT8), "k", "bfloat16", **_CUBE),
    _served("product", "product_float32", product.product(product.Product()), "k", "float32", **_CUBE),
)


@cache
def registry() -> Mapping[str, Workload]:
    """Each by its name."""
    rows = [row for table in (*_REDFUSER, *_neptune(), *_EXAMPLES, *_OURS, *_SERVED) for row in table.workloads()]
    return {row.name: row for row in rows}


_LISTED = "`python -m corpus programs` lists all"


def get(name: str) -> Workload:
    """The workload of that name.

    Raises
    ------
    WorkloadError
        When there is none; the error lists names that are near.
    """
    known = registry()
    if name in known:
        return known[name]
    raise WorkloadError("the name of a workload", repr(name), hint=near(name, known) or _LISTED)


def names(family: str | None = None, source: str | None = None) -> tuple[str, ...]:
    """Names of all workloads, or of one family, or from one source.

    Raises
    ------
    WorkloadError
        When no workload is of that family or from that source.
    """
    rows = registry().values()
    for attribute, wanted in (("family", family), ("source", source)):
        known = dict.fromkeys(getattr(row, attribute) for row in rows)
        if wanted is not None and wanted not in known:
            raise WorkloadError(f"a {attribute} among {', '.join(known)}", repr(wanted))
    return tuple(row.name for row in rows if family in (None, row.family) and source in (None, row.source))
