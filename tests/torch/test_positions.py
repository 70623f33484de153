"""Integers that no argument changes: positions and single numbers in graphs, so that masks of them are expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tvm_cascade.relax import get_pipeline  # noqa: E402
from tvm_cascade.torch import backend, compilation  # noqa: E402
from tvm_cascade.torch.importer import import_program  # noqa: E402
from tvm_cascade.torch.positions import with_positions  # noqa: E402

LENGTH = 12
LISTED = torch.tensor([0, 1, 2, 2, 3, 3, 3, 4, 5, 6, 7, 8])


def positions(batch: int = 2) -> Any:
    return torch.arange(LENGTH).unsqueeze(0).expand(batch, -1)


def packed(x: Any) -> Any:
    """A causal mask by documents, as models find them in positions: all are one here."""
    at = positions(x.shape[0])
    number = (at.diff(dim=1, prepend=at[:, :1] - 1) != 1).cumsum(-1)
    seen = (at[:, None, None, :] <= at[:, None, :, None]) & (number[:, None, None, :] == number[:, None, :, None])
    return torch.where(seen, x, -1.0)


FORMULAS: dict[str, tuple[Callable[[Any], Any], set[str], set[str]]] = {
    "a mask by documents": (packed, {"le", "arange"}, {"cumsum", "cat", "eq"}),
    "downwards": (lambda x: torch.where(positions(2)[:, None, :].flip(-1) * 3 > 7, x, 0.0), {"arange"}, {"flip"}),
    "one truth": (lambda x: x + ((positions() * 0).cumsum(1) == 0)[:, None, None], {"full"}, {"cumsum", "arange"}),
    "neither": (lambda x: x + (positions() ** 2).cumsum(1)[:, None, None], {"cumsum"}, {"full"}),
    "a result": (lambda x: torch.arange(LENGTH).cumsum(0) * 0, {"cumsum", "mul"}, {"full"}),
    "of an argument": (lambda x: x + (x > 0).cumsum(-1), {"cumsum"}, {"full", "arange"}),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_graphs_compute_the_same(name: str) -> None:
    formula, there, gone = FORMULAS[name]
    x = torch.randn(2, 1, LENGTH, LENGTH)
    with FakeTensorMode() as mode:
        graph = make_fx(formula)(mode.from_tensor(x))
    found = with_positions(graph)
    torch.testing.assert_close(found(x), formula(x), rtol=0, atol=0)
    calls = [node for node in found.graph.nodes if node.op == "call_function"]
    names = {node.target._schema.name.removeprefix("aten::") for node in calls}
    assert there <= names
    assert gone.isdisjoint(names)


def test_masks_are_not_saved(monkeypatch: pytest.MonkeyPatch, fresh_dynamo: None) -> None:
    """Each graph of a training step has the mask as an expression; none takes or gives it."""
    graphs, compile_ = list[Any](), compilation.compiled

    def kept(program: Any, *given: Any, **named: Any) -> Any:
        graphs.append(program.graph)
        return compile_(program, *given, **named)

    monkeypatch.setattr(backend, "compiled", kept)

    def step(q: Any, k: Any, v: Any) -> Any:
        at = positions(q.shape[0])
        return F.scaled_dot_product_attention(q, k, v, at[:, None, None, :] <= at[:, None, :, None])

    given = [torch.randn(2, 3, LENGTH, 8).requires_grad_() for _ in range(3)]
    compiled = torch.compile(step, backend="tvm_cascade")
    found = torch.autograd.grad(compiled(*given).square().sum(), given)
    expected = torch.autograd.grad(step(*given).square().sum(), given)
    torch.testing.assert_close(found, expected)
    assert len(graphs) == 2
    for graph in graphs:
        passed = [*graph.find_nodes(op="placeholder"), *graph.find_nodes(op="output")[0].all_input_nodes]
        shapes = [tuple(node.meta["val"].shape) for node in passed]
        assert shapes and not any(shape[-2:] == (LENGTH, LENGTH) for shape in shapes)


def test_a_model_that_is_exported_has_masks_as_expressions() -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            at = torch.arange(x.shape[2]).unsqueeze(0).expand(x.shape[0], -1)
            return F.scaled_dot_product_attention(x, x, x, at[:, None, None, :] <= at[:, None, :, None])

    program = torch.export.export(Masked(), (torch.randn(2, 4, 256, 64, dtype=torch.bfloat16),))
    module, _ = import_program(program, torch.device("cpu"))
    pipeline = get_pipeline({"kind": "cuda", "arch": "sm_90a"})
    pipeline.scheduled(pipeline.grouped(module))
    (mask,) = [line for line in str(pipeline.report).splitlines() if line.strip().startswith("mask")]
    assert "<=" in mask and "[" not in mask, "it reads no tensor"
