"""FlashInfer's prefill as a peer: tensors are laid out for it outside of the timed region."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import replace
from typing import Any

from benchmarks.gpu.prepared import Prepared, allocating
from benchmarks.gpu.problem import Problem
from benchmarks.judge.forms import Absent

MISSING = "flashinfer is not installed: python -m pip install flashinfer-python"
_WORKSPACE_BYTES = 256 * 2**20
_DRIVEN_BY_POSITION = "fa2"  # its kernels for Hopper have no ALiBi


def flashinfer(problem: Problem) -> Prepared | Absent:
    """Prefill of one sequence, or of a batch of sequences that stand behind one another.

    Tensors are [position, head, feature], the sequences of a batch concatenated.
    """
    if importlib.util.find_spec("flashinfer") is None:
        return Absent(MISSING)
    library = importlib.import_module("flashinfer")
    q, k, v = (_by_position(x) for x in (problem.q, problem.dense("k"), problem.dense("v")))
    backend = _DRIVEN_BY_POSITION if problem.form.alibi else "fa3"
    options = {
        "causal": problem.form.causal,
        "pos_encoding_mode": "ALIBI" if problem.form.alibi else "NONE",
        "logits_soft_cap": problem.form.cap,
        "window_left": -1 if problem.form.window is None else problem.form.window - 1,
    }
    batch, heads, queries, features = problem.q.shape
    if batch == 1:

        def run() -> Any:
            return library.single_prefill_with_kv_cache(q, k, v, kv_layout="NHD", backend=backend, **options)

    else:
        run = _batched(library, problem, backend, options, (q, k, v))

    def output(found: Any) -> Any:
        by_head = found.view(batch, queries, heads, features).transpose(1, 2)
        return by_head if problem.named["q"].ndim == 4 else by_head[0]

    return replace(allocating(problem, run, backend), output=output)


def _by_position(x: Any) -> Any:
    """[batch, head, position, feature] -> [batch · position, head, feature], contiguous."""
    return x.transpose(1, 2).contiguous().flatten(0, 1)


def _batched(library: Any, problem: Problem, backend: str, options: dict[str, Any], tensors: tuple[Any, ...]) -> Any:
    torch, (batch, heads, queries, features) = problem.torch, problem.q.shape
    device = problem.q.device
    workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    wrapper = library.BatchPrefillWithRaggedKVCacheWrapper(workspace, kv_layout="NHD", backend=backend)
    starts = torch.arange(batch + 1, dtype=torch.int32, device=device)
    wrapper.plan(
        starts * queries,
        starts * problem.own("k").shape[2],
        heads,
        problem.own("k").shape[1],
        features,
        q_data_type=problem.q.dtype,
        **options,
    )
    return lambda: wrapper.run(*tensors)
