"""Programs fused and right, or refused with evidence: the papers, workloads, files and text-book cascades."""
