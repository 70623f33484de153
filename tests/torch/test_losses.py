"""Losses over classes under `torch.compile`: what is saved and stored, and that gradients are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tvm_cascade.relax import get_pipeline  # noqa: E402
from tvm_cascade.torch import backend  # noqa: E402
from tvm_cascade.torch.graph import captured  # noqa: E402
from tvm_cascade.torch.importer import import_program  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

TOKENS, WIDTH, CLASSES = 24, 16, 2048

SLACK = {torch.float32: 2e-5, torch.bfloat16: 1e-2}
"""Errors over the largest element that are those of sums of so many classes in another order."""

Loss = Callable[..., Any]


def head(x: Any, w: Any, y: Any, **how: Any) -> Any:
    return F.cross_entropy(F.linear(x, w), y, **how)


def again(x: Any, w: Any, y: Any, **how: Any) -> Any:
    """With logits computed again for the gradient."""
    return checkpoint(partial(head, **how), x, w, y, use_reentrant=False)


def tensors(dtype: Any, tokens: int = TOKENS, width: int = WIDTH, classes: int = CLASSES) -> list[Any]:
    x, w = torch.randn(tokens, width), torch.randn(classes, width)
    return [x.to(dtype).requires_grad_(), w.to(dtype).requires_grad_(), torch.randint(0, classes, (tokens,))]


def gradients(loss: Loss, x: Any, w: Any, y: Any, **how: Any) -> list[Any]:
    x.grad = w.grad = None
    found = loss(x, w, y, **how)
    (found if found.dim() == 0 else (found * torch.arange(1, len(found) + 1)).sum()).backward()
    return [found.detach(), x.grad, w.grad]


@pytest.mark.parametrize(
    ("loss", "dtype", "how"),
    [
        (head, torch.float32, {}),
        (again, torch.bfloat16, {}),
        (again, torch.float32, {"reduction": "sum", "ignore_index": 3}),
        (again, torch.float32, {"reduction": "none", "weight": torch.linspace(0.5, 2.0, CLASSES)}),
        (head, torch.bfloat16, {"label_smoothing": 0.1}),
    ],
    ids=["mean", "again", "ignored", "weighted", "smoothed"],
)
def test_gradients_are_those_of_pytorch(loss: Loss, dtype: Any, how: dict[str, Any]) -> None:
    x, w, y = tensors(dtype)
    how = {key: value.to(dtype) if key == "weight" else value for key, value in how.items()}
    y[::5] = how.get("ignore_index", 7)
    exact = gradients(head, x.detach().double().requires_grad_(), w.detach().double().requires_grad_(), y, **_wide(how))
    eager = gradients(head, x, w, y, **how)
    found = gradients(torch.compile(loss, backend="tvm_cascade"), x, w, y, **how)
    for one, usual, wanted in zip(found, eager, exact, strict=True):
        scale, few = wanted.abs().max(), SLACK[dtype]
        error, own = ((value.double() - wanted).abs().max() / scale for value in (one, usual))
        assert error <= max(2 * own, few), (error, own)
        assert ((0 * one.double() - wanted).abs().max() / scale) > 20 * max(own, few), "zeros are no gradients"


def _wide(how: dict[str, Any]) -> dict[str, Any]:
    return {key: value.double() if key == "weight" else value for key, value in how.items()}


Graphs = list[tuple[fx.GraphModule, Any]]


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    """The graphs of a step and the reports of what a large GPU would run, which gives tensors of no meaning here."""
    found: Graphs = []

    def lowered(module: fx.GraphModule, _: Any) -> Any:
        shown, _ = captured(backend.split(module).core, torch.device("cpu"))
        pipeline = get_pipeline("nvidia/nvidia-h100", cache=False)
        pipeline.scheduled(pipeline.grouped(import_program(shown, torch.device("cpu"))[0]))
        found.append((module, pipeline.report))
        results = [None if one is None else one.meta["val"] for one in _results(module)]
        return lambda *_: tuple(
            None if one is None else torch.empty_strided(one.shape, one.stride(), dtype=one.dtype) for one in results
        )

    monkeypatch.setattr(backend, "compiled_graph", lowered)
    return found


def _results(module: fx.GraphModule) -> list[fx.Node | None]:
    (output,) = module.graph.find_nodes(op="output")
    return list(output.args[0])


def test_logits_that_are_computed_again_are_in_no_memory(on_a_gpu: Graphs) -> None:
    """Forward one kernel of one pass, which leaves two numbers a token; backward chunks of classes."""
    x, w = (torch.empty(n, 4096, dtype=torch.bfloat16, requires_grad=True) for n in (4096, 65536))
    torch.compile(again, backend="tvm_cascade")(x, w, torch.zeros(4096, dtype=torch.int64)).backward()
    (forward, ahead), (_, behind) = on_a_gpu
    saved = [one.meta["val"] for one in _results(forward)[1:] if one is not None and one.op != "placeholder"]
    assert [tuple(one.shape) for one in saved] == [(4096, 1), (4096, 1)]
    (folded,) = [one.lowering for one in ahead.functions if "matmul" in one.name]
    assert "`folded`" in folded
    (chunks,) = [one.lowering for one in behind.functions if "matmul" in one.name]
    assert chunks.startswith("chunks of") and "in place of 512.0 MiB of temporaries" in chunks


def test_no_sum_over_classes_is_left_of_what_is_written_at_targets(on_a_gpu: Graphs) -> None:
    torch.compile(head, backend="tvm_cascade")(*tensors(torch.bfloat16)).backward()
    _, (backward, _) = on_a_gpu
    sums = backward.graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList)
    assert not [one for one in sums if CLASSES in one.args[0].meta["val"].shape]
