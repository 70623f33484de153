"""Writes at positions that are data: right where positions are alike, and never by one thread of a GPU."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._dispatch.python import enable_python_dispatcher  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from tvm import IRModule, s_tir, te, tirx  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402
from tvm_cascade.relax.pipeline import get_pipeline  # noqa: E402
from tvm_cascade.torch import importer, scatters  # noqa: E402
from tvm_cascade.torch.backend import FallbackWarning  # noqa: E402
from tvm_cascade.torch.graph import captured  # noqa: E402
from tvm_cascade.torch.site import ConversionError, Site  # noqa: E402
from tvm_cascade.torch.whole_attention import attention_whole  # noqa: E402

from ..tile.emulator.run import compiler, emulate  # noqa: E402
from .test_training import Block  # noqa: E402

Formula = Callable[..., Any]


def put(x: Any, places: Any, values: Any, accumulate: bool = False) -> Any:
    return torch.ops.aten.index_put(x, places, values, accumulate)


def embedded(gradients: Any, at: Any, rows: int = 9, skipped: int = -1, by_frequency: bool = False) -> Any:
    return torch.ops.aten.embedding_dense_backward(gradients, at, rows, skipped, by_frequency)


def pooled_backward(x: Any, gradients: Any) -> Any:
    at, sizes = F.max_pool2d(x, 3, 2, 1, return_indices=True)[1], ([3, 3], [2, 2], [1, 1], [1, 1])
    return torch.ops.aten.max_pool2d_with_indices_backward(gradients, x, *sizes, False, at)


# x: floats [9, 7, 5]; v: floats [40, 7, 5]; n: positions [40] from -5 to 4, so that many are alike.
EXACT: Mapping[str, Formula] = {
    "rows": lambda x, v, n: put(x, [n], v),
    "rows of one value": lambda x, v, n: put(x, [n], v[0, 0, 0]),
    "an inner axis": lambda x, v, n: put(x, [None, None, n], v[:9, :, :1].expand(9, 7, 40)),
    "two axes": lambda x, v, n: put(x, [n.view(8, 5), n[:5]], v[:8, :5]),
    "axes apart": lambda x, v, n: put(x, [n, None, n], v[:, :, 0]),
    "every axis": lambda x, v, n: put(x, [n, n, n], v[:, 0, 0]),
    "one row": lambda x, v, n: put(x, [None, n[:1], n[:1]], v[:9, 0, :1].mT.reshape(9, 1)),
    "elements of an axis": lambda x, v, n: x.scatter(0, n.abs().view(40, 1, 1).expand(40, 7, 4), v),
    "a number": lambda x, v, n: x.scatter(1, n.abs().view(1, 40, 1).expand(4, 40, 5), 3.0),
    "one of each row": lambda x, v, n: x.scatter(1, n[:9].abs().view(9, 1, 1).expand(9, 1, 5), v[:9, :1]),
    "the higher of one of each row": lambda x, v, n: x.scatter_reduce(
        1, n[:9].abs().view(9, 1, 1).expand(9, 1, 5), v[:9, :1], "amax"
    ),
    "highest": lambda x, v, n: x.scatter_reduce(0, n.abs().view(40, 1, 1).expand(40, 6, 5), v, "amax"),
    "lowest": lambda x, v, n: (x - math.inf).scatter_reduce(0, n.abs().view(40, 1, 1).expand(40, 7, 5), v, "amin"),
    "counts": lambda x, v, n: torch.zeros(6, dtype=torch.int64).scatter_add(0, n.abs(), torch.ones_like(n)),
}
SUMMED: Mapping[str, Formula] = {
    "rows added": lambda x, v, n: put(x, [n], v, True),
    "added along an inner axis": lambda x, v, n: put(x, [None, None, n], v[:9, :, :1].expand(9, 7, 40), True),
    "added at two axes": lambda x, v, n: put(x, [n.view(8, 5), n[:5]], v[:8, :5], True),
    "added at axes apart": lambda x, v, n: put(x, [n, None, n], v[:, :, 0], True),
    "added everywhere": lambda x, v, n: put(x, [n, n, n], v[:, 0, 0], True),
    "index_add": lambda x, v, n: x.index_add(2, n % 5, v[:9, :, :1].expand(9, 7, 40), alpha=2.0),
    "elements added": lambda x, v, n: x.scatter_add(0, n.abs().view(40, 1, 1).expand(40, 7, 4), v),
    "product": lambda x, v, n: x.scatter_reduce(0, n.abs().view(40, 1, 1).expand(40, 7, 5), v, "prod"),
    "an embedding": lambda x, v, n: embedded(v[:, 0], n.abs()),
    "an embedding with padding": lambda x, v, n: embedded(v, (n.abs() + torch.zeros(7, 1, dtype=int)).mT, 9, 2),
    "an embedding by frequency": lambda x, v, n: embedded(v[:, 0], n.abs(), by_frequency=True),
    "pooled": lambda x, v, n: pooled_backward(x[:2], v[:2, :4, :3]),
}


class Several(torch.nn.Module):
    def forward(self, *inputs: Any) -> dict[str, Any]:
        return {name: formula(*inputs) for name, formula in {**EXACT, **SUMMED}.items()}


@pytest.mark.parametrize("form", ["one after the other", "as reductions"])
def test_what_is_written_is_as_in_pytorch(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of positions alike, the last counts, or all; on a CPU also in the form for GPUs."""
    if form == "as reductions":
        monkeypatch.setattr(Site, "on_gpu", True)
        monkeypatch.setattr(scatters, "MOST_STEPS", 1)
        monkeypatch.setenv("TVM_CASCADE_CACHE_MIB", "0")
    torch.manual_seed(0)
    inputs = torch.randn(9, 7, 5), torch.randn(40, 7, 5), torch.randint(-5, 5, (40,))
    optimized, module = tvm_cascade.optimize(Several(), inputs), Several()
    for inputs in (inputs, (inputs[0], inputs[1], inputs[2].flip(0))):  # noqa: B020
        found, expected = optimized(*inputs), module(*inputs)
        exact = module(*(one.double() if one.is_floating_point() else one for one in inputs))
        for name in EXACT:
            assert torch.equal(found[name], expected[name]), name
        for name in SUMMED:
            results = (np.asarray(one[name].double()) for one in (found, exact, expected))
            assert found[name].any(), name
            assert_close(*results, length=40, dtype="float32")


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, at, v: put(x, [at], v),
        lambda x, at, v: put(x, [at, at.clamp(-3, 2)], v[:, 0], True),
        lambda x, at, v: x.scatter(0, at.view(-1, 1).expand(4, 3), v),
        lambda x, at, v: x.scatter_add(0, at.view(-1, 1) + torch.zeros(3, dtype=torch.int64), v),
    ],
)
def test_positions_out_of_range_are_the_nearest(formula: Formula) -> None:
    """PyTorch raises an error; what is computed of positions that are wrong must stay in the tensor."""
    x, at, v = torch.randn(5, 3), torch.tensor([1, 5, 1 << 40, -(1 << 40)]), torch.randn(4, 3)

    class Formed(torch.nn.Module):
        def forward(self, *given: Any) -> Any:
            return formula(*given)

    found, inside = tvm_cascade.optimize(Formed(), (x, at % 5, v))(x, at, v), at.clamp(-5, 4) % 5
    torch.testing.assert_close(found, formula(x, inside, v))
    assert not torch.equal(found, x)


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(("count", "extent"), [(700, 300), (1, 5), (256, 1), (300, 4)])
def test_the_last_writer_is_told_by_atomics(count: int, extent: int) -> None:
    """In whatever order threads run, of which the emulator tries two; what is at no place is left out."""
    given = te.placeholder((count,), "int64")
    function = te.create_prim_func([given, scatters.last_by_atomics(given, extent)])
    places = np.random.default_rng(0).integers(-1, extent + 2, count)
    expected = np.full(extent, -1, "int32")
    for k, place in enumerate(places):
        if 0 <= place < extent:
            expected[place] = k
    (found,) = emulate(function, [places])
    assert np.array_equal(found, expected)


def steps(statement: Any) -> int:
    """Of one thread: the passes through its loops, those of a kernel's own number taken for one."""
    if isinstance(statement, tirx.SeqStmt):
        return sum(map(steps, statement.seq))
    if isinstance(statement, tirx.For):
        alone = statement.kind in (tirx.ForKind.THREAD_BINDING, tirx.ForKind.VECTORIZED)
        return steps(statement.body) * (1 if alone else getattr(statement.extent, "value", 1))
    if isinstance(statement, s_tir.SBlockRealize):
        return steps(statement.block.body)
    return steps(statement.body) if isinstance(getattr(statement, "body", None), tirx.Stmt) else 1


@pytest.fixture
def as_on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of a CPU are converted as those of a GPU of CUDA, and not run."""
    monkeypatch.setattr(Site, "on_gpu", True)
    monkeypatch.setattr(scatters, "kind_of", lambda _: "cuda")
    monkeypatch.setattr(importer, "compared", lambda *_: None)


def scheduled(formula: Formula, *kinds: tuple[tuple[int, ...], torch.dtype]) -> IRModule:
    """The module of a formula, scheduled for a GPU."""
    with FakeTensorMode():
        given = [torch.empty(shape, dtype=dtype) for shape, dtype in kinds]
        with attention_whole(), enable_python_dispatcher():
            graph = make_fx(lambda *given: (formula(*given),), decomposition_table=dict(importer.table()))(*given)
    device = torch.device("cpu")
    module, _ = importer.import_program(captured(graph, device)[0], device)
    pipeline = get_pipeline({"kind": "cuda", "arch": "sm_90a"})
    return pipeline.scheduled(pipeline.grouped(module))


LONG = 1 << 16
N, ROWS = ((LONG,), torch.int64), ((LONG, 64), torch.float32)
FEW = tuple(((8000,), dtype) for dtype in (torch.int64, torch.float32))
PARALLEL: Mapping[str, tuple[Any, ...]] = {
    "rows": (lambda n, v: put(v.new_zeros(9000, 64), [n], v), N, ROWS),
    "order": (lambda n: put(torch.empty_like(n), [n], torch.arange(LONG, device=n.device)), N),
    "places of all axes": (lambda n, v: put(v, [n, n], v[:, 0]), N, ROWS),
    "a scatter": (lambda n, v: v.scatter(0, n.view(-1, 1).expand(LONG, 64), 1.0), N, ROWS),
    "experts of each row": (lambda n, v: v.scatter(1, n, 1.0), ((8000, 8), torch.int64), ((8000, 64), torch.float32)),
    "few rows added": (lambda n, v: put(v.new_zeros(30, 64), [n], v, True), N, ROWS),
    "positions of a short sentence": (lambda n, v: embedded(v, n, 30), N, ROWS),
    "counts": (lambda n: n.new_zeros(64).scatter_add(0, n, torch.ones_like(n)), N),
    "highest": (lambda n: n.new_zeros(64).scatter_reduce(0, n, n, "amax"), N),
    "highest of floats": (
        lambda n, v: v.scatter_reduce(0, n, v, "amax"),
        ((8000,), torch.int64),
        ((8000,), torch.float32),
    ),
}


@pytest.mark.usefixtures("as_on_gpu")
@pytest.mark.parametrize("name", PARALLEL)
def test_no_thread_of_a_gpu_writes_all(name: str) -> None:
    formula, *kinds = PARALLEL[name]
    functions = [one for _, one in scheduled(formula, *kinds).functions_items() if isinstance(one, tirx.PrimFunc)]
    assert max(steps(one.body) for one in functions) <= LONG // 4


@pytest.mark.usefixtures("as_on_gpu")
def test_no_thread_of_a_gpu_writes_the_gradients_of_a_decoder() -> None:
    """A training step: an embedding of tokens and one of positions, a block of GPT-2, and a loss."""
    tokens, width = 1024, 32
    block = Block(gated=False)
    names = dict(block.named_parameters())

    def step(at: Any, words: Any, places: Any, *parameters: Any) -> Any:
        given = [one.requires_grad_() for one in (words, places, *parameters)]
        x = F.embedding(at, words) + F.embedding(torch.arange(tokens), places)
        y = torch.func.functional_call(block, dict(zip(names, given[2:], strict=True)), (x,))
        loss = F.cross_entropy((y @ words.mT).flatten(0, 1), at.flatten())
        return torch.cat([one.flatten() for one in torch.autograd.grad(loss, given)])

    kinds = [((2, tokens), torch.int64), ((40, width), torch.float32), ((tokens, width), torch.float32)]
    kinds += [(tuple(one.shape), torch.float32) for one in names.values()]
    module = scheduled(step, *kinds)
    functions = {name.name_hint: one for name, one in module.functions_items() if isinstance(one, tirx.PrimFunc)}
    assert any("combined" in name for name in functions)
    assert max(steps(one.body) for one in functions.values()) <= LONG // 4  # of 2 · tokens · width in one thread


@pytest.mark.usefixtures("as_on_gpu")
@pytest.mark.parametrize(
    "formula",
    [
        lambda n, v: put(v.new_zeros(9000, 64), [n], v, True),
        lambda n, v: v.scatter_add(0, n.view(-1, 1).expand(LONG, 64), v),
        lambda n, v: v[0].scatter_reduce(0, n, v[:, 0], "amax"),
    ],
)
def test_sums_that_are_too_long_for_one_thread_are_refused(formula: Formula) -> None:
    with pytest.raises(ConversionError, match="written one after the other"):
        scheduled(formula, N, ROWS)


@pytest.mark.usefixtures("fresh_dynamo")
def test_gradients_of_a_long_table_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: PyTorch runs one operator, the rest of the graph is compiled."""
    monkeypatch.setattr(Site, "on_gpu", True)
    monkeypatch.setattr(scatters, "MOST_LOOKS", 100)
    monkeypatch.setattr(scatters, "MOST_STEPS", 1)
    monkeypatch.setenv("TVM_CASCADE_CACHE_MIB", "0")
    table, weight, at = torch.randn(50, 8, requires_grad=True), torch.randn(8, 6), torch.randint(0, 50, (3, 20))

    def loss(table: Any) -> Any:
        return (F.embedding(at, table) @ weight).tanh().square().mean()

    (expected,) = torch.autograd.grad(loss(table), table)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        (found,) = torch.autograd.grad(torch.compile(loss, backend="tvm_cascade")(table), table)
    text = [str(one.message) for one in told if issubclass(one.category, FallbackWarning)]
    assert len(text) == 1 and "scatter_add" in text[0] and "written one after the other" in text[0]
    assert expected.any()
    torch.testing.assert_close(found, expected)
