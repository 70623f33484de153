"""The device that a model is on: its target, its names in torch and TVM, and the stream or threads of its calls.

On a CPU compiled functions run on torch's OpenMP threads. Where torch has others, TVM's own pool shares the cores
with them: a pool that waits by spinning keeps the other from its work, and a caller that is bound to one core has
torch start its threads there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import tvm
import tvm_ffi
from torch.utils import _pytree as pytree
from tvm.target import Target

from tvm_cascade.driver.backends import BACKENDS
from tvm_cascade.errors import ModelError
from tvm_cascade.torch.openmp import launch_by_openmp

_KINDS = {"cpu": "llvm", "cuda": "rocm" if torch.version.hip else "cuda"}
"""The kind of TVM's targets that each of torch's kinds of devices runs."""

_POOL = {
    "TVM_THREAD_POOL_SPIN_COUNT": "0",
    "TVM_BIND_THREADS": "0",
    "TVM_NUM_THREADS": str(torch.get_num_threads()),
}
"""What TVM reads when it first runs something in parallel, where the user did not say it."""

for _name, _value in _POOL.items():
    os.environ.setdefault(_name, _value)

_ON_OPENMP = launch_by_openmp()
"""The code that starts parallel loops on torch's threads; None where TVM's own pool does."""

_pool = threading.local()
"""`threads`: how many the pool of this thread was last told to use."""


def _use_as_many_threads_as_torch() -> None:
    count = torch.get_num_threads()  # of a thread that is new, this tells OpenMP too
    if _ON_OPENMP is None and getattr(_pool, "threads", None) != count:
        tvm.get_global_func("runtime.config_threadpool")(1, count)
        _pool.threads = count


@dataclass(frozen=True)
class ModelDevice:
    """A device of this machine.

    Attributes
    ----------
    torch : as torch names it, with its number where there are several.
    tvm : as TVM does.
    """

    torch: torch.device
    tvm: tvm.runtime.Device

    @contextmanager
    def current(self) -> Iterator[None]:
        """While this lasts, TVM works as torch does: on its current stream of a GPU, on as many threads of a CPU."""
        if self.torch.type != "cuda":
            _use_as_many_threads_as_torch()
            yield
            return
        with torch.cuda.device(self.torch):
            stream = torch.cuda.current_stream(self.torch).cuda_stream
            with tvm_ffi.use_raw_stream(self.tvm, stream):
                yield


def kind_of(device: torch.device) -> str | None:
    """The kind of TVM's targets that a device runs; None where there is none."""
    return _KINDS.get(device.type)


def device_of(module: torch.nn.Module | None, example: object) -> torch.device:
    """The device of a model's tensors: parameters, buffers and arguments; the CPU where it has none.

    Raises
    ------
    ModelError
        When they are on several devices.
    """
    first: dict[torch.device, str] = {}
    for name, tensor in _tensors(module, example):
        first.setdefault(tensor.device, name)
    if len(first) > 1:
        found = ", ".join(f"{name} on {device}" for device, name in first.items())
        hint = "move them to one: module.to(device), and the example by .to(device)"
        raise ModelError("a model and an example on one device", found, "tensors of the model", hint)
    return next(iter(first), torch.device("cpu"))


def _tensors(module: torch.nn.Module | None, example: object) -> Iterable[tuple[str, torch.Tensor]]:
    if module is not None:
        yield from ((f"parameter `{name}`", one) for name, one in module.named_parameters())
        yield from ((f"buffer `{name}`", one) for name, one in module.named_buffers())
    for path, leaf in pytree.tree_leaves_with_path(example):
        if isinstance(leaf, torch.Tensor):
            yield f"argument {pytree.keystr(path)}", leaf


def asked_for(device: torch.device, target: str | dict[str, object] | Target) -> str | dict[str, object] | Target:
    """The target that the user means: of "auto", the kind that runs on the model's device.

    Raises
    ------
    ModelError
        When no target runs there.
    """
    if device.type not in _KINDS:
        hint = "move the module and the example there: .to('cpu'), or .to('cuda')"
        raise ModelError(f"a model on a device of torch's kinds {', '.join(_KINDS)}", str(device), "its tensors", hint)
    return target if target != "auto" or device.type == "cpu" else _KINDS[device.type]


def placed(device: torch.device, target: Target) -> ModelDevice:
    """The device of a model as torch and TVM name it.

    Raises
    ------
    ModelError
        When code for the target does not run there.
    """
    if target.kind.name != kind_of(device):
        hint = "move the module and the example to the target's device, .to(device), or leave out `target`"
        expected = f"a model on the target's device, of kind {target.kind.name}"
        raise ModelError(expected, f"on {device}", "tensors of the model", hint)
    return ModelDevice(device, tvm.device(BACKENDS[target.kind.name].runtime, device.index or 0))
