"""The suite `models`: whole PyTorch models by ours, by PyTorch eager and compiled, and by plain TVM.

On a GPU one replay of a CUDA graph of each is timed, so that the host's time to launch kernels does not count.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.device import Call, Device
from benchmarks.judge.check import Status, judged, told
from benchmarks.judge.forms import OURS_FUSED, TVM_DEFAULT
from benchmarks.peers import TORCH
from benchmarks.record import Decided, Report, TimedRow
from benchmarks.suites.entry import Model
from tvm_cascade.evaluate import tolerance

TORCH_COMPILE = "torch.compile"

MOST_COMPARED = 1 << 22
"""Elements of one result that are compared with the exact ones."""

Prepared = tuple[Call, tuple[Decided, ...]]
Prepare = Callable[[Any, Sequence[Any], Any], Prepared]


@dataclass(frozen=True)
class ModelBench:
    """What the tables of models share.

    Attributes
    ----------
    device : where everything runs.
    peers : how each row is prepared, by name, in the order of the table.
    seed : of the inputs.
    """

    device: Device
    peers: Mapping[str, Prepare]
    seed: int = 0

    @property
    def dtype(self) -> str:
        """Of parameters and data: float32 on a CPU, bfloat16 on a GPU."""
        return "float32" if self.device.target.kind.name == "llvm" else "bfloat16"

    def __call__(self, entry: Model) -> tuple[Report, dict[str, Call]]:
        """The table of a model without times, and the calls of the rows that passed."""
        import torch

        kind, where = getattr(torch, self.dtype), self.device.name
        module, inputs = entry.build(self.seed)
        module, inputs = module.to(where, kind), _on(inputs, where, kind)
        rows = [TimedRow(row, Status.FAILED) for row in self.peers]
        calls, decisions, fused = dict[str, Call](), tuple[Decided, ...](), None
        with torch.no_grad():
            eager, exact = module(*inputs), exactly(module, inputs)
            for k, row in enumerate(rows):
                start = time.perf_counter()
                try:
                    call, decided = self.peers[row.name](module, inputs, self.device.target)
                    found, seconds = call(), time.perf_counter() - start
                    if decided:
                        decisions, fused = decided, seconds
                    results = (_together(one) for one in (found, exact, eager))
                    row = judged(row, tolerance.check(*results, length=4 * entry.shape["width"], dtype=self.dtype))
                    rows[k] = replace(row, compile_seconds=seconds)
                    if row.status is Status.TIMED:
                        calls[row.name] = torch.no_grad()(self.device.captured(call))
                except Exception as error:  # a peer that does not take the model must not hide the others
                    rows[k] = replace(rows[k], note=told(error))
        moved = sum(one.numel() * one.element_size() for one in (*module.parameters(), *inputs))
        shape = dict(entry.shape)
        report = Report(entry.label, tuple(rows), (), "models", shape, self.dtype, None, moved, None, decisions, fused)
        return replace(report, baseline=TORCH), calls


def exactly(module: Any, inputs: Sequence[Any]) -> Any:
    """What a module gives in float64, of its own parameters, one of the batch at a time."""
    import torch

    wide = copy.deepcopy(module).double()
    found = []
    for k in range(len(inputs[0])):
        one = wide(*_on([x[k : k + 1] for x in inputs], inputs[0].device, torch.float64))
        found.append(one if isinstance(one, tuple) else (one,))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _together(results: Any) -> NDArray[np.float64]:
    """All results of a model in one row: of large ones evenly spread elements."""
    parts = [one.flatten() for one in (results if isinstance(results, (tuple, list)) else [results])]
    return np.concatenate([np.asarray(one[:: -(-len(one) // MOST_COMPARED)].double().cpu()) for one in parts])


def _on(inputs: Sequence[Any], device: Any, kind: Any) -> tuple[Any, ...]:
    """Inputs on a device, those of them that are no whole numbers in a dtype."""
    return tuple(one.to(device, kind) if one.is_floating_point() else one.to(device) for one in inputs)


def _ours(module: Any, inputs: Sequence[Any], target: Any) -> Prepared:
    from tvm_cascade.torch.optimization import optimize

    optimized = optimize(module, tuple(inputs), target)
    found = tuple(
        Decided(str(group.verdict), group.reason.code, f"{group.function}: {', '.join(group.buffers)}", None)
        for group in optimized.report.groups
    )
    return lambda: optimized(*inputs), found


def _eager(module: Any, inputs: Sequence[Any], _target: Any) -> Prepared:
    return lambda: module(*inputs), ()


def _torch_compile(module: Any, inputs: Sequence[Any], _target: Any) -> Prepared:
    import torch

    compiled = torch.compile(module)
    return lambda: compiled(*inputs), ()


def _plain_tvm(module: Any, inputs: Sequence[Any], target: Any) -> Prepared:
    import torch
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    imported = from_exported_program(torch.export.export(module, tuple(inputs)))
    executable = relax.build(relax.get_pipeline("zero")(imported), target)
    main = relax.VirtualMachine(executable, tvm.device(inputs[0].device.type))["main"]
    return lambda: torch.from_dlpack(main(*inputs)[0]), ()


MODEL_PEERS: Mapping[str, Prepare] = {
    TORCH: _eager,
    TORCH_COMPILE: _torch_compile,
    TVM_DEFAULT: _plain_tvm,
    OURS_FUSED: _ours,
}
"""Every row in the order of the table."""
