"""What an optimised model shares: with its module as that changes, with arguments that alias, between threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from torch import nn  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.driver.entry import Entry, Parameter  # noqa: E402
from tvm_cascade.errors import ModelError  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402
from tvm_cascade.torch.backend import FallbackWarning  # noqa: E402
from tvm_cascade.torch.model import OptimizedModel  # noqa: E402


def close(found: Any, eager: Any) -> None:
    assert_close(np.asarray(found.detach().double()), np.asarray(eager.detach().double()), length=64, dtype="float32")


class Tied(nn.Module):
    """A linear layer, and another that is tied to a third."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
        self.third.weight = self.second.weight
        self.register_buffer("shift", torch.randn(8))

    def forward(self, x: Any) -> Any:
        return self.third(self.second(self.first(x))) + self.shift


@pytest.fixture(scope="module")
def tied() -> Any:
    return tvm_cascade.optimize(module := Tied().eval(), torch.randn(4, 8)), module


def _renewed(module: Any) -> None:
    shared = torch.randn(8, 8)
    state = {name: torch.randn_like(one) for name, one in module.state_dict().items()}
    module.load_state_dict(state | {"second.weight": shared, "third.weight": shared}, assign=True)


REPLACED: dict[str, Callable[[Any], object]] = {
    "a state that is assigned": _renewed,
    "a parameter": lambda module: setattr(module.first, "weight", nn.Parameter(torch.randn(8, 8))),
    "data of a parameter": lambda module: setattr(module.first.weight, "data", torch.randn(8, 8)),
    "a tied one that is written to": lambda module: module.third.weight.data.mul_(2.0),
    "a submodule": lambda module: setattr(module, "first", nn.Linear(8, 8)),
    "a buffer": lambda module: setattr(module, "shift", torch.randn(8)),
}


@pytest.mark.parametrize("name", REPLACED)
@torch.no_grad()
def test_what_replaces_a_parameter_counts(name: str, tied: tuple[Any, Any]) -> None:
    optimized, module = tied
    REPLACED[name](module)
    x = torch.randn(4, 8)
    close(optimized(x), module(x))


OTHERS: dict[str, tuple[Callable[[Any], object], str]] = {
    "of another dtype": (lambda module: module.half(), r"first\.weight`: float32 \[8, 8\].*found float16 \[8, 8\]"),
    "of another shape": (lambda module: setattr(module, "first", nn.Linear(8, 1)), r"weight.*found float32 \[1, 8\]"),
    "none": (lambda module: setattr(module, "first", nn.Identity()), r"first\.weight`.*found none.*optimize again"),
    "one of two that are tied": (
        lambda module: setattr(module.third, "weight", nn.Parameter(torch.randn(8, 8))),
        r"one tensor as `second\.weight`, `third\.weight`.*found several",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
@torch.no_grad()
def test_a_module_that_became_another_one_is_refused(name: str, tied: tuple[Any, Any]) -> None:
    optimized, module = tied
    before = dict(module._modules), {key: one.weight for key, one in module.named_children()}
    change, message = OTHERS[name]
    change(module)
    with pytest.raises(ModelError, match=f"(?s){message}"):
        optimized(torch.randn(4, 8))
    module._modules.update(before[0])
    for key, weight in before[1].items():
        module._modules[key].weight = weight
    module.float()
    x = torch.randn(4, 8)
    close(optimized(x), module(x))


class Written(nn.Module):
    def forward(self, cache: Any, x: Any) -> Any:
        cache[:, 3:5] = x[:, :2]
        return x.mul_(2) + cache


ALIASED: dict[str, Callable[[], tuple[Any, Any]]] = {
    "one tensor": lambda: (x := torch.randn(4, 8), x),
    "rows in common": lambda: ((base := torch.randn(5, 8))[:4], base[1:]),
    "columns in common": lambda: ((base := torch.randn(4, 12))[:, :8], base[:, 4:]),
}


@pytest.mark.parametrize("name", ALIASED)
@torch.no_grad()
def test_arguments_that_share_memory_where_one_is_written_to(name: str) -> None:
    optimized, arguments = tvm_cascade.optimize(Written(), (torch.randn(4, 8), torch.randn(4, 8))), ALIASED[name]()
    before = [one.clone() for one in arguments]
    with pytest.raises(ModelError, match=r"(?s)`cache` and `x`, which share memory.*\.clone\(\)"):
        optimized(*arguments)
    assert all(map(torch.equal, arguments, before))
    apart = torch.randn(4, 2, 8).unbind(1)  # in one memory, without an element in common
    expected = Written()(*(one.clone() for one in apart))
    close(optimized(*apart), expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
@torch.no_grad()
def test_torch_compile_is_right_where_arguments_share_memory() -> None:
    torch._dynamo.reset()
    compiled, base = torch.compile(Written(), backend="tvm_cascade"), torch.randn(5, 8)
    apart = torch.randn(4, 8), torch.randn(4, 8)
    close(compiled(*(one.clone() for one in apart)), Written()(*apart))
    own = base.clone()
    with pytest.warns(FallbackWarning, match="memory|decomposes"):
        found = compiled(own[:4], own[1:])
    close(found, Written()(base[:4], base[1:]))
    assert torch.equal(own, base)


@torch.no_grad()
def test_an_example_in_which_one_tensor_is_two_arguments() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 8))

        def forward(self, x: Any, y: Any, z: Any) -> Any:
            return (x + 2 * y + 3 * z + self.weight).softmax(-1)

    module, example = Sum(), torch.randn(4, 8)
    optimized = tvm_cascade.optimize(module, (example, example, module.weight))
    x, y, z = torch.randn(3, 4, 8)
    close(optimized(x, y, z), module(x, y, z))


READS: dict[str, tuple[Callable[[Any, Any], Any], list[int], list[int]]] = {
    "rows of a table": (lambda x, i: torch.nn.functional.embedding(i, x), [0, 4], [5, -1, 10**12]),
    "an index": (lambda x, i: x[i.view(3, 1).int()], [-5, 4], [5, -6]),
    "columns": (lambda x, i: x.index_select(1, i), [0, 7], [8, -1]),
    "an element of each row": (lambda x, i: x[:3].gather(1, i[:, None].clone()), [0, 7], [8]),
    "only the first": (lambda x, i: x[i[:2]], [0, 99], []),
    "what was bounded": (lambda x, i: x[i.clamp(0, 4)], [0, 99], []),
}


@pytest.mark.parametrize("name", READS)
@torch.no_grad()
def test_positions_that_a_tensor_does_not_have_are_an_index_error(name: str) -> None:
    class Reading(nn.Module):
        def forward(self, x: Any, i: Any) -> Any:
            return READS[name][0](x, i)

    x, (_, known, unknown) = torch.randn(5, 8), READS[name]
    optimized = tvm_cascade.optimize(Reading(), (x, torch.tensor([0, 1, 2])))
    for position in known:
        i = torch.tensor([0, 1, position])
        assert torch.equal(optimized(x, i), Reading()(x, i))
    for position in unknown:
        with pytest.raises(IndexError, match=rf"(?s)positions from \S+ to \d+ as `i`.*{position}"):
            optimized(x, torch.tensor([0, 1, position]))


def test_tensors_of_torch_are_handed_over_themselves() -> None:
    """TVM then takes torch's current stream; what is not contiguous is copied, and copied back."""
    given = list[Any]()
    given_alone, filled = (False, False, False), (True, False, True)
    parameters = (Parameter("x", "float32", (4, 4), *given_alone), Parameter("y", "float32", (4, 4), *filled))

    def copied(x: Any, y: Any) -> None:
        given.extend((x, y))
        torch.from_dlpack(y).copy_(torch.from_dlpack(x) + 1)

    entry, x = Entry(copied, "main", parameters, tvm.cpu()), torch.arange(16.0).reshape(4, 4)
    for y in (torch.zeros(4, 4), torch.zeros(4, 4).T, torch.zeros(4, 8)[:, ::2]):
        given.clear()
        entry(x, y)
        assert given[0] is x and (given[1] is y) == y.is_contiguous()
        assert torch.equal(y, x + 1)


def test_threads_call_one_model_and_compile_others() -> None:
    """TVM's virtual machine and torch.export are of one thread each."""
    module, x = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)).eval(), torch.randn(32, 64)
    optimized, failures = tvm_cascade.optimize(module, x), list[BaseException]()

    @torch.no_grad()
    def run(seed: int) -> None:
        try:
            own = torch.randn(32, 64, generator=torch.Generator().manual_seed(seed))
            for _ in range(300):
                close(optimized(own), module(own))
            close(tvm_cascade.optimize(nn.Softmax(-1), own)(own), own.softmax(-1))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


POOLS = """
import os
from concurrent.futures import ThreadPoolExecutor
import torch
torch.set_num_threads(2)
x = torch.randn(640, 512)
torch.softmax(x, -1)
import tvm_cascade
optimized = tvm_cascade.optimize(torch.nn.Softmax(-1), x)
cores = os.sched_getaffinity(0)

def started():
    before = len(os.listdir("/proc/self/task"))
    torch.testing.assert_close(optimized(x), torch.softmax(x, -1))
    return len(os.listdir("/proc/self/task")) - before

for count, expected in ((2, 0), (1, 0), (2, 0), (5, 3), (1, 0)):
    torch.set_num_threads(count)
    assert started() == expected, count
with ThreadPoolExecutor(1) as one:
    assert one.submit(started).result() == 0, "a thread that is new asks for all cores"
assert os.sched_getaffinity(0) == cores, "the caller was bound"
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads by Linux's /proc")
def test_a_model_runs_on_the_threads_of_torch_and_starts_none() -> None:
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", POOLS], check=True, timeout=300, env={**os.environ, **path})


class Swapping(nn.Module):
    """It swaps its arguments, and returns what the first one was, the second one, and a parameter."""

    def __init__(self, rare: bool) -> None:
        super().__init__()
        self.linear, self.rare = nn.Linear(8, 8), torch.special.bessel_j0 if rare else torch.cos

    def forward(self, x: Any, y: Any) -> Any:
        before = x.clone()
        x.copy_(y)
        y.copy_(before)
        return self.rare(self.linear(self.linear(x).relu()).softmax(-1)), before, y[:1], self.linear.bias


@pytest.mark.filterwarnings("ignore::tvm_cascade.torch.backend.FallbackWarning")
@pytest.mark.parametrize("rare", [False, True])
@torch.no_grad()
def test_what_is_written_changes_no_other_result(rare: bool) -> None:
    module, example = Swapping(rare).eval(), (torch.randn(4, 8), torch.randn(4, 8))
    bias = module.linear.bias.clone()
    copied = tuple(one.clone() for one in example)
    for call in (tvm_cascade.optimize(module, copied, cut=True), torch.compile(module, backend="tvm_cascade")):
        x, y = (one.clone() for one in example)
        found, expected = call(x, y), module(*(one.clone() for one in example))
        assert torch.equal(x, example[1]) and torch.equal(y, example[0])
        for one, eager in zip(found, expected, strict=True):
            close(one, eager)
        found[1].fill_(9.0)
        assert torch.equal(x, example[1]) and torch.equal(y, example[0])
        if isinstance(call, OptimizedModel):
            found[2].fill_(9.0), found[3].fill_(9.0)
            assert torch.equal(y, example[0]) and torch.equal(module.linear.bias, bias)
