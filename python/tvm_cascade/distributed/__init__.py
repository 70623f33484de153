"""Folds whose axis is sharded over the ranks of a process group of torch.distributed."""

from tvm_cascade.distributed.shard import Sharded, ShardedGradient, shard

__all__ = ["Sharded", "ShardedGradient", "shard"]
