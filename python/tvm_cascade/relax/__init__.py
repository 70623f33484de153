"""Cascades of reductions in Relax modules: a pass that merges operators into them, and a whole pipeline."""

from tvm_cascade.relax.fuse_cascades import FuseCascades
from tvm_cascade.relax.pipeline import get_pipeline

__all__ = ["FuseCascades", "get_pipeline"]
