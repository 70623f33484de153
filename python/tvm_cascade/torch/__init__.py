"""PyTorch models: imported into Relax, cascades fused, called with torch tensors that are shared and not copied.

`tvm_cascade.optimize` compiles a module. `torch.compile(model, backend="tvm_cascade")` finds its backend by an entry
point of the installed package; in a checkout that is not installed, by importing this package.
"""

from importlib import metadata

from tvm_cascade.errors import DependencyError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise DependencyError(
        "PyTorch", "none", "tvm_cascade.torch", "python -m pip install 'tvm-cascade[torch]'"
    ) from error

if "tvm_cascade" not in metadata.entry_points(group="torch_dynamo_backends").names:
    from torch._dynamo import register_backend

    from tvm_cascade.torch.backend import backend

    register_backend(backend, name="tvm_cascade")
