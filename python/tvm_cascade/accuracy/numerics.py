"""`tvm_cascade.numerics`: error of the fused and the unfused program against float64, by named input."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, tirx
from tvm.target import Target
from typing_extensions import Unpack

from tvm_cascade.accuracy.comparison import Compared, ranking_of
from tvm_cascade.accuracy.draws import drawn
from tvm_cascade.accuracy.losses import Loss, losses
from tvm_cascade.accuracy.table import InputRow, Numerics
from tvm_cascade.analysis.program import Program, at_sizes
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.compilation import compile_for, compile_unfused
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.driver.functions import functions_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import DeviceError, InputError
from tvm_cascade.evaluate import oracle
from tvm_cascade.evaluate.inputs import INPUTS, poisoned
from tvm_cascade.obligations.derive import remembered
from tvm_cascade.options import FuseOptions, Options, takes_options
from tvm_cascade.transform.fuse_function import fuse_function, fused_groups
from tvm_cascade.transform.tiling import Streams, choose_tiling

Array = NDArray[Any]
Inputs = str | Sequence[str] | Array | Sequence[Array] | Mapping[str, Array | Sequence[Array]]

ADVERSARIAL = "adversarial"
"""All of `evaluate.inputs.INPUTS`."""


@takes_options
def numerics(
    func: tvm.IRModule | tirx.PrimFunc,
    inputs: Inputs = ADVERSARIAL,
    *,
    target: str | dict[str, Any] | Target = "auto",
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    **options: Unpack[Options],
) -> Numerics:
    """Errors of the fused and the unfused program, both compiled at the same dtypes, against float64.

    Parameters
    ----------
    func : one function, not scheduled yet; the cost model is not asked, and what it would decline is fused.
    inputs : "adversarial" for every kind of `evaluate.inputs.INPUTS`, some of their names, or arrays: those of the
        function's inputs, in order, or several such lists by names of the caller's. The array alone will do where
        the function has one input.
    target : as for `compile`; the programs run, so a CUDA target needs a GPU.
    seed : of the data.
    sizes : symbolic extents by name; of others, those of the arrays, or else 64.
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Returns
    -------
    Numerics
        A table with a row for each input and output. A row passes within twice the unfused program's error plus a
        floor (`evaluate.tolerance`); where it does not, it names the parts of the fold that lose most.

    Raises
    ------
    InputError
        When there is not one readable function, a parameter is a number, a name of an input or of a size is unknown,
        or arrays do not fit.
    DeviceError
        When the target is CUDA and there is no GPU.
    OptionError
        When an option is unknown or outside its domain.
    """
    asked: Options = {"force": True, **options}
    chosen, data = FuseOptions.from_environment(**asked), _data(inputs)
    example = next(iter(data.values()), None) if isinstance(data, Mapping) else None
    subject = Subject(func, chosen, target, sizes, example)
    given = data if isinstance(data, Mapping) else subject.drawn(data, seed)
    rows = [row for name, arrays in given.items() for row in subject.rows(name, arrays)]
    return Numerics(subject.name, subject.fused is not None, subject.reasons, tuple(rows))


def _data(inputs: object) -> tuple[str, ...] | dict[str, list[Array]]:
    """Names of kinds of data, or arrays by a name."""
    if isinstance(inputs, Mapping):
        return {str(name): _arrays(given) for name, given in inputs.items()}
    names = (inputs,) if isinstance(inputs, str) else tuple(inputs) if isinstance(inputs, (list, tuple)) else ()
    if not names or not all(isinstance(name, str) for name in names):
        return {"given": _arrays(inputs)}
    names = tuple(INPUTS) if names == (ADVERSARIAL,) else names
    if unknown := [name for name in names if name not in INPUTS]:
        raise InputError(f"{ADVERSARIAL} or names among {', '.join(INPUTS)}", ", ".join(unknown), "inputs")
    return names


def _arrays(given: object) -> list[Array]:
    arrays = list(given) if isinstance(given, (list, tuple)) else [given]
    if foreign := [array for array in arrays if not hasattr(array, "shape")]:
        hint = f'pass inputs="{ADVERSARIAL}", names such as "normal", arrays, or {{"name": [arrays]}}'
        raise InputError("NumPy arrays, or names of kinds of data", type(foreign[0]).__name__, "inputs", hint)
    return [array.numpy() if isinstance(array, tvm.runtime.Tensor) else np.asarray(array) for array in arrays]


class Subject:
    """One function, both its executables, and its folds.

    Attributes
    ----------
    func, program, name : the function, as it is read, and its name.
    outcome, fuse_seconds : what fusing makes of it, and what that takes of one core.
    groups : its fused groups of reductions.
    unfused, fused : both programs, compiled; no fused one where nothing was fused.
    """

    def __init__(
        self,
        given: object,
        options: FuseOptions,
        target: str | dict[str, Any] | Target,
        sizes: Mapping[str, int] | None = None,
        example: Sequence[Array] | None = None,
    ) -> None:
        target = resolve_target(target)
        device = backend_of(target).first_device
        if not device.exist:
            hint = "run it where there is one; on the CPU, leave target out"
            raise DeviceError(
                "a GPU, on which both programs run", f"no {device.type.upper()} device here", "target", hint
            )
        functions = functions_of(given, "numerics")
        prim_funcs = {name: f for name, f in functions.items() if isinstance(f, tirx.PrimFunc)}
        if len(prim_funcs) != 1:
            found = ", ".join(functions) or "none"
            raise InputError("a module with one PrimFunc", found, "numerics", "pass one of its functions")
        ((self.name, func),) = prim_funcs.items()
        self.func = at_sizes(func, sizes, example)
        remembered.cache_clear()  # so that what is measured is a first derivation
        start = time.process_time()
        self.device = device_of(target)
        outcome = fuse_function(self.func, backend_of(target).options(options), self.device)
        self.fuse_seconds = time.process_time() - start
        if not isinstance(outcome.program, Program):
            raise InputError("a function that can be read", str(outcome.decisions[0].reason), self.name)
        if numbers := [param.name for param in self.func.params if not tirx.is_buffer_var(param)]:
            hint = "give them their values in the program"
            raise InputError("parameters that are buffers", f"the numbers {', '.join(numbers)}", self.name, hint)
        self.program, self.options, self.outcome = outcome.program, options, outcome
        self.reasons = tuple(str(decision.reason) for decision in outcome.decisions)
        self.groups = fused_groups(outcome.decisions)
        chosen = {name: getattr(options, name) for name in options.__dataclass_fields__}
        self.unfused: Compiled = compile_unfused(self.func, target, **chosen)
        self.fused: Compiled | None = compile_for(self.func, target, options) if self.groups else None

    def drawn(self, names: Sequence[str], seed: int) -> dict[str, list[Array]]:
        generators = {name: np.random.default_rng([seed, zlib.crc32(name.encode())]) for name in names}
        return {name: drawn(self.program, self.groups, name, rng) for name, rng in generators.items()}

    def compared(self, arrays: Sequence[Array]) -> tuple[Mapping[ir.Var, Array], list[Compared]]:
        """Every buffer in float64, and each output by the oracle and both programs."""
        buffers = oracle.evaluate_buffers(self.func, arrays)
        dropped = oracle.evaluate_buffers(self.func, arrays, drops_nan=True) if _some_nan(buffers) else buffers
        unfused = self.run(self.unfused, arrays)
        fused = unfused if self.fused is None else self.run(self.fused, arrays)
        return buffers, [
            Compared(
                output,
                buffers[output],
                dropped[output],
                unfused[output.name],
                fused[output.name],
                self.length,
                ranking_of(self.program, output, buffers),
            )
            for output in oracle.signature(self.func).outputs
        ]

    @property
    def length(self) -> int:
        """Positions of the longest cascade axis."""
        return max((group.frame.length for group in self.groups), default=1)

    def rows(self, name: str, arrays: Sequence[Array]) -> list[InputRow]:
        rows = []
        buffers, outputs = self.compared(arrays)
        for one in outputs:
            judged = one.judged
            lost = () if judged.ok else self._losses(buffers, {one.output.name: judged.worst or ()})
            rows.append(InputRow.of(name, one.output.name, judged, self.fused is not None, lost))
        return rows

    def _losses(self, buffers: Mapping[ir.Var, Array], near: Mapping[str, Sequence[int]]) -> tuple[Loss, ...]:
        found: list[Loss] = []
        for group in self.groups:
            members = {member.stage.buffer.name for member in group.members}
            known = {name: index for name, index in near.items() if name in members and index}
            tile = choose_tiling(group.frame, self.options, self.device, False, Streams(1)).tile
            found += losses(group, buffers, tile, known)
        return tuple(sorted(found, key=lambda loss: -loss.error))

    def run(self, compiled: Compiled, arrays: Sequence[Array]) -> dict[str, Array]:
        """The outputs by name, from buffers that started as NaN, or the least integer."""
        params = oracle.signature(self.func)
        given: dict[ir.Var, Array] = dict(zip(params.inputs, arrays, strict=True))
        given |= {param: poisoned(map(int, param.ty.shape), dtype_of(param)) for param in params.outputs}
        compiled(*(given[param] for param in self.func.params))
        return {param.name: given[param] for param in params.outputs}


def _some_nan(buffers: Mapping[ir.Var, Array]) -> bool:
    return any(bool(np.isnan(array).any()) for array in buffers.values() if array.dtype.kind == "f")
