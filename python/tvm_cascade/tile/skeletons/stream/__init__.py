"""The stream skeleton: warp-specialised attention kernels, by TMA, WGMMA and a ring of pipeline stages."""
