"""`tvm_cascade.optimize`: what it shares with the module, what it copies, what it writes, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tvm_cascade  # noqa: E402
from benchmarks.torch_models.sizes import TINY  # noqa: E402
from benchmarks.torch_models.table import model  # noqa: E402
from tvm_cascade.errors import CascadeError, InputError, ModelError  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402


class Function(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


class Counting(nn.Module):
    """Has a parameter that shares its memory, a buffer that it writes, and an argument that is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Any, double: bool = False) -> dict[str, Any]:
        self.seen.add_(x.sum(0))
        y = self.linear(x).softmax(-1)
        return {"result": 2 * y if double else y, "rows": x.shape[0], "none": None}


def close(found: Any, eager: Any, dtype: str = "float32") -> None:
    assert_close(np.asarray(found.detach().double()), np.asarray(eager.detach().double()), length=64, dtype=dtype)


@pytest.fixture(scope="module")
def counting() -> tuple[Counting, Any]:
    module = Counting().eval()
    return module, tvm_cascade.optimize(module, (torch.randn(4, 8),))


@torch.no_grad()
def test_it_is_a_module_with_the_parameters_of_its_source(counting: tuple[Counting, Any]) -> None:
    module, optimized = counting
    assert isinstance(optimized, nn.Module) and not optimized.training
    for own, other in zip(optimized.named_parameters(), module.named_parameters(), strict=True):
        assert own[0] == other[0] and own[1] is other[1]
    assert [*dict(optimized.named_buffers())] == ["seen"] and [*optimized.state_dict()] == [*module.state_dict()]
    other = Counting().eval()
    optimized.load_state_dict(other.state_dict())
    x = torch.randn(4, 8)
    close(optimized(x)["result"], other(x)["result"])
    assert optimized.eval() is optimized.to("cpu") is optimized.float() is optimized
    with pytest.raises(ModelError, match=r"(?s)for inference.*train\(\).*Counting.*torch.compile"):
        optimized.train()
    with pytest.raises(ModelError, match=r"(?s)`linear.weight` as compiled: float32 \[8, 8\].*call tvm"):
        optimized.half()
    assert all(one.dtype == torch.float32 for one in optimized.parameters())


@torch.no_grad()
def test_it_is_a_part_of_other_modules(counting: tuple[Counting, Any]) -> None:
    whole = nn.Sequential(nn.Linear(8, 8), counting[1])
    assert {name for name, _ in whole.named_parameters()} >= {"0.weight", "1.linear.weight", "1.linear.bias"}
    assert whole(torch.zeros(4, 8))["rows"] == 4
    assert {*whole.state_dict()} >= {"0.weight", "1.linear.weight", "1.seen"}
    with pytest.raises(ModelError, match="as compiled"):
        whole.double()


@torch.no_grad()
def test_parameters_and_buffers_are_the_modules_own(counting: tuple[Counting, Any]) -> None:
    module, optimized = counting
    x = torch.randn(4, 8)
    module.seen.zero_()
    found = optimized(x)
    assert found["rows"] == 4 and found["none"] is None
    close(module.seen, x.sum(0))
    close(found["result"], module(x)["result"])
    module.linear.weight.mul_(3.0)
    close(optimized(x)["result"], module(x)["result"])
    module.linear.weight.data = torch.randn(9, 8)[1:].contiguous()[:, :]
    close(optimized(x)["result"], module(x)["result"])
    module.linear.weight.data = torch.randn(8, 8).T  # has to be copied, and again after it is written to
    close(optimized(x)["result"], module(x)["result"])
    module.linear.weight.mul_(3.0)
    close(optimized(x)["result"], module(x)["result"])


LAYOUTS: dict[str, Callable[[], Any]] = {
    "as it is": lambda: torch.randn(4, 8),
    "32 bytes off": lambda: torch.randn(40)[8:].view(4, 8),
    "4 bytes off": lambda: torch.randn(33)[1:].view(4, 8),
    "transposed": lambda: torch.randn(8, 4).T,
    "every other row": lambda: torch.randn(8, 8)[::2],
    "one row, repeated": lambda: torch.randn(1, 8).expand(4, 8),
    "sparse": lambda: torch.eye(4, 8).to_sparse(),
    "under inference mode": lambda: inference_tensor(),
}


def inference_tensor() -> Any:
    with torch.inference_mode():
        return torch.randn(4, 8)


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_tensors_that_compiled_code_cannot_read_are_copied(layout: str, counting: tuple[Counting, Any]) -> None:
    module, optimized = counting
    x = LAYOUTS[layout]()
    close(optimized(x)["result"], module(x.to_dense())["result"])


def test_aligned_tensors_are_read_where_they_lie() -> None:
    """A result that is an argument has its memory: nothing was copied on the way in or out."""
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    found, same = tvm_cascade.optimize(Function(lambda x, y: (x + y, x)), (x, y))(x, y)
    assert same.data_ptr() == x.data_ptr() and found.data_ptr() not in (x.data_ptr(), y.data_ptr())


def test_an_argument_is_written_to_as_the_module_does() -> None:
    def call(cache: Any, x: Any) -> Any:
        cache[1:3] = x
        return cache.sum(0)

    x, cache = torch.randn(2, 8), torch.randn(9, 4).T[:, :8]
    expected = cache.clone()
    found = tvm_cascade.optimize(Function(call), (cache, x))(cache, x)
    close(found, call(expected, x))
    assert torch.equal(cache, expected)


@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
@torch.no_grad()
def test_a_model_of_halves_gives_halves(dtype: str) -> None:
    module, inputs = model("llama", TINY)
    exact = module.double()(*inputs)
    module = module.to(getattr(torch, dtype))
    eager, found = module(*inputs), tvm_cascade.optimize(module, inputs)(*inputs)
    assert found.dtype == eager.dtype
    results = (np.asarray(one.double()) for one in (found, exact, eager))
    assert_close(*results, length=4 * TINY.width, dtype=dtype)


@torch.no_grad()
def test_lengths_that_may_change() -> None:
    rows, keys = torch.export.Dim("rows", min=2, max=40), torch.export.Dim("keys", min=2)
    module = Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    example = torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    optimized = tvm_cascade.optimize(module, example, dynamic=(({1: rows}, {1: keys}, {1: keys}),))
    for lengths in ((5, 7, 7), (40, 3, 3)):
        inputs = [torch.randn(2, length, 8) for length in lengths]
        close(optimized(*inputs), module(*inputs))
    with pytest.raises(ModelError, match=r"(?s)from 2 to 40.*found float32 \[2, 41, 8\].*dynamic"):
        optimized(torch.randn(2, 41, 8), *inputs[1:])
    with pytest.raises(ModelError, match=r"(?s)found float32 \[2, 4, 8\]"):
        optimized(*inputs[:2], torch.randn(2, 4, 8))


@torch.no_grad()
def test_sums_of_lengths_are_one_extent_in_every_order() -> None:
    def call(x: Any, y: Any) -> Any:
        steps = torch.cat([x[:, :1], x], 1).diff()
        both, other = torch.cat([x, y], 1), torch.cat([y, x], 1)
        return steps, both[:, 1:] * both[:, :-1], (other[:, 1:] + both[:, 1:]).softmax(1)

    n, m = (torch.export.Dim(name, min=2, max=40) for name in "nm")
    example = torch.randn(2, 5), torch.randn(2, 7)
    optimized = tvm_cascade.optimize(Function(call), example, dynamic=(({1: n}, {1: m}),))
    for lengths in ((5, 7), (2, 40), (40, 3)):
        inputs = [torch.randn(2, length) for length in lengths]
        for found, expected in zip(optimized(*inputs), call(*inputs), strict=True):
            close(found, expected)


class Cached(nn.Module):
    """Writes to a buffer that it knows by another name."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = {"seen": torch.zeros(4, 8)}
        self.register_buffer("seen", self.cache["seen"], persistent=False)

    def forward(self, x: Any, at: Any) -> Any:
        return self.cache["seen"].index_copy_(0, at, x).softmax(0)


@torch.no_grad()
def test_a_buffer_of_two_names_is_written_to() -> None:
    module, x, at = Cached(), torch.randn(1, 8), torch.tensor([2])
    close(tvm_cascade.optimize(module, (x, at))(x, at), torch.zeros(4, 8).index_copy(0, at, x).softmax(0))
    assert torch.equal(module.cache["seen"][2], x[0])


@torch.no_grad()
def test_parts_of_tables_as_long_as_an_argument() -> None:
    table = torch.randn(40, 8)

    def call(x: Any, y: Any) -> Any:
        n, m = x.shape[0], y.shape[0]
        last = table[-n:] + table[n - 41 :][:n]
        return x + table[:n] * table[n : 2 * n], (torch.arange(n) + m) * x.sum(1), last, y[-3:]

    n, m = (torch.export.Dim(name, min=3, max=20) for name in "nm")
    example = torch.randn(5, 8), torch.randn(7, 8)
    optimized = tvm_cascade.optimize(Function(call), example, dynamic=(({0: n}, {0: m}),))
    for lengths in ((5, 7), (3, 20), (20, 3)):
        inputs = [torch.randn(length, 8) for length in lengths]
        for found, expected in zip(optimized(*inputs), call(*inputs), strict=True):
            close(found, expected)


@torch.no_grad()
def test_arguments_by_position_or_by_name(counting: tuple[Counting, Any]) -> None:
    x = torch.randn(4, 8)
    close(counting[1](x=x)["result"], counting[1](x)["result"])
    close(counting[1](x, False)["result"], counting[1](x)["result"])  # its default, as in the example


@torch.no_grad()
def test_arguments_by_position_where_further_ones_may_be_named() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, shift: Any = None, **more: Any) -> Any:
            return x * more["scale"] + more["z"]

    x, z = torch.randn(4, 8), torch.randn(8)
    optimized = tvm_cascade.optimize(Scaled(), {"x": x, "scale": 2.0, "z": z})
    for found in (optimized(x, scale=2.0, z=z), optimized(x, None, z=z, scale=2.0), optimized(z=z, x=x, scale=2.0)):
        close(found, x * 2 + z)
    for names in ({"z": z}, {"z": z, "scale": 2.0, "other": 1}, {"z": z, "scale": 2.0, "shift": x}):
        with pytest.raises(ModelError, match=r"arguments as \(x=…, scale=…, z=…\)"):
            optimized(x, **names)


def test_extents_have_the_callers_names() -> None:
    rows = torch.export.Dim("rows", min=2, max=40)
    for dynamic in ({"input": {0: rows}}, ({0: rows},), [[rows, None]]):
        optimized = tvm_cascade.optimize(nn.Softmax(-1), torch.randn(4, 8), dynamic=dynamic)
        with pytest.raises(ModelError, match=r"(?s)float32 \[rows, 8\] where rows is from 2 to 40.*\[41, 8\]"):
            optimized(torch.randn(41, 8))


@torch.no_grad()
def test_a_number_that_is_read_off_a_tensor() -> None:
    module, x = Function(lambda x: x * x.max().item()), torch.randn(4, 8)
    close(tvm_cascade.optimize(module, torch.ones(4, 8))(x), module(x))


CALLS: dict[str, tuple[Callable[[Any], object], str]] = {
    "another shape": (lambda call: call(torch.randn(5, 8)), r"float32 \[4, 8\].*float32 \[5, 8\].*dynamic"),
    "another rank": (lambda call: call(torch.randn(8)), r"float32 \[8\]"),
    "another dtype": (lambda call: call(torch.randn(4, 8).double()), r"float64 \[4, 8\]"),
    "an array": (lambda call: call(np.zeros((4, 8), "float32")), "the tensor `x`.*found ndarray"),
    "another device": (lambda call: call(torch.empty(4, 8, device="meta")), "on cpu.*on meta.*move it"),
    "no argument": (lambda call: call(), r"arguments as \(…\).*found \(\)"),
    "another structure": (lambda call: call([torch.randn(4, 8)]), r"arguments as \(…\).*found \(\[…\]\)"),
    "a further argument": (lambda call: call(torch.randn(4, 8), double=True), r"arguments as.*\(…, double=…\)"),
    "a gradient": (lambda call: call(torch.randn(4, 8, requires_grad=True)), "without gradient.*no_grad"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_it_was_not_compiled_for(name: str, counting: tuple[Counting, Any]) -> None:
    call, message = CALLS[name]
    with pytest.raises(ModelError, match=f"(?s){message}"):
        call(counting[1])


def test_every_reduction_is_reported_and_attention_is_one_loop() -> None:
    module = nn.Sequential(nn.LayerNorm(8), Function(lambda x: F.scaled_dot_product_attention(x, x, x)))
    report = tvm_cascade.optimize(module.eval(), torch.randn(2, 64, 8)).report
    fused = [group.buffers for group in report.groups if str(group.verdict) == "fused"]
    kernels = {function.name: function.lowering for function in report.functions}
    assert "the fused loop: tiles of " in kernels["attention"] and "vectors of 8" in kernels["layer_norm"]
    assert ("highest", "sums", "attended") in fused
    assert "attention" in str(report) and len(report.groups) == len(report.functions)


def test_a_constant_has_the_value_of_the_example() -> None:
    optimized = tvm_cascade.optimize(Counting().eval(), {"x": torch.randn(4, 8), "double": True})
    assert optimized(double=True, x=torch.randn(4, 8))["rows"] == 4
    with pytest.raises(ModelError, match=r"(?s)the constant True.*found False"):
        optimized(x=torch.randn(4, 8), double=False)


X = torch.randn(4, 8)
MODULES: dict[str, tuple[Callable[[], object], type[CascadeError], str]] = {
    "a function": (lambda: tvm_cascade.optimize(F.relu, X), InputError, "a torch.nn.Module.*function.*wrap"),
    "a target": (lambda: tvm_cascade.optimize(nn.ReLU(), X, target="abacus"), InputError, "a target of TVM"),
    "no example": (lambda: tvm_cascade.optimize(nn.ReLU(), None), InputError, r"a tensor, a tuple.*None.*randn"),
    "an array": (lambda: tvm_cascade.optimize(nn.ReLU(), X.numpy()), InputError, "tensors of torch.*from_numpy"),
    "too few arguments": (
        lambda: tvm_cascade.optimize(nn.Bilinear(8, 8, 4), X),
        InputError,
        r"Bilinear\.forward\(input1.*missing a required argument: 'input2'.*a tuple of the positional",
    ),
    "a device that runs nothing": (
        lambda: tvm_cascade.optimize(nn.ReLU(), X.to("meta")),
        ModelError,
        r"kinds cpu, cuda.*found meta.*\.to\('cpu'\)",
    ),
    "an extent that does not change": (
        lambda: tvm_cascade.optimize(nn.ReLU(), X[:1], dynamic=({0: torch.export.Dim("rows", max=8)},)),
        ModelError,
        r"You marked rows as dynamic.*`dynamic_shapes`.*extents of 2 or more",
    ),
    "a dtype that TVM does not import": (
        lambda: tvm_cascade.optimize(Function(lambda x: x.float() + 1), X.to(torch.float8_e4m3fn)),
        ModelError,
        "float8_e4m3fn.*to float32",
    ),
    "an operator": (
        lambda: tvm_cascade.optimize(Function(torch.special.bessel_j0), X),
        ModelError,
        r"aten.special_bessel_j0.default.*module `call`|aten.special_bessel_j0.default.*torch.compile",
    ),
    "dropout in training": (
        lambda: tvm_cascade.optimize(nn.Dropout().train(), X),
        ModelError,
        r"no random numbers.*\.eval\(\)",
    ),
    "dropout of attention": (
        lambda: tvm_cascade.optimize(
            Function(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)), torch.randn(2, 4, 8)
        ),
        ModelError,
        r"dropout_p=0.*0\.5.*\.eval\(\)",
    ),
    "control flow on data": (
        lambda: tvm_cascade.optimize(Function(lambda x: x if x.sum() > 0 else -x), X),
        ModelError,
        r"torch.export takes.*test_optimize\.py:\d+: .*torch.compile",
    ),
    "memory beyond a view": (
        lambda: tvm_cascade.optimize(Function(lambda x: x.as_strided((2, 2), (1, 2), 20)), torch.randn(40)[:20]),
        ModelError,
        "elements 20 to 23 of 20.*take them of the tensor itself",
    ),
    "a result of a class of its own": (
        lambda: tvm_cascade.optimize(Function(lambda x: Function(x)), X),
        ModelError,
        "Found <class '.*Function'> in output.*register a pytree",
    ),
    "a complex result": (
        lambda: tvm_cascade.optimize(Function(lambda x: torch.complex(x, x)), X),
        ModelError,
        "results that are real.*complex64.*view_as_real",
    ),
    "a function of complex numbers": (
        lambda: tvm_cascade.optimize(Function(lambda x: torch.complex(x, x).exp().real), X),
        ModelError,
        "as pairs.*aten.exp.*view_as_real",
    ),
    "a real number beside complex ones": (
        lambda: tvm_cascade.optimize(Function(lambda x: (torch.complex(x, x) + 1).real), X),
        ModelError,
        "as pairs.*aten.add.*view_as_real",
    ),
    "no result": (lambda: tvm_cascade.optimize(Function(lambda x: None), X), ModelError, "gives a tensor"),
    "an example elsewhere": (
        lambda: tvm_cascade.optimize(nn.ReLU(), X, target={"kind": "cuda", "arch": "sm_90a"}),
        ModelError,
        "on the target's device.*on cpu.*move",
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_that_it_does_not_take(name: str) -> None:
    call, kind, message = MODULES[name]
    with pytest.raises(kind, match=f"(?s){message}"):
        call()


def test_without_torch_the_error_says_how_to_install_it() -> None:
    script = """
import sys
sys.modules["torch"] = None
import tvm_cascade
from tvm_cascade.errors import DependencyError
try:
    tvm_cascade.optimize
except DependencyError as error:
    assert "tvm-cascade[torch]" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_importing_tvm_cascade_leaves_torch_alone() -> None:
    script = """
import sys
import tvm
before = "torch" in sys.modules  # tvm_ffi imports it where it finds it
import tvm_cascade
assert "tvm_cascade.torch" not in sys.modules and ("torch" in sys.modules) == before
tvm_cascade.optimize
assert "tvm_cascade.torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
