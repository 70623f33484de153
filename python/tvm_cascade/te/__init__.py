"""Programs in TE, each a screen that one can read and change: unfused, as they would be written down.

They take tensors of TE and give tensors of TE, with the dtype of the first input; arithmetic of float16 and bfloat16 is
in float32. None has a name in the fuser: what they become is what any program of these stages becomes.
"""

from __future__ import annotations

from tvm_cascade.te.attend import attention
from tvm_cascade.te.rows import cross_entropy, layer_norm, log_softmax, logsumexp, moments, quantise, rms_norm, softmax
from tvm_cascade.te.selection import router, topk

__all__ = [
    "attention",
    "cross_entropy",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "moments",
    "quantise",
    "rms_norm",
    "router",
    "softmax",
    "topk",
]
