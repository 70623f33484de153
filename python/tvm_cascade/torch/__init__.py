"""PyTorch models: imported into Relax, cascades fused, called with torch tensors that are shared and not copied."""

from tvm_cascade.errors import DependencyError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise DependencyError(
        "PyTorch", "none", "tvm_cascade.torch", "python -m pip install 'tvm-cascade[torch]'"
    ) from error
