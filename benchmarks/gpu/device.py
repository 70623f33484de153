"""The GPU of this machine, as torch sees it, or an error that says what to do."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any

from benchmarks import environment
from benchmarks.gpu.record import GpuEnvironment
from tvm_cascade.devices.host import core_count
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError, OptionError

DEVICE = "cuda"
_PACKAGES = ("triton", "flashinfer-python")


def torch_on_gpu(where: str) -> Any:
    """The torch module, with a GPU.

    Parameters
    ----------
    where : what needs it, as the user wrote it.

    Raises
    ------
    OptionError
        When torch is not installed.
    InputError
        When torch sees no GPU.
    """
    try:
        import torch
    except ImportError as error:
        hint = "run: python -m pip install 'tvm-cascade[bench]', with a torch that is built for CUDA"
        raise OptionError("torch, whose kernels are the peers and the reference", "none", where, hint) from error
    if not torch.cuda.is_available():
        hint = "run it on a machine with an NVIDIA GPU and a torch built for CUDA, or pass --suite cpu"
        raise InputError("a GPU that torch sees", f"none by torch {torch.__version__}", where, hint)
    return torch


def describe(torch: Any, commit: str | None) -> GpuEnvironment:
    """The environment of this process.

    Parameters
    ----------
    commit : of the measured tree, where that is a copy without its repository.
    """
    host = environment.describe(resolve_target(DEVICE), core_count())
    versions = {**host.versions, **{name: environment.installed_version(name) for name in _PACKAGES}}
    # What is imported, and not what some distribution is called.
    versions["torch"] = torch.__version__
    card = torch.cuda.get_device_properties(0)
    return GpuEnvironment(
        gpu=card.name,
        driver=_driver(),
        arch=f"sm_{card.major}{card.minor}",
        multiprocessors=card.multi_processor_count,
        l2_bytes=card.L2_cache_size,
        cuda=str(torch.version.cuda),
        cudnn=str(torch.backends.cudnn.version()),
        host=replace(host, versions=versions, commit=commit or host.commit),
    )


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
