"""The GPU suites of what a server runs between prefills, and of plain products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.suites.entry import Entry
from corpus import workloads
from corpus.programs.quantised import BLOCK, Quantised, quantised
from corpus.programs.routing import ROOT_SOFTPLUS, SIGMOID, Router, routed_by
from corpus.workload import Workload

NEPTUNE, REDFUSER, GROUPED, VARIANTS = "Neptune", "H7 to H9", "grouped", "variants"
"""The groups of the suite `decode`."""

_NEPTUNE_LENGTHS = (512, 2048, 8192, 32768)
_GROUPS = ((32, 8), (64, 8))
_BATCHES, _LENGTHS = (1, 16, 64), (1024, 4096, 32768)
QUERIES = (1, 4, 8)
"""How many a sequence of the grouped attentions has."""


def decode() -> list[Entry]:
    """Neptune's decode operators, RedFuser's attentions of one query, grouped queries of models, and their variants."""
    neptune = [
        _entry(f"{name} {length}", workloads.get(name).with_length(length), NEPTUNE, name)
        for name in workloads.names(source="Neptune")
        if name.startswith("DC_")
        for length in _NEPTUNE_LENGTHS
    ]
    redfuser = [_entry(name, workloads.get(name), REDFUSER) for name in ("H7", "H8", "H9")]
    variants = [_entry(name, workloads.get(name), VARIANTS) for name in workloads.names("decode") if name in _VARIANTS]
    return [*neptune, *redfuser, *_grouped(), *variants]


_VARIANTS = (
    "decode_tree",
    "decode_alibi",
    "decode_softcap",
    "decode_window",
    "decode_sink",
    "decode_lengths",
    "decode_float8",
)


def queries_group(queries: int) -> str:
    """The group of grouped attentions of so many queries."""
    return f"{queries} {'query' if queries == 1 else 'queries'}"


def grouped_label(heads: int, kv_heads: int, batch: int, keys: int, queries: int) -> str:
    """What a grouped attention's table is called: 32/8 16x4096 q1."""
    return f"{heads}/{kv_heads} {batch}x{keys} q{queries}"


def grouped_sizes() -> Iterator[tuple[int, int, int, int]]:
    """Heads, heads of keys, sequences and keys of the grouped attentions; each comes at each count of `QUERIES`."""
    for heads, kv_heads in _GROUPS:
        for batch in _BATCHES:
            for keys in _LENGTHS:
                yield heads, kv_heads, batch, keys


def _grouped() -> Iterator[Entry]:
    for heads, kv_heads, batch, keys in grouped_sizes():
        for queries in QUERIES:
            plain = workloads.get("decode" if queries == 1 else "decode_draft")
            shape = {"heads": heads, "kv_heads": kv_heads, "batch": batch, "keys": keys, "queries": queries}
            label = grouped_label(heads, kv_heads, batch, keys, queries)
            yield _entry(label, plain.with_shape(**shape), GROUPED, queries_group(queries))


LATENT, FEW_HEADS, LATENT_PAGED, EXPANDED = "L1 to L9", "fewer heads", "paged", "prefill"
"""The groups of the suite `mla`."""


LEAST_HEADS = 16


def heads_group(count: int) -> str:
    """The group of latent attentions of so many heads."""
    return f"{count} heads"


def mla() -> list[Entry]:
    """RedFuser's latent attentions, fewer heads (as on several GPUs), pages, and the prefill with its own features."""
    table = [_entry(f"L{k}", workloads.get(f"L{k}"), LATENT) for k in range(1, 10)]
    heads = [
        _entry(name, replace(workloads.get("L3"), name=name).with_shape(heads=count), FEW_HEADS, heads_group(count))
        for count in (64, 32, LEAST_HEADS)
        for name in (f"L3 {count} heads",)
    ]
    paged = [
        _entry(f"mla_paged {page}", workloads.get("mla_paged").with_shape(page=page), LATENT_PAGED) for page in (64, 1)
    ]
    return [*table, *heads, *paged, _entry("mla_prefill", workloads.get("mla_prefill"), EXPANDED)]


CONTIGUOUS = "contiguous"
_PAGES, _OTHER_PAGES = (16, 64), (1, 256)


def paged() -> list[Entry]:
    """A batch of uneven lengths: contiguous, and through a page table."""
    plain = [_entry(CONTIGUOUS, workloads.get("decode_lengths"))]
    job = workloads.get("decode_paged")
    sizes = [(page, (PAGED,)) for page in _PAGES] + [(page, ()) for page in _OTHER_PAGES]
    return [*plain, *(_entry(page_label(page), job.with_shape(page=page), *groups) for page, groups in sizes)]


PAGED = "pages of 16 and 64"


def page_label(page: int) -> str:
    """What the table of a page size is called."""
    return f"pages of {page}"


PREFIX = "shared prefix"


def prefix() -> list[Entry]:
    """Sequences that share their first keys."""
    return [_entry("decode_prefix", workloads.get("decode_prefix"), PREFIX)]


HALF, FLOAT32 = "half precision", "float32"
"""The groups of the suite `gemm` that have goals."""

_SIZES = {
    "4096": {"m": 4096, "n": 4096, "k": 4096},
    "8192": {"m": 8192, "n": 8192, "k": 8192},
    "2048x14336x4096": {"m": 2048, "n": 14336, "k": 4096},
    "128x4096x4096": {"m": 128, "n": 4096, "k": 4096},
}


def gemm() -> list[Entry]:
    """Matrix products: sizes of models, batched, transposed, with a map behind, and in other dtypes."""
    plain = workloads.get("product")
    sizes = [_entry(label, plain.with_shape(**size), HALF) for label, size in _SIZES.items()]
    batched = _entry("64x512", workloads.get("product_batched"), HALF)
    forms = [_entry(name, workloads.get(name)) for name in ("product_nt", "product_tn", "product_gelu")]
    narrow = [_entry("product_float16", plain.with_dtype("float16")), _entry("product_float8", _float8())]
    return [*sizes, batched, *forms, *narrow, _entry("product_float32", workloads.get("product_float32"), FLOAT32)]


def _float8() -> Workload:
    return _narrow(workloads.get("product_float8"))


MANY_TOKENS, FEW_TOKENS = "thousands of tokens", "16 tokens"
"""The groups of the suite `loss`: those that compute, and those that read the weights."""

_OF_MANY = ("log_sum_exp", "entropy", "training_loss", "divergence")
_OF_FEW = ("best", "sample", "best_few", "divergence")
"""Further programs of the suite's groups."""


def head_label(tokens: int) -> str:
    """What the table of a cross-entropy is called."""
    return f"cross entropy {tokens}"


def loss() -> list[Entry]:
    """Losses of tokens from logits that nobody asks for; vocabulary and width are those of Llama 3."""
    job = workloads.get("head_cross_entropy")
    many = [_entry(head_label(n), job.with_shape(tokens=n), MANY_TOKENS) for n in (4096, 8192)]
    few = [_entry(head_label(16), job.with_shape(tokens=16), FEW_TOKENS)]
    many += [_of_head(asked, 4096, MANY_TOKENS) for asked in _OF_MANY]
    few += [_of_head(asked, 16, FEW_TOKENS) for asked in _OF_FEW]
    return [*many, *few, _of_head("sample", 1), _of_head("sample", 256)]


def _of_head(asked: str, tokens: int, *groups: str) -> Entry:
    job = workloads.get(f"head_{asked}").with_shape(tokens=tokens)
    return _entry(f"{asked.replace('_', ' ')} {tokens}", job, *groups)


_GEMM_CHAINS = {
    "G1": (512, 32, 256),
    "G2": (256, 512, 64),
    "G3": (512, 416, 256),
    "G4": (3072, 768, 768),
    "G5": (16384, 4096, 4096),
    "G6": (4096, 1024, 1024),
    "G7": (768, 768, 768),
    "G8": (8192, 2048, 2048),
    "G9": (2048, 512, 512),
    "G10": (1536, 384, 384),
}
_GATED_CHAINS = {
    "S1": (8192, 3072),
    "S2": (5632, 2048),
    "S3": (11008, 4096),
    "S4": (8192, 2048),
    "S5": (11008, 2048),
    "S6": (8960, 1536),
    "S7": (9728, 2560),
    "S8": (3072, 1024),
}
"""FlashFuser's chains of products, by n, k and l, and its gated layers, whose k and l are alike; 128 rows each."""

CHAINS, MANY_ROWS, SKINNY = "128 rows", "256 to 1024 rows", "few rows"
POINTWISE, WINDOWED = "windows of 1", "windows of 3 x 3"
"""The groups of the suites `chain`, `ffn`, `skinny` and `conv`."""


def chain() -> list[Entry]:
    """FlashFuser's G1 to G10 with ReLU, which it does not name, between; the largest with more rows too."""
    return _chains("chain", _GEMM_CHAINS, "G5")


def ffn() -> list[Entry]:
    """FlashFuser's S1 to S8: gated feed-forward layers of models; that of Llama 2 with more rows too."""
    return _chains("chain_gated", {label: (n, k, k) for label, (n, k) in _GATED_CHAINS.items()}, "S3")


def _chains(name: str, sizes: dict[str, tuple[int, int, int]], longer: str) -> list[Entry]:
    def entry(label: str, rows: int, group: str) -> Entry:
        n, k, out = sizes[label.split()[0]]
        return _entry(label, workloads.get(name).with_shape(m=rows, n=n, k=k, l=out), group)

    found = [entry(label, 128, CHAINS) for label in sizes]
    return [*found, *(entry(f"{longer} {rows} rows", rows, MANY_ROWS) for rows in (256, 512, 1024))]


_CONVOLVED_CHAINS = {
    "C1": (64, 56, 256, 64, 1),
    "C2": (128, 28, 512, 128, 1),
    "C3": (256, 14, 1024, 256, 1),
    "C4": (512, 7, 2048, 512, 1),
    "C5": (64, 56, 64, 256, 3),
    "C6": (128, 28, 128, 512, 3),
    "C7": (256, 14, 256, 1024, 3),
    "C8": (512, 7, 512, 2048, 3),
}
"""FlashFuser's, by k, height and width, n, l, and the side of the first windows; the second are of one place."""


def conv() -> list[Entry]:
    """FlashFuser's C1 to C8: one image, and ReLU, which it does not name, between two convolutions."""
    plain = workloads.get("chain_convolved")
    return [
        _entry(
            label,
            plain.with_shape(height=side, width=side, k=k, n=n, l=last, first=first),
            POINTWISE if first == 1 else WINDOWED,
        )
        for label, (k, side, n, last, first) in _CONVOLVED_CHAINS.items()
    ]


def skinny() -> list[Entry]:
    """Linear layers of models with few rows, which read their weights."""
    plain, sizes = workloads.get("product_nt"), ((4096, 4096), (14336, 4096), (28672, 8192))
    return [
        _entry(f"{rows}x{n}x{k}", plain.with_shape(m=rows, n=n, k=k), SKINNY)
        for n, k in sizes
        for rows in (1, 8, 16, 64, 128)
    ]


NORMED, ALONE = "behind a normalisation", "product alone"
"""The groups of the suite `normgemm`: linear layers behind a normalisation, and their products by themselves."""

_NORMED_SIZES = tuple((features, columns) for features in (4096, 8192) for columns in (4096, 14336))
_NORMED_NAMES = ("normed_rms", "normed_rms_plain", "normed_layer")


def normed_label(name: str, features: int, columns: int) -> str:
    """What the table of a linear layer is called: normed_rms 4096x14336; of the product alone, product 4096x14336."""
    return f"{name} {features}x{columns}"


def normed_pairs() -> tuple[tuple[str, str], ...]:
    """Labels of each linear layer behind a normalisation, and of its product alone."""
    return tuple(
        (normed_label(name, *size), normed_label("product", *size)) for size in _NORMED_SIZES for name in _NORMED_NAMES
    )


def normgemm() -> list[Entry]:
    """4096 tokens: RMSNorm and LayerNorm before a linear layer, before a gate and its partner, and products alone."""
    found = []
    for features, columns in _NORMED_SIZES:
        alone = workloads.get("product_nt").with_shape(m=4096, n=columns, k=features)
        found.append(_entry(normed_label("product", features, columns), alone, ALONE))
        for name in _NORMED_NAMES:
            job = workloads.get(name).with_shape(features=features, columns=columns)
            found.append(_entry(normed_label(name, features, columns), job, NORMED))
    gated = workloads.get("normed_gated").with_shape(columns=14336)
    return [*found, _entry(normed_label("normed_gated", 4096, 14336), gated, NORMED)]


TABLE_OF_ROUTERS, FEW_ROUTED, MODELS_ROUTERS, LOGITS = "R1 to R8", "1 to 64 tokens", "models", "logits alone"
"""The groups of the suite `moe`."""

_MODELS = {
    # label: (hidden, experts, topk, how)
    "Mixtral": (4096, 8, 2, Router(renormalised=True)),
    "Qwen3": (4096, 128, 8, Router(renormalised=True)),
    "sigmoid": (5120, 16, 1, Router(SIGMOID)),
    "root softplus": (7168, 256, 6, Router(ROOT_SOFTPLUS, renormalised=True)),
    "biased": (7168, 256, 8, Router(SIGMOID, renormalised=True, biased=True)),
    "DeepSeek-V3": (7168, 256, 8, Router(SIGMOID, True, biased=True, groups=8, groups_kept=4)),
    "640 experts": (4096, 640, 8, Router(renormalised=True)),
    "32 of 128": (2048, 128, 32, Router()),
}
"""Routers at extents that models have, and at the largest."""


def moe() -> list[Entry]:
    """RedFuser's routers in bfloat16, a larger one with few tokens, those of models with many and few, and its example.

    The example starts from logits of float16, among which bfloat16 would have many that are equal.
    """
    table = [_router(f"R{k}", *_extents(f"R{k}"), Router(), TABLE_OF_ROUTERS) for k in range(1, 9)]
    few = [_router(f"{n} tokens", n, 4096, 256, 8, Router(), FEW_ROUTED) for n in (1, 8, 64)]
    models = [
        _router(f"{name} {tokens}", tokens, *extents, MODELS_ROUTERS)
        for name, extents in _MODELS.items()
        for tokens in (4096, 16)
    ]
    example = replace(workloads.get("moe_routing"), builder=partial(routed_by, Router()))
    return [*table, *few, *models, _entry("moe_routing", example, LOGITS)]


def _extents(name: str) -> tuple[int, int, int, int]:
    tokens, hidden, experts, best = (workloads.get(name).shape[e] for e in ("tokens", "hidden", "experts", "topk"))
    return tokens, hidden, experts, best


def _router(label: str, tokens: int, hidden: int, experts: int, best: int, how: Router, *groups: str) -> Entry:
    shape = {"tokens": tokens, "hidden": hidden, "experts": experts, "topk": best}
    builder = partial(routed_by, how)
    return _entry(
        label, Workload(label, "routing", "tvm-cascade", shape, "bfloat16", "float32", builder, ("experts",)), *groups
    )


PER_TOKEN, PER_COLUMN, PER_BLOCK, OTHER_FLOAT8 = "Q1 to Q10", "columns too", "blocks of 128", "float8_e5m2"
"""The groups of the suite `quant`, by what has a scale, and what activations are rounded to."""

_BLOCKED_SIZES = ((7168, 2048), (2048, 7168), (4096, 1536))


def quant() -> list[Entry]:
    """RedFuser's quantised products, with weights as libraries want them; with other scales, and in another float8.

    Sums of float8 products are narrow, and outputs bfloat16, as those of the libraries that it is measured against.
    """
    found = []
    for name in workloads.names("quantised", source="RedFuser table 2d"):
        own = workloads.get(name).shape
        found.append(_quantised(name, Quantised(), own["hidden"], PER_TOKEN, columns=own["columns"]))
    found.append(_quantised("ptpc_gemm", Quantised(columns=True), 4096, PER_COLUMN, columns=4096))
    found.append(_quantised("e5m2 2048x7168", Quantised("float8_e5m2"), 2048, OTHER_FLOAT8, columns=7168))
    for features, columns in _BLOCKED_SIZES:
        across = {"column_blocks": columns // BLOCK}
        found.append(_quantised(f"blocks {features}x{columns}", Quantised(blocks=True), features, PER_BLOCK, **across))
    return found


def _quantised(label: str, form: Quantised, features: int, group: str, **across: int) -> Entry:
    shape = {"tokens": 4096, "features": features, **across}
    job = Workload(label, "quantised", "tvm-cascade", shape, "bfloat16", "float32", quantised(form), ("features",))
    return _entry(label, _narrow(job), group)


def _narrow(workload: Workload) -> Workload:
    return replace(workload, allowances=("narrow_sums",))


_LARGEST_SLOW = {"product": 5 * 10**9}
_LARGEST_SLOW_ATTENTION = 3 * 10**8
"""Operations of a program up to which programs on CUDA cores are measured too; by family, and of the others."""


def _entry(label: str, workload: Workload, *groups: str) -> Entry:
    most = _LARGEST_SLOW.get(workload.family, _LARGEST_SLOW_ATTENTION)
    return Entry(label, workload, groups, smallest=workload.flops() <= most)
