"""How fast grouped products are on this CPU, beside one product of PyTorch for each group: run by hand, on one core.

    python benchmarks/experts.py

Calls alternate, and CPU time is counted, which what else runs here changes little.
"""

from __future__ import annotations

import os
import statistics
import time

os.environ["TVM_NUM_THREADS"] = "1"

import torch

import tvm_cascade

SIZES = {
    "Qwen 3, 1024 rows": (16, 1536, 2048, 1024),
    "Qwen 3, 128 rows": (64, 1536, 2048, 128),
    "OLMoE, 512 rows": (64, 1024, 2048, 512),
    "Mixtral, 256 rows": (4, 4096, 14336, 256),
    "few long groups": (8, 2048, 1024, 2048),
}
"""Groups, columns, depth and rows."""


def _grouped(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    found, start = x.new_zeros(x.shape[0], w.shape[2]), 0
    for group, end in enumerate(ends.tolist()):
        if end > start:
            torch.mm(x[start:end], w[group], out=found[start:end])
        start = end
    return found


torch.library.custom_op(
    "transformers::grouped_mm_fallback",
    _grouped,
    mutates_args=(),
    schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor",
).register_fake(lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))


class Grouped(torch.nn.Module):
    """One grouped product, of matrices as linear layers have them, or exchanged."""

    def __init__(self, groups: int, columns: int, depth: int, exchanged: bool) -> None:
        super().__init__()
        self.exchanged = exchanged
        self.w = torch.nn.Parameter(torch.randn(groups, *((depth, columns) if exchanged else (columns, depth))))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Rows [s, k] up to ends [e], each group by its matrix: [s, n]."""
        return torch.ops.transformers.grouped_mm_fallback(x, self.w if self.exchanged else self.w.mT, ends)


def measured(name: str, exchanged: bool, calls: int = 15) -> str:
    """A line with the rates of lone products and of ours, and how much longer the first take."""
    groups, columns, depth, rows = SIZES[name]
    layer, x = Grouped(groups, columns, depth, exchanged).eval(), torch.randn(rows, depth)
    drawn = torch.multinomial(torch.rand(groups), rows, replacement=True)
    ends = torch.bincount(drawn, minlength=groups).cumsum(0).int()
    optimized = tvm_cascade.optimize(layer, (x, ends))
    times: tuple[list[float], list[float]] = ([], [])
    with torch.no_grad():
        for _ in range(calls):
            for one, call in zip(times, (layer, optimized), strict=True):
                start = time.process_time()
                call(x, ends)
                one.append(time.process_time() - start)
    eager, ours = map(statistics.median, times)
    stored = "[groups, depth, columns]" if exchanged else "[groups, columns, depth]"
    flops = 2 * rows * columns * depth
    return f"{name}, {stored}: {flops / eager / 1e9:.0f} and {flops / ours / 1e9:.0f} GFLOP/s, {eager / ours:.2f}"


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name in SIZES:
        for exchanged in (False, True):
            print(measured(name, exchanged), flush=True)
