"""Gradients of attention by what is added to its scores, and over packed tokens."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_cascade import gradient
from tvm_cascade.evaluate import oracle

from ..tiers import slow_but
from .differences import assert_gradient, sums_of
from .scores import DEPTH, KEPT, KEYS, QUERIES, SHAPES, Extents, biased, kept

QUICK = ["slopes", "of keys", "of queries and keys", "of distances"]

FURTHER = {
    # name: the sums of what is added alone
    "slopes": [[2, QUERIES], [KEYS]],
    "a number": [[2, 3, QUERIES], [KEYS]],
    "of keys": [[2, 3], [QUERIES]],
    "of queries and keys": [[2, 3]],
    "of heads, queries and keys": [[2]],
    "of distances": [[2], [QUERIES]],
    "of all": [],
}


@pytest.mark.parametrize("name", slow_but(QUICK, SHAPES))
def test_what_is_added_to_scores(name: str) -> None:
    """Its adjoint is a sum of d_s = p·(d_out·vᵀ − δ), over a row's keys or queries first, and never over features."""
    func = biased(name)
    found = assert_gradient(func)
    assert found.saved == ("out", "log_total")
    own = [[DEPTH], [DEPTH], [DEPTH], [KEYS], [QUERIES], [QUERIES]]  # scores, d_out·v, δ; d_q, d_k, d_v
    assert sorted(sums_of(found.backward).values()) == sorted([*own, *FURTHER[name]])
    alone = gradient(func, wrt="p")
    assert sorted(sums_of(alone.backward).values()) == sorted([*own[:3], *FURTHER[name]])


def test_what_is_left_of_two_sums_keeps_its_digits() -> None:
    """Σ p·(d_out·vᵀ − δ)·(j − i) in float32, where d_out·vᵀ and δ are a thousand times what they differ by."""
    extents = Extents(queries=16, keys=16, dtype="float32")
    func, wide = biased("slopes", extents), biased("slopes", Extents(queries=16, keys=16))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 3, 16, 3)) for _ in range(3))
    values = {"q": q, "k": k, "v": 1000 + v, "p": rng.standard_normal(3) / 8}

    def gradients(program: object, rounding: bool) -> np.ndarray:
        found = gradient(program, wrt="p")
        made = oracle.evaluate(found.forward, [values[n] for n in "qkvp"], rounding=rounding)
        given = {**values, **made, "d_out": np.random.default_rng(1).standard_normal(q.shape)}
        inputs = [given[param.name] for param in oracle.signature(found.backward).inputs]
        return oracle.evaluate(found.backward, inputs, rounding=rounding)["d_p"]

    exact, ours = gradients(wide, False), gradients(func, True)
    assert np.abs(exact).min() > 0.1 and np.abs(ours - exact).max() < 1e-2 * np.abs(exact).max()


@pytest.mark.parametrize("name", KEPT)
def test_packed_tokens(name: str) -> None:
    extents = Extents(queries=6, keys=6)
    given = {
        "documents": {"n0": np.array([2, 2, 0, 0, 0, 1], "int32")},
        "ranges": {"n0": np.array([0, 0, 2, 2, 2, 5], "int32"), "n1": np.array([2, 2, 4, 5, 5, 6], "int32")},
        "lengths": {"n0": np.array([6, 2], "int32")},
        "pairs": {"n0": np.tri(6, dtype="int32")[:, ::-1].copy() + np.eye(6, dtype="int32")},
    }[name]
    found = assert_gradient(kept(name, extents), given)
    assert found.saved == ("out", "log_total")
    assert sorted(sums_of(found.backward).values()) == [[DEPTH]] * 3 + [[6]] * 3
