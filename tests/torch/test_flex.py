"""FlexAttention in compiled models: one fused loop, whatever modifies and masks its scores, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import flex_attention as flex  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.evaluate.tolerance import check  # noqa: E402
from tvm_cascade.torch import backend, compilation  # noqa: E402
from tvm_cascade.torch.backend import FallbackWarning  # noqa: E402

from ..tiers import slow_but  # noqa: E402

BATCH, HEADS, SIDE, DEPTH = 2, 4, 6, 8
LENGTH = SIDE * SIDE
GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> Any:
    return torch.randn(shape, generator=GENERATOR)


def numbers(most: int, *shape: int) -> Any:
    return torch.randint(most, shape, generator=GENERATOR)


SLOPES, PER_HEAD, SCALE = 2.0 ** -torch.arange(1.0, HEADS + 1), drawn(HEADS), torch.tensor(1.7)
RELATIVE, OF_BUCKETS = drawn(HEADS, 2 * LENGTH), drawn(HEADS, 9)
PAIRS, OF_EACH_HEAD, OF_EACH_BATCH = (drawn(*shape, LENGTH, LENGTH) for shape in ((), (HEADS,), (BATCH, HEADS)))
WEIGHT, TIMES = drawn(1), numbers(1000, BATCH, LENGTH).sort(-1).values
DOCUMENT, IMAGE = torch.arange(LENGTH) // 10, numbers(3, LENGTH).sort().values
LENGTHS, PREFIX, WINDOWS, OFFSET = (
    torch.tensor([36, 20]),
    torch.tensor([5, 12]),
    torch.tensor([1, 3, 9, 36]),
    torch.tensor(4),
)
KEPT, BLOCKS = numbers(3, BATCH, HEADS, LENGTH, LENGTH) > 0, numbers(2, SIDE, SIDE) > 0
BUCKETS = (torch.arange(2 * LENGTH) - LENGTH).abs().add(1).log2().ceil().long()
ANCESTORS = torch.eye(LENGTH, dtype=torch.bool)
for node in range(1, LENGTH):
    ANCESTORS[node] |= ANCESTORS[(node - 1) // 2]

# Scores.


def capped(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 2.0 * torch.tanh(s / 2.0)


def alibi(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return s + SLOPES[h] * (k - q)


def relative(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return s + RELATIVE[h, q - k + LENGTH]


def city_blocks(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return s - 0.3 * ((q // SIDE - k // SIDE).abs() + (q % SIDE - k % SIDE).abs())


# Masks.


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q - k <= 5)


def document(b: Any, h: Any, q: Any, k: Any) -> Any:
    return DOCUMENT[q] == DOCUMENT[k]


def prefix(b: Any, h: Any, q: Any, k: Any) -> Any:
    return k < PREFIX[b]


def everywhere(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q < 2) | (k < 2)


def neighbours(b: Any, h: Any, q: Any, k: Any) -> Any:
    """Of an image, the 3 × 3 places around one, moved inside at the edges."""
    row, column = (q // SIDE).clamp(1, SIDE - 2), (q % SIDE).clamp(1, SIDE - 2)
    return ((row - k // SIDE).abs() <= 1) & ((column - k % SIDE).abs() <= 1)


def butterfly(b: Any, h: Any, q: Any, k: Any) -> Any:
    return ((q ^ k) & ((q ^ k) - 1)) == 0


@dataclass(frozen=True)
class Case:
    score: Callable[..., Any] | None = None
    mask: Callable[..., Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    whole: Callable[..., Any] | None = None
    """The same modification of whole tensors, where `score` is none of these."""


CASES = {
    # Scores alone.
    "plain": Case(),
    "scale": Case(options={"scale": 0.2}),
    "causal score": Case(lambda s, b, h, q, k: torch.where(q >= k, s, -math.inf)),
    "relative positions": Case(lambda s, b, h, q, k: s + (q - k)),
    "checkerboard score": Case(lambda s, b, h, q, k: torch.where((k - q).abs() % 2 == 1, s * 0.5, s)),
    "alibi": Case(alibi),
    "alibi of powers": Case(lambda s, b, h, q, k: s + torch.exp2(-((h + 1) * 8.0 / HEADS)) * (k - q)),
    "soft cap": Case(capped),
    "relative bias": Case(relative),
    "bias of buckets": Case(lambda s, b, h, q, k: s + OF_BUCKETS[h, BUCKETS[q - k + LENGTH]]),
    "bias of near ones": Case(lambda s, b, h, q, k: s + OF_BUCKETS[h, (q - k).abs().clamp(max=8)]),
    "bias of a head": Case(lambda s, b, h, q, k: s + PER_HEAD[h]),
    "bias of pairs": Case(lambda s, b, h, q, k: s + PAIRS[q, k]),
    "bias of heads": Case(lambda s, b, h, q, k: s + OF_EACH_HEAD[h, q, k]),
    "bias of all": Case(lambda s, b, h, q, k: s + OF_EACH_BATCH[b, h, q, k]),
    "bias axis by axis": Case(
        lambda s, b, h, q, k: s + OF_EACH_BATCH[b][h][q][k], whole=lambda s, *_: s + OF_EACH_BATCH
    ),
    "transposed bias": Case(lambda s, b, h, q, k: s + OF_EACH_HEAD[h, k, q]),
    "shared bias": Case(lambda s, b, h, q, k: s + OF_EACH_HEAD[h // 2, q, k]),
    "bias from the end": Case(lambda s, b, h, q, k: s + PAIRS[-1 - q, k]),
    "learned scale": Case(lambda s, b, h, q, k: s * SCALE),
    "scale of a head": Case(lambda s, b, h, q, k: s * torch.sigmoid(PER_HEAD[h])),
    "squared distance": Case(lambda s, b, h, q, k: s - 0.01 * (q - k) ** 2),
    "cosine": Case(lambda s, b, h, q, k: s + torch.cos(0.3 * (q - k))),
    "gated": Case(lambda s, b, h, q, k: s * torch.sigmoid(s)),
    "squared relu": Case(lambda s, b, h, q, k: 0.5 * torch.relu(s) ** 2),
    "times": Case(lambda s, b, h, q, k: s - WEIGHT[0] * torch.log1p((TIMES[b, q] - TIMES[b, k]).abs().float())),
    "city blocks": Case(city_blocks),
    "padded score": Case(lambda s, b, h, q, k: torch.where(k < LENGTHS[b], s, -math.inf)),
    # Masks alone.
    "causal": Case(mask=causal),
    "window": Case(mask=window),
    "two-sided window": Case(mask=lambda b, h, q, k: (q - k).abs() <= 4),
    "windows of heads": Case(mask=lambda b, h, q, k: (q - k).abs() <= WINDOWS[h]),
    "dilated window": Case(mask=lambda b, h, q, k: ((q - k).abs() <= 8) & ((q - k) % 2 == 0)),
    "strided": Case(mask=lambda b, h, q, k: (q >= k) & ((q - k < 4) | ((q - k) % 4 == 0))),
    "blocks": Case(mask=lambda b, h, q, k: q // 8 == k // 8),
    "random blocks": Case(mask=lambda b, h, q, k: BLOCKS[q // SIDE, k // SIDE] | (q == k)),
    "document": Case(mask=document),
    "prefix": Case(mask=flex.or_masks(prefix, causal)),
    "global and window": Case(mask=flex.or_masks(everywhere, window)),
    "image neighbours": Case(mask=neighbours),
    "checkerboard": Case(mask=lambda b, h, q, k: (q + k) % 2 == 0),
    "butterfly": Case(mask=butterfly),
    "random": Case(mask=lambda b, h, q, k: KEPT[b, h, q, k]),
    "ancestors": Case(mask=lambda b, h, q, k: ANCESTORS[q, k]),
    "image before": Case(mask=lambda b, h, q, k: IMAGE[q] >= IMAGE[k]),
    "offset": Case(mask=lambda b, h, q, k: q + OFFSET >= k),
    "lengths": Case(mask=lambda b, h, q, k: (q < LENGTHS[b]) & (k < LENGTHS[b])),
    "the future": Case(mask=lambda b, h, q, k: ~(q >= k)),
    # Both.
    "alibi, causal": Case(alibi, causal),
    "soft cap, window": Case(capped, window),
    "soft cap of alibi, prefix": Case(
        lambda s, b, h, q, k: capped(alibi(s, b, h, q, k), b, h, q, k), flex.or_masks(prefix, causal)
    ),
    "relative bias, documents": Case(relative, flex.and_masks(document, causal)),
    "city blocks, neighbours": Case(city_blocks, neighbours),
    "causal, groups of heads": Case(mask=causal, options={"enable_gqa": True}),
    "alibi, documents, groups of heads": Case(alibi, document, {"enable_gqa": True, "scale": 0.5}),
}
"""Modifications of PyTorch's documentation and of attention-gym, and some that combine them."""

QUICK = ["relative bias, documents", "lengths"]


pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("error::tvm_cascade.torch.backend.FallbackWarning"),
]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is compiled. PyTorch refuses FlexAttention on CPUs where gradients are asked for; here it does not."""
    found, compile_ = list[Any](), compilation.compiled

    def kept(*given: Any, **named: Any) -> Any:
        found.append(compile_(*given, **named))
        return found[-1]

    monkeypatch.setattr(backend, "compiled", kept)
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    return found


def inputs(groups: int = 1, dtype: Any = torch.float32) -> list[Any]:
    shapes = [(BATCH, heads, LENGTH, DEPTH) for heads in (HEADS, HEADS // groups, HEADS // groups)]
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def blocks_of(mask: Any, queries: int = LENGTH, keys: int = LENGTH) -> Any:
    return mask and flex.create_block_mask(mask, BATCH, HEADS, queries, keys, device="cpu")


def compiled(score: Any = None, **named: Any) -> Callable[..., Any]:
    """A function of query, key, value and a mask's blocks."""

    def call(q: Any, k: Any, v: Any, blocks: Any = None, **more: Any) -> Any:
        return flex.flex_attention(q, k, v, score, blocks, **named, **more)

    return torch.compile(call, backend="tvm_cascade", fullgraph=True)


def dense(case: Case, q: Any, k: Any, v: Any) -> Any:
    """The attention of whole tensors of scores, in the dtype of its operands; 0 in rows that are masked everywhere."""
    groups = q.shape[1] // k.shape[1]
    k, v = (one.repeat_interleave(groups, 1) for one in (k, v))
    places = torch.meshgrid(*map(torch.arange, (*q.shape[:3], k.shape[2])), indexing="ij")
    scores = q @ k.mT * case.options.get("scale", 1 / math.sqrt(q.shape[-1]))
    modified = case.whole or case.score
    scores = scores if modified is None else modified(scores, *places)
    seen = torch.ones_like(scores, dtype=torch.bool) if case.mask is None else case.mask(*places)
    seen = seen & (scores > -math.inf)
    empty = ~seen.any(-1, keepdim=True)
    weights = scores.masked_fill(~seen, -math.inf).masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    return weights @ v


FOLDED = LENGTH * DEPTH
"""Products that an element of a gradient is the sum of: of queries or keys, each with a sum over features in it."""


def assert_right(found: Any, exact: Any, eager: Any, dtype: str = "float32", length: int = LENGTH) -> None:
    """By the rule for right results; zeros and rows in another order are none."""

    def judged(one: Any) -> Any:
        return check(*(x.detach().double() for x in (one, exact, eager)), length=length, dtype=dtype)

    assert judged(found).ok, judged(found).message
    assert not judged(torch.zeros_like(found)).ok and not judged(found.roll(1, -2)).ok


def assert_one_loop(code: Any) -> None:
    """All reductions are of one fused loop, beside that over the lists of a mask's blocks."""
    (group,) = [one for one in code.report.groups if one.buffers != ("listed",)]
    assert str(group.verdict) == "fused" and group.buffers == ("highest", "sums", "attended")
    assert {one.name for one in code.report.functions} - {"listed_blocks"} == {"attention"}


@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_modifications(name: str, made: list[Any]) -> None:
    case = CASES[name]
    given, blocks = inputs(2 if "enable_gqa" in case.options else 1), blocks_of(case.mask)
    exactly = [one.detach().double().requires_grad_() for one in given]
    exact, weights = dense(case, *exactly), torch.randn(BATCH, HEADS, LENGTH, DEPTH)
    eager = flex.flex_attention(*given, case.score, blocks, **case.options)
    run = compiled(case.score, **case.options)
    with torch.no_grad():
        assert_right(run(*given, blocks), exact, eager)
    assert len(made) == 1
    assert_one_loop(made[0])

    found = torch.autograd.grad((run(*given, blocks) * weights).sum(), given)
    wanted = torch.autograd.grad((exact * weights).sum(), exactly)
    usual = torch.autograd.grad((eager * weights).sum(), given)
    for one, exact, eager in zip(found, wanted, usual, strict=True):
        assert_right(one, exact, eager, length=FOLDED)
    assert len(made) == 3, "a graph without gradients, a forward and a backward one"


def test_blocks_that_are_not_made_of_the_mask(made: list[Any]) -> None:
    """Keys take part where their block is listed, full or not, and the mask keeps them; queries without any give 0."""
    counts, members = torch.tensor([2, 0, 3]), torch.tensor([[2, 0, 1], [0, 1, 2], [0, 1, 2]])
    full = torch.tensor([1, 0, 0]), torch.tensor([[1, 0, 2], [0, 1, 2], [0, 1, 2]])
    lists = [one.int()[None, None] for one in (counts, members, *full)]
    blocks = flex.BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=12, mask_mod=causal, seq_lengths=(LENGTH, LENGTH))
    kept = torch.tensor([[1, 1, 1], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
    assert torch.equal(kept, blocks.to_dense()[0, 0].bool())

    def both(b: Any, h: Any, q: Any, k: Any) -> Any:
        return causal(b, h, q, k) & kept[q // 12, k // 12]

    given, weights = inputs(), torch.randn(BATCH, HEADS, LENGTH, DEPTH)
    exactly = [one.detach().double().requires_grad_() for one in given]
    results = [compiled()(*given, blocks), dense(Case(mask=both), *given), dense(Case(mask=both), *exactly)]
    assert_right(results[0], results[2], results[1])
    found = (
        torch.autograd.grad((one * weights).sum(), of) for one, of in zip(results, (given, given, exactly), strict=True)
    )
    for one, eager, exact in zip(*found, strict=True):
        assert_right(one, exact, eager, length=FOLDED)
    for code in made:
        assert "listed_blocks" in {one.name for one in code.report.functions}


CAPTURED = {
    "relative": lambda bias: lambda s, b, h, q, k: s + bias[h, q - k + LENGTH],
    "slopes of queries": lambda bias: lambda s, b, h, q, k: s + bias[h, q] * (q - k) / LENGTH,
    "scales of keys": lambda bias: lambda s, b, h, q, k: s * bias[0, k + 1],
    "all pairs": lambda bias: lambda s, b, h, q, k: s + bias[h, q] * bias[h, k + LENGTH],
    "soft caps": lambda bias: lambda s, b, h, q, k: bias[h, q].exp() * torch.tanh(s / bias[h, q].exp()),
}
"""Modifications of scores by a tensor [HEADS, 2·LENGTH]."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTURED)
def test_gradients_of_what_is_captured(name: str, made: list[Any]) -> None:
    given, bias = inputs(), torch.randn(HEADS, 2 * LENGTH, requires_grad=True)
    exactly, blocks = [one.detach().double().requires_grad_() for one in (*given, bias)], blocks_of(causal)
    exact = dense(Case(CAPTURED[name](exactly[-1]), causal), *exactly[:3])
    weights = torch.randn(exact.shape)

    def score(*place: Any) -> Any:
        return CAPTURED[name](bias)(*place)

    results = [compiled(score)(*given, blocks), flex.flex_attention(*given, score, blocks)]
    found, usual = (torch.autograd.grad((one * weights).sum(), (*given, bias)) for one in results)
    wanted = torch.autograd.grad((exact * weights).sum(), exactly)
    for one, exact, eager in zip(found, wanted, usual, strict=True):
        length = FOLDED if one.dim() > bias.dim() else BATCH * HEADS * FOLDED
        assert one.any() and check(one.double(), exact, eager.double(), length=length, dtype="float32").ok
    assert len(made) == 2


@pytest.mark.slow
def test_a_captured_tensor_whose_gradient_has_no_formula(made: list[Any]) -> None:
    """Which of its elements are read depends on data: PyTorch runs the backward graph."""
    given, bias = inputs(), torch.randn(HEADS, 9, requires_grad=True)
    run = torch.compile(
        lambda *given: flex.flex_attention(*given, lambda s, b, h, q, k: s + bias[h, BUCKETS[q - k + LENGTH]]),
        backend="tvm_cascade",
    )
    with pytest.warns(FallbackWarning, match="not_invertible"):
        found = torch.autograd.grad(run(*given).square().sum(), (*given, bias))
    assert len(made) == 1, "the forward graph"
    exactly, places = [one.detach().double().requires_grad_() for one in (*given, bias)], torch.arange(LENGTH)
    of_pairs = exactly[-1][:, BUCKETS[places[:, None] - places + LENGTH]]
    exact = dense(Case(whole=lambda s, *_: s + of_pairs), *exactly[:3])
    for one, wanted in zip(found, torch.autograd.grad(exact.square().sum(), exactly), strict=True):
        assert check(one.double(), wanted, length=FOLDED * LENGTH, dtype="float32").ok


def test_logarithms_of_sums_and_highest_scores(made: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are −∞ in rows that are masked everywhere, whose gradients are 0; one of the former has a gradient."""
    given, mask = inputs(), CASES["lengths"].mask
    exactly, blocks = [one.detach().double() for one in given], blocks_of(mask)
    own = flex._apply_kernel_options
    monkeypatch.setattr(flex, "_apply_kernel_options", lambda *given: own(*given[:-1], flex.AuxRequest(lse=True)))
    run = compiled(return_aux=flex.AuxRequest(lse=True, max_scores=True))
    _, found = run(*given, blocks)
    places = torch.meshgrid(*map(torch.arange, (BATCH, HEADS, LENGTH, LENGTH)), indexing="ij")
    scores = (exactly[0] @ exactly[1].mT / math.sqrt(DEPTH)).masked_fill(~mask(*places), -math.inf)
    for one, exact in ((found.lse, scores.logsumexp(-1)), (found.max_scores, scores.amax(-1))):
        assert (exact == -math.inf).any()
        assert check(one.detach().double(), exact, length=LENGTH, dtype="float32").ok

    weights = torch.randn(LENGTH).masked_fill(torch.arange(LENGTH) >= 20, 0.0)
    found = torch.autograd.grad((found.lse.nan_to_num(neginf=0.0) * weights).sum(), given[:2])
    q, k = (one.requires_grad_() for one in exactly[:2])
    lse = (q @ k.mT / math.sqrt(DEPTH)).masked_fill(~mask(*places), -1e4).logsumexp(-1)
    for one, exact in zip(found, torch.autograd.grad((lse * weights).sum(), (q, k)), strict=True):
        assert check(one.double(), exact, length=FOLDED, dtype="float32").ok and one.any()


@pytest.mark.slow
def test_lengths_that_change_have_one_program(made: list[Any]) -> None:
    case = Case(alibi, causal)
    call = torch.compile(
        lambda q, k, v, blocks: flex.flex_attention(q, k, v, alibi, blocks), backend="tvm_cascade", dynamic=True
    )
    with torch.no_grad():
        for length in (12, 20, 33):
            given = [torch.randn(BATCH, HEADS, length, DEPTH) for _ in range(3)]
            exact = dense(case, *(one.double() for one in given))
            assert_right(call(*given, blocks_of(causal, length, length)), exact, dense(case, *given))
    assert len(made) == 1


@pytest.mark.slow
def test_captured_sizes_that_change_have_one_program(made: list[Any]) -> None:
    """Of which no tensor has the extent."""

    def near(width: int) -> Any:
        return lambda s, b, h, q, k: torch.where((q - k).abs() < width, s + (q - k) * width, 0.5 * s)

    run = torch.compile(
        lambda q, k, v, width: flex.flex_attention(q, k, v, near(width)), backend="tvm_cascade", dynamic=True
    )
    for length, width in ((12, 3), (20, 5), (33, 9)):
        given = [torch.randn(BATCH, HEADS, length, DEPTH, requires_grad=True) for _ in range(3)]
        exactly = [one.detach().double().requires_grad_() for one in given]
        results = [run(*given, width), flex.flex_attention(*given, near(width)), dense(Case(near(width)), *exactly)]
        assert_right(results[0], results[2], results[1])
        found = (torch.autograd.grad(one.sum(), of) for one, of in zip(results, (given, given, exactly), strict=True))
        for one, eager, exact in zip(*found, strict=True):
            assert_right(one, exact, eager, length=FOLDED)
    assert len(made) == 2, "a forward graph and a backward one, for any length and width"


@pytest.mark.slow
def test_code_on_disk_is_of_the_same_constants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Graphs of functions that differ in the value of a constant are different ones."""
    monkeypatch.setenv("TVM_CASCADE_CACHE_MIB", "64")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = [one.detach() for one in inputs()]
    for score in (lambda s, b, h, q, k: s * PAIRS[1, k], lambda s, b, h, q, k: s * PAIRS[2, k]):
        torch._dynamo.reset()
        exact = dense(Case(score), *(one.double() for one in given))
        assert_right(compiled(score)(*given), exact, dense(Case(score), *given))


@pytest.mark.slow
def test_exported_models() -> None:
    class Biased(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slopes, self.blocks = torch.nn.Parameter(SLOPES), blocks_of(causal)

        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return flex.flex_attention(q, k, v, lambda s, b, h, i, j: s + self.slopes[h] * (j - i), self.blocks)

    given = tuple(one.detach() for one in inputs())
    model = tvm_cascade.optimize(Biased().eval(), given)
    exact, eager = (dense(CASES["alibi, causal"], *of) for of in ([one.double() for one in given], given))
    assert_right(model(*given), exact, eager)
    assert_one_loop(model)


@pytest.mark.slow
def test_one_query_over_keys_of_one_batch(made: list[Any]) -> None:
    q, k, v = torch.randn(BATCH, HEADS, 1, DEPTH), *(torch.randn(1, 2, LENGTH, DEPTH) for _ in range(2))
    case = Case(alibi, lambda b, h, q, k: k <= q + OFFSET + 20, {"enable_gqa": True})
    with torch.no_grad():
        found = compiled(alibi, enable_gqa=True)(q, k, v, blocks_of(case.mask, 1))
        keys, values = (one.expand(BATCH, *one.shape[1:]) for one in (k, v))
        exact = dense(case, *(one.double() for one in (q, keys, values)))
        assert check(found.double(), exact, length=LENGTH, dtype="float32").ok
    assert_one_loop(made[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alibi, causal", "soft cap, window"])
def test_halves(name: str, made: list[Any]) -> None:
    case, given = CASES[name], inputs(dtype=torch.bfloat16)
    exactly = [one.detach().double().requires_grad_() for one in given]
    exact, blocks = dense(case, *exactly), blocks_of(case.mask)
    found, eager = compiled(case.score)(*given, blocks), flex.flex_attention(*given, case.score, blocks)
    assert found.dtype == torch.bfloat16
    assert_right(found, exact, eager, "bfloat16")
    results = (found, given), (exact, exactly), (eager, given)
    for one, exact, eager in zip(*(torch.autograd.grad(out.sum(), of) for out, of in results), strict=True):
        assert_right(one, exact, eager, "bfloat16", FOLDED)


def _detached(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return s * torch.sigmoid(s.detach())


class Doubled(torch.autograd.Function):
    """With another derivative than that of its operator."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return 2.0 * x

    @staticmethod
    def backward(ctx: Any, adjoint: Any) -> Any:
        return 3.0 * adjoint


def _doubled(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return Doubled.apply(s)


def _of_no_converter(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.digamma(s * s + 1.0)


REFUSED = {
    "detach": (_detached, "another one"),
    "derivative": (_doubled, "another one"),
    "operator": (_of_no_converter, "digamma"),
}


@pytest.mark.parametrize("name", slow_but(["detach"], REFUSED))
def test_what_is_refused_runs_in_pytorch(name: str, made: list[Any]) -> None:
    score, words = REFUSED[name]
    given = inputs()
    exactly = [one.detach().double().requires_grad_() for one in given]
    run = torch.compile(lambda *given: flex.flex_attention(*given, score), backend="tvm_cascade")
    with pytest.warns(FallbackWarning, match=words):
        found = torch.autograd.grad(run(*given).square().sum(), given)
    exact, eager = (torch.autograd.grad(dense(Case(score), *of).square().sum(), of) for of in (exactly, given))
    for one, wanted, usual in zip(found, exact, eager, strict=True):
        assert_right(one, wanted, usual, length=FOLDED)


@pytest.mark.slow
def test_attention_beside_what_is_refused(made: list[Any]) -> None:
    """The function that modifies scores goes with its attention into a part."""

    def model(x: Any) -> Any:
        x = torch.special.bessel_j0(x) * 2.0 + 1.0
        return flex.flex_attention(x, x * 0.5, x - 1.0, alibi).exp()

    x = torch.randn(1, HEADS, LENGTH, DEPTH)
    with torch.no_grad(), pytest.warns(FallbackWarning, match="bessel_j0"):
        found = torch.compile(model, backend="tvm_cascade")(x)
    given = torch.special.bessel_j0(x.double()) * 2.0 + 1.0
    exact = dense(Case(alibi), given, given * 0.5, given - 1.0).exp()
    assert check(found.double(), exact, length=LENGTH, dtype="float32").ok
    assert any("highest" in group.buffers for code in made for group in code.report.groups)
