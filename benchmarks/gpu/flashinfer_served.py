"""FlashInfer's kernels for servers as peers: decode and its masks over pages, latent attention, shared prefixes.

Tensors are laid out for it, and its plans are made, outside of the timed region.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.flashinfer_peer import MISSING
from benchmarks.gpu.prepared import Prepared, allocating
from benchmarks.gpu.problem import Problem
from benchmarks.judge.forms import Absent

_WORKSPACE_BYTES = 384 * 2**20
_PAGE = 16
"""Of caches that the program has in one piece."""

_LATENT_PAGE = 64
"""The same of latent attention."""

_PACKED_HEADS = 4
"""Query heads for each head of keys from which on its decode on tensor cores is the faster one, as its guide says."""


@dataclass(frozen=True)
class Pages:
    """A cache as it takes it.

    Attributes
    ----------
    keys, values : [page, slot, head, feature].
    starts, indices, last : where the pages of each sequence begin in the list of pages, that list, and how many slots
        of the last page are taken.
    lengths : of the sequences.
    size : slots of a page.
    """

    keys: Any
    values: Any
    starts: Any
    indices: Any
    last: Any
    lengths: Any
    size: int


def decode(problem: Problem) -> Prepared | Absent:
    """Its decode of one query, and its FlashAttention-2 kernels for several; a shared prefix by its cascade."""
    found = _refused(problem)
    if found is not None:
        return found
    if not problem.attends:
        return _latent(problem)
    if "k_prefix" in problem.named:
        return _cascade(problem)
    if problem.q.shape[2] > 1 or problem.form.tree:
        return _prefill(problem, "fa2")
    return _single(problem) if len(problem.q) == 1 else _batched(problem)


def by_fa3(problem: Problem) -> Prepared | Absent:
    """Its FlashAttention-3 kernels for Hopper, on the same pages."""
    found = _refused(problem)
    if found is not None:
        return found
    if not problem.attends or "k_prefix" in problem.named:
        return Absent("the row `flashinfer` is its kernel for this")
    if problem.form.alibi or problem.form.tree:
        return Absent("its kernels for Hopper have no ALiBi, and no masks in a tensor")
    if "k" in problem.named and problem.named["k"].dtype != problem.q.dtype:
        return Absent("its kernels for Hopper want q in the dtype of the keys")
    return _prefill(problem, "fa3")


def _refused(problem: Problem) -> Absent | None:
    if problem.multiplies:
        return Absent("a library of attention kernels")
    if importlib.util.find_spec("flashinfer") is None:
        return Absent(MISSING)
    if problem.attends and problem.form.sink:
        return Absent("its kernels with sinks are compiled from a variant of the user's own")
    return None


def _workspace(problem: Problem) -> Any:
    return problem.torch.empty(_WORKSPACE_BYTES, dtype=problem.torch.uint8, device=problem.q.device)


def _options(problem: Problem) -> dict[str, Any]:
    form = problem.form
    return {
        "pos_encoding_mode": "ALIBI" if form.alibi else "NONE",
        "logits_soft_cap": form.cap,
        "window_left": -1 if form.window is None else form.window - 1,
    }


def _pages(problem: Problem) -> Pages:
    """The program's own pages, or pages of a cache in one piece."""
    torch, named = problem.torch, problem.named
    if "k_pages" in named:
        size = named["k_pages"].shape[1]
        counts = (named["lengths"] + size - 1) // size
        table = named["table"]
        taken = torch.arange(table.shape[1], device=table.device) < counts[:, None]
        keys, values, indices = named["k_pages"], named["v_pages"], table[taken]
        lengths = named["lengths"]
    else:
        size, batch = _PAGE, len(problem.q)
        keys, values = (_cut(problem.own(name), size) for name in ("k", "v"))
        most = problem.own("k").shape[2]
        lengths = named.get("lengths")
        if lengths is None:
            lengths = torch.full((batch,), most, dtype=torch.int32, device=problem.q.device)
        counts = (lengths + size - 1) // size
        taken = torch.arange(most // size, device=problem.q.device)
        indices = torch.cat([b * (most // size) + taken[:count] for b, count in enumerate(counts.tolist())])
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    last = (lengths - 1) % size + 1
    starts, indices, last, lengths = (x.to(torch.int32) for x in (starts, indices, last, lengths))
    return Pages(keys, values, starts, indices, last, lengths, size)


def _cut(x: Any, size: int) -> Any:
    """[batch, head, position, feature] -> [page, slot, head, feature], contiguous."""
    return x.transpose(1, 2).contiguous().flatten(0, 1).unflatten(0, (-1, size))


def _output(problem: Problem, run: Any, name: str) -> Prepared:
    """A row whose runs give [batch · query, head, feature]."""
    batch, heads, queries, _ = problem.q.shape
    alone = problem.named["q"].ndim == 3

    def output(found: Any) -> Any:
        by_head = found.view(batch, queries, heads, -1).transpose(1, 2)
        return by_head[0] if alone else by_head

    own = allocating(problem, run, name)
    return Prepared(own.run, output, own.poison, own.configuration)


def _single(problem: Problem) -> Prepared:
    library = importlib.import_module("flashinfer")
    q = problem.q[0, :, 0].contiguous()
    k, v = (problem.own(name)[0].transpose(0, 1).contiguous() for name in ("k", "v"))
    options = {**_options(problem), "use_tensor_cores": _packs(problem)}
    return _output(problem, lambda: library.single_decode_with_kv_cache(q, k, v, **options), "single decode")


def _packs(problem: Problem) -> bool:
    group = problem.q.shape[1] // problem.workload.shape.get("kv_heads", problem.q.shape[1])
    return bool(group >= _PACKED_HEADS)


def _batched(problem: Problem) -> Prepared:
    library, pages, (_, heads, _, features) = importlib.import_module("flashinfer"), _pages(problem), problem.q.shape
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
        _workspace(problem), kv_layout="NHD", use_tensor_cores=_packs(problem)
    )
    wrapper.plan(
        pages.starts, pages.indices, pages.last, heads, pages.keys.shape[2], features, pages.size,
        q_data_type=problem.q.dtype, kv_data_type=pages.keys.dtype, **_options(problem),
    )  # fmt: skip
    q = problem.q[:, :, 0].contiguous()
    return _output(problem, lambda: wrapper.run(q, (pages.keys, pages.values)), "decode")


def _prefill(problem: Problem, backend: str) -> Prepared:
    torch, (batch, heads, queries, features) = problem.torch, problem.q.shape
    library, pages = importlib.import_module("flashinfer"), _pages(problem)
    wrapper = library.BatchPrefillWithPagedKVCacheWrapper(_workspace(problem), kv_layout="NHD", backend=backend)
    starts = queries * torch.arange(batch + 1, dtype=torch.int32, device=problem.q.device)
    wrapper.plan(
        starts, pages.starts, pages.indices, pages.last, heads, pages.keys.shape[2], features, pages.size,
        head_dim_vo=pages.values.shape[3], custom_mask=_tree_mask(problem, pages), causal=problem.form.causal,
        q_data_type=problem.q.dtype, kv_data_type=pages.keys.dtype, **_options(problem),
    )  # fmt: skip
    q = problem.q.transpose(1, 2).contiguous().flatten(0, 1)
    return _output(problem, lambda: wrapper.run(q, (pages.keys, pages.values)), backend)


def _tree_mask(problem: Problem, pages: Pages) -> Any:
    """All masks behind each other, [query, key] of each sequence."""
    if not problem.form.tree:
        return None
    torch, tree = problem.torch, problem.named["tree"]
    if tree.ndim == 2:
        tree = tree[None]
    context = [torch.ones(tree.shape[1], n - tree.shape[1], device=tree.device) > 0 for n in pages.lengths.tolist()]
    return torch.cat([torch.cat([seen, own], dim=1).flatten() for seen, own in zip(context, tree, strict=True)])


def _latent(problem: Problem) -> Prepared:
    torch, named = problem.torch, problem.named
    library, q = importlib.import_module("flashinfer"), named["q"]
    width, device = problem.workload.shape["latent_dim"], q.device
    batch, heads, features = q.shape
    if "kv_pages" in named:
        pages, lengths = named["kv_pages"], named["lengths"]
        size = pages.shape[1]
        counts = (lengths + size - 1) // size
        indices = named["table"][torch.arange(named["table"].shape[1], device=device) < counts[:, None]]
    else:
        keys = named["kv"].shape[1]
        size = math.gcd(keys, _LATENT_PAGE)
        pages = named["kv"].reshape(-1, size, features)
        lengths = torch.full((batch,), keys, dtype=torch.int32, device=device)
        counts, indices = lengths // size, torch.arange(len(pages), device=device)
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
    wrapper = library.mla.BatchMLAPagedAttentionWrapper(_workspace(problem), backend="fa3")
    each = torch.arange(batch + 1, dtype=torch.int32, device=device)
    scale = 1.0 / math.sqrt(features)
    wrapper.plan(
        each, starts, indices.to(torch.int32), lengths.to(torch.int32), heads, width, features - width, size,
        False, scale, q.dtype, pages.dtype,
    )  # fmt: skip
    parts = [x.contiguous() for x in (q[..., :width], q[..., width:], pages[..., :width], pages[..., width:])]
    return allocating(problem, lambda: wrapper.run(*parts), "mla fa3")


def _cascade(problem: Problem) -> Prepared:
    torch, named = problem.torch, problem.named
    library, (batch, heads, queries, features) = importlib.import_module("flashinfer"), problem.q.shape
    device, prefix, own = problem.q.device, named["k_prefix"].shape[1] // _PAGE, named["k"].shape[2] // _PAGE
    pools = [torch.cat([_cut(named[f"{x}_prefix"][None], _PAGE), _cut(named[x], _PAGE)]) for x in ("k", "v")]
    cache = torch.stack(pools, dim=1)

    def numbers(*values: int) -> Any:
        return torch.tensor(values, dtype=torch.int32, device=device)

    each = torch.arange(batch + 1, dtype=torch.int32, device=device)
    pages = torch.arange(prefix + batch * own, dtype=torch.int32, device=device)
    wrapper = library.MultiLevelCascadeAttentionWrapper(2, _workspace(problem), "NHD")
    wrapper.plan(
        [numbers(0, batch * queries), each * queries],
        [numbers(0, prefix), each * own],
        [pages[:prefix], pages[prefix:]],
        [numbers(_PAGE), torch.full((batch,), _PAGE, dtype=torch.int32, device=device)],
        heads, named["k"].shape[1], features, _PAGE, q_data_type=problem.q.dtype,
    )  # fmt: skip
    q = problem.q.transpose(1, 2).contiguous().flatten(0, 1)
    return _output(problem, lambda: wrapper.run(q, cache), "cascade")
