"""Folds whose axis is sharded over the ranks of a process group of torch.distributed."""

import tvm_cascade.torch  # which says what to do where torch is not installed  # noqa: F401
from tvm_cascade.distributed.shard import Sharded, ShardedGradient, shard

__all__ = ["Sharded", "ShardedGradient", "shard"]
