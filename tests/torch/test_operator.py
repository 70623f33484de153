"""`tvm_cascade.torch_operator`: programs as operators of PyTorch, with fake tensors and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402
from tvm import te, tirx  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.errors import InputError  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def softmax(rows: Any, length: Any, dtype: str = "float32") -> tirx.PrimFunc:
    """Softmax of some classes, and the highest of each row."""
    x, k, j = te.placeholder((rows, length), dtype, name="x"), *(te.reduce_axis((0, length), n) for n in "kj")
    top = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="top")
    total = te.compute((rows,), lambda i: te.sum(te.exp(x[i, j] - top[i]), axis=j), name="total")
    y = te.compute((rows, length), lambda i, c: te.exp(x[i, c] - top[i]) / total[i], name="y")
    return te.create_prim_func([x, y])


def attention() -> tirx.PrimFunc:
    q, k, v = (te.placeholder((length, 8), "float32", name=name) for name, length in (("q", 6), ("k", 9), ("v", 9)))
    d, t, s, u = (te.reduce_axis((0, extent), name) for name, extent in (("d", 8), ("t", 9), ("s", 9), ("u", 9)))
    score = te.compute((6, 9), lambda i, j: te.sum(q[i, d] * k[j, d], axis=d), name="score")
    top = te.compute((6,), lambda i: te.max(score[i, t], axis=t), name="top")
    total = te.compute((6,), lambda i: te.sum(te.exp(score[i, s] - top[i]), axis=s), name="total")
    out = te.compute((6, 8), lambda i, f: te.sum(te.exp(score[i, u] - top[i]) / total[i] * v[u, f], axis=u), name="out")
    return te.create_prim_func([q, k, v, out])


def close(found: Any, expected: Any) -> None:
    assert_close(np.asarray(found.detach()), np.asarray(expected.detach()), length=64, dtype="float32")
    assert float(expected.detach().abs().max()) > 1e-3


def test_an_operator_with_its_gradient() -> None:
    operator = tvm_cascade.torch_operator(tvm_cascade.gradient(attention()), "tests::attention")
    given = [torch.randn(length, 8, requires_grad=True) for length in (6, 9, 9)]
    assert set(torch.library.opcheck(operator, tuple(given)).values()) == {"SUCCESS"}

    def ours(q: Any, k: Any, v: Any) -> Any:
        return operator(q * 0.3, k, v)[0].square()

    weights = torch.randn(6, 8)
    q, k, v = given
    expected = F.scaled_dot_product_attention((q * 0.3)[None], k[None], v[None], scale=1.0)[0].square()
    wanted = torch.autograd.grad((expected * weights).sum(), given)
    for call in (ours, torch.compile(ours, backend="aot_eager", fullgraph=True)):
        close(found := call(q, k, v), expected)
        for one, eager in zip(torch.autograd.grad((found * weights).sum(), given), wanted, strict=True):
            close(one, eager)


def test_an_operator_of_any_length() -> None:
    rows = tirx.Var("n", "int64")
    operator = tvm_cascade.torch_operator(softmax(rows, 16), "tests::softmax")
    for length in (3, 5):
        close(operator(x := torch.randn(length, 16)), x.softmax(-1))
    assert set(torch.library.opcheck(operator, (torch.randn(4, 16),)).values()) == {"SUCCESS"}


def test_an_operator_of_a_compiled_function() -> None:
    operator = tvm_cascade.torch_operator(tvm_cascade.compile(softmax(4, 16)), "tests::compiled_softmax")
    close(operator(x := torch.randn(16, 4).T), x.softmax(-1))


def test_numbers_are_no_tensors() -> None:
    x, factor = te.placeholder((4,), "float32", name="x"), te.var("factor", "float32")
    y = te.compute((4,), lambda i: x[i] * factor, name="y")
    with pytest.raises(InputError, match=r"(?s)function of tensors.*numbers factor"):
        tvm_cascade.torch_operator(te.create_prim_func([factor, x, y]), "tests::scaled")
