"""Folds whose axis is sharded over the ranks of a process group of torch.distributed."""

import tvm_cascade.torch  # which says what to do where torch is not installed  # noqa: F401
from tvm_cascade.distributed.dtensor import DTensorFolds
from tvm_cascade.distributed.extents import OfExtents
from tvm_cascade.distributed.shard import ShardedGradient, shard
from tvm_cascade.distributed.sharded import Sharded

__all__ = ["DTensorFolds", "OfExtents", "Sharded", "ShardedGradient", "shard"]
