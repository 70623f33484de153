"""PyTorch models on GPUs, without one: what they are compiled to, on which stream they are called, and what is refused.

Tensors "on" a GPU are torch's fake ones: they have a shape, a dtype and a device, and no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
import tvm_ffi  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tvm_cascade  # noqa: E402
from benchmarks.torch_models.parts import GatedFeedForward, join_heads, split_heads  # noqa: E402
from benchmarks.torch_models.sizes import Sizes  # noqa: E402
from tvm_cascade.driver.toolkit import find_nvcc  # noqa: E402
from tvm_cascade.errors import CascadeError, InputError, ModelError  # noqa: E402
from tvm_cascade.torch.devices import ModelDevice  # noqa: E402
from tvm_cascade.torch.optimization import Code, compiled, exported  # noqa: E402

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
GPU = torch.device("cuda:0")


class Attention(nn.Module):
    """Projections by `linear`, whose weights are stored [out, in], around causal attention."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.inward, self.outward = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.inward(x).chunk(3, -1))
        return self.outward(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Of a decoder: rotary positions from tables, heads that share keys, a gated feed-forward part."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, shared = sizes, sizes.shared_heads * sizes.head_width
        self.norms = nn.ModuleList(nn.RMSNorm(sizes.width, eps=1e-5) for _ in range(2))
        self.query, self.outward = (nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(sizes.width, shared, bias=False) for _ in range(2))
        self.cos, self.sin = (nn.Parameter(torch.empty(sizes.length, sizes.head_width)) for _ in range(2))
        self.feed = GatedFeedForward(sizes)

    def rotated(self, x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, x: Any) -> Any:
        y, shared = self.norms[0](x), self.sizes.shared_heads
        q, k, v = (split_heads(part(y), n) for part, n in ((self.query, 4), (self.key, shared), (self.value, shared)))
        y = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.outward(join_heads(y))
        return x + self.feed(self.norms[1](x))


class Function(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call(*args)


def on_gpu(module: Callable[[], Any], dtype: Any) -> Any:
    """A module with parameters on a GPU that have no memory."""
    with torch.device("meta"):
        made = module().eval()
    for part in made.modules():
        for name, one in part._parameters.items():
            if one is None:
                continue
            part._parameters[name] = nn.Parameter(torch.empty(one.shape, dtype=dtype, device=GPU), False)
    return made


def code(module: Callable[[], Any], shape: tuple[int, ...], dtype: str, target: Any, **dynamic: Any) -> Code:
    """What `optimize` compiles of a module and an argument that are on a GPU."""
    kind = getattr(torch, dtype)
    with FakeTensorMode():
        program = exported(on_gpu(module, kind), (torch.empty(shape, dtype=kind, device=GPU),), {}, dynamic or None)
    return compiled(program, target, GPU)


@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_a_model_of_halves_is_compiled_to_kernels_for_tensor_cores(dtype: str) -> None:
    if find_nvcc() is None:
        pytest.skip("there is no nvcc")
    made = code(Attention, (2, 256, 256), dtype, HOPPER)
    assert made.target.attrs["arch"] == "sm_90a" and made.device.tvm == tvm.cuda(0)
    told = str(made.report)
    assert told.count("the tensor-core kernel `product`") == 2 and "the tensor-core kernel `stream`" in told
    assert [group.buffers for group in made.report.groups if str(group.verdict) == "fused"] == [
        ("highest", "sums", "attended")
    ]


def test_a_layer_of_a_decoder_is_ten_kernels() -> None:
    """A norm twice, projections to queries, keys and values, out, gate and up, down; two rotations, and attention."""
    if find_nvcc() is None:
        pytest.skip("there is no nvcc")
    sizes = Sizes(width=512, heads=4, shared_heads=2, length=256)
    told = str(code(lambda: Layer(sizes), (2, 256, 512), "bfloat16", HOPPER).report)
    kernels = {name: told.count(f"kernel `{name}`") for name in ("product", "stream", "row")}
    assert kernels == {"product": 5, "stream": 1, "row": 1} and told.count("lowered to") == 9


class Packed(nn.Module):
    """Attention whose queries, keys and values are columns of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(256, 768), nn.Linear(256, 256)

    def forward(self, x: Any) -> Any:
        q, k, v = (split_heads(part, 4) for part in self.inward(x).split(256, -1))
        return self.outward(join_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


def test_packed_queries_keys_and_values_are_read_in_place() -> None:
    if find_nvcc() is None:
        pytest.skip("there is no nvcc")
    told = str(code(Packed, (2, 256, 256), "bfloat16", HOPPER).report)
    assert told.count("kernel `product`") == 2 and told.count("kernel `stream`") == 1
    assert told.count("lowered to") == 3


def test_lengths_may_change_as_on_cpus() -> None:
    if find_nvcc() is None:
        pytest.skip("there is no nvcc")
    length = torch.export.Dim("length", min=2, max=512)
    made = code(lambda: Function(lambda x: x.softmax(-1).flatten()), (4, 8, 64), "float32", HOPPER, args=({1: length},))
    assert [str(group.verdict) for group in made.report.groups] == ["fused"]


def test_calls_are_put_on_the_current_stream_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=48))
    device = ModelDevice(GPU, tvm.cuda(0))
    before = tvm_ffi.get_raw_stream(device.tvm)
    with device.current():
        assert tvm_ffi.get_raw_stream(device.tvm) == 48
    assert tvm_ffi.get_raw_stream(device.tvm) == before


def mixed() -> Any:
    with FakeTensorMode():
        return tvm_cascade.optimize(on_gpu(lambda: nn.Linear(8, 8), torch.float32), torch.empty(4, 8))


REFUSED: dict[str, tuple[Callable[[], object], type[CascadeError], str]] = {
    "a module and an example apart": (
        mixed,
        ModelError,
        r"on one device.*parameter `weight` on cuda:0, argument .* on cpu.*\.to\(device\)",
    ),
    "a target for another device": (
        lambda: code(nn.ReLU, (4, 8), "float32", "llvm"),
        ModelError,
        "on the target's device, of kind llvm.*on cuda:0.*leave out `target`",
    ),
    "no card to compile for": (
        lambda: code(nn.ReLU, (4, 8), "float32", "auto"),
        InputError,
        "a GPU, or the architecture to compile for.*no CUDA device here.*sm_90a",
    ),
    "a result elsewhere": (
        lambda: code(lambda: Function(lambda x: x.cpu()), (4, 8), "float32", HOPPER),
        ModelError,
        "results on cuda:0.*one on cpu.*move it outside",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_on_gpus(name: str) -> None:
    if name == "no card to compile for" and tvm.cuda(0).exist:
        pytest.skip("there is a card")
    call, kind, message = REFUSED[name]
    with pytest.raises(kind, match=f"(?s){message}"):
        call()
