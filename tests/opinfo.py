"""PyTorch's own samples of its operators through `tvm_cascade.optimize` on this CPU. Run by hand, for hours.

`python tests/opinfo.py [WORD ...]` takes every operator of `torch.testing` whose name holds one of the words; of each
dtype all samples, or `--samples` of them, evenly drawn; compiles `--batch` of them as one module, and compares each
result with PyTorch in float64 by the rule for right results. A sample is right, wrong, refused (a ModelError that names
why), failed (ended by an internal error), or PyTorch's alone (it raises an error, or gives no tensor). The table comes
last; what is wrong or failed is printed as it is met, with what reproduces it. It exits with 1 where there is any.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import tvm_cascade
from tvm_cascade.errors import CascadeError
from tvm_cascade.evaluate.tolerance import check

DTYPES = ("float32", "bfloat16")
RIGHT, WRONG, REFUSED, FAILED, ALONE = KINDS = ("right", "wrong", "refused", "failed", "PyTorch's alone")

_OF_TVM = ("InternalError", "AssertionError", "Check failed")
"""What an error of TVM's says, which a ModelError tells on."""

_WITHOUT_VALUES = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
"""Operators whose results are whatever memory held."""

_AMONG_EQUALS = ("sort", "msort", "topk", "argsort", "kthvalue", "median", "nanmedian", "mode")
"""Operators that may give the position of any of several equal values."""


@dataclass(frozen=True)
class Sample:
    """A use of an operator.

    Attributes
    ----------
    operator : its name.
    call : of tensors, in the order of `tensors`.
    tensors : on the CPU.
    told : what reproduces it.
    """

    operator: str
    call: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]
    told: str


@dataclass
class Tally:
    """How many samples of an operator came out how, and why they were not right."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, reason: str = "") -> None:
        """One sample."""
        self.counts[kind] += 1
        if reason:
            self.reasons[reason] += 1


class Beside(torch.nn.Module):
    """Samples beside each other."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.samples = samples

    def forward(self, *tensors: torch.Tensor) -> list[Any]:
        given = iter(tensors)
        return [_copied(one.call(*(next(given) for _ in one.tensors))) for one in self.samples]


def _copied(results: Any) -> Any:
    """Results with memory of their own: a view of an argument would be the argument."""
    return [one.clone() for one in pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]


def samples_of(operator: Any, dtype: torch.dtype, most: int | None) -> Iterator[Sample]:
    """The samples of an operator, or so many of them, evenly drawn."""
    torch.manual_seed(0)
    every = list(operator.sample_inputs("cpu", dtype, requires_grad=False))
    step = 1.0 if most is None else max(1.0, len(every) / most)
    for k in range(len(every) if most is None else min(most, len(every))):
        one = every[int(k * step)]
        leaves, spec = pytree.tree_flatten((one.input, one.args, one.kwargs))
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def call(*tensors: Any, leaves: Any = leaves, spec: Any = spec, places: Any = places) -> Any:
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            if any(tensor.dtype == torch.float64 for tensor in tensors):
                filled = [torch.float64 if _is_float(leaf) else leaf for leaf in filled]
            first, args, kwargs = pytree.tree_unflatten(filled, spec)
            return operator.op(first, *args, **kwargs)

        told = (
            f"{operator.formatted_name} sample {int(k * step)} of {dtype}: {_shown((one.input, one.args, one.kwargs))}"
        )
        yield Sample(operator.name, call, tuple(leaves[n] for n in places), told)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.dtype) and leaf.is_floating_point


def _shown(arguments: Any) -> str:
    def shape(leaf: Any) -> Any:
        return f"{str(leaf.dtype)[6:]}{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else leaf

    return repr(pytree.tree_map(shape, arguments))


def outcomes(samples: Sequence[Sample], dtype: str) -> Iterator[tuple[Sample, str, str]]:
    """Of each sample how it came out, and why: they are compiled together as far as that goes."""
    known = [(one, _expected(one)) for one in samples]
    yield from ((one, ALONE, "") for one, expected in known if expected is None)
    yield from _together([(one, expected) for one, expected in known if expected is not None], dtype)


def _expected(sample: Sample) -> tuple[list[Any], list[Any]] | None:
    """What PyTorch gives in the sample's dtype and in float64; None where it gives no tensor."""
    try:
        eager = _copied(sample.call(*sample.tensors))
    except Exception:  # told as PyTorch's alone
        return None
    try:
        exact = _copied(sample.call(*(one.double() if one.is_floating_point() else one for one in sample.tensors)))
    except Exception:  # an operator without float64 is judged by its own dtype
        exact = eager
    alike = len(exact) == len(eager) and all(a.shape == b.shape for a, b in zip(eager, exact, strict=True))
    return (eager, exact if alike else eager) if eager else None


Known = tuple[Sample, tuple[list[Any], list[Any]]]


def _together(known: Sequence[Known], dtype: str) -> Iterator[tuple[Sample, str, str]]:
    if not known:
        return
    tensors = tuple(tensor.clone() for one, _ in known for tensor in one.tensors)
    try:
        module = Beside([one for one, _ in known])
        results = tvm_cascade.optimize(module, tensors)(*tensors)
    except Exception as error:
        if len(known) == 1:
            yield known[0][0], *_kind(error)
            return
        half = len(known) // 2
        yield from _together(known[:half], dtype)
        yield from _together(known[half:], dtype)
        return
    for (sample, (eager, exact)), found in zip(known, results, strict=True):
        told = next(filter(None, (_differs(sample, *leaves) for leaves in zip(found, eager, exact, strict=True))), None)
        yield sample, WRONG if told else RIGHT, told or ""


def _kind(error: Exception) -> tuple[str, str]:
    if not isinstance(error, CascadeError):
        return FAILED, f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}"
    told = f"{error.expected}: {error.found}".splitlines()[0]
    return FAILED if any(word in error.found for word in _OF_TVM) else REFUSED, told


def _differs(sample: Sample, found: Any, eager: Any, exact: Any) -> str | None:
    """How a result differs from PyTorch's, if it does."""
    if found.dtype != eager.dtype or found.shape != eager.shape:
        return f"{found.dtype} {list(found.shape)} for {eager.dtype} {list(eager.shape)}"
    if eager.is_complex():
        found, eager, exact = (torch.view_as_real(one) for one in (found, eager, exact))
    if not eager.is_floating_point() and torch.equal(found, eager):
        return None
    if eager.dtype == torch.int64 and sample.operator in _AMONG_EQUALS and _of_equal_values(sample, found, eager):
        return None
    length = max(one.numel() for one in (*sample.tensors, eager))
    results = (np.asarray(one.double()) for one in (found, exact if eager.is_floating_point() else eager, eager))
    outcome = check(*results, length=length, dtype=str(eager.dtype).removeprefix("torch."))
    return None if outcome.ok else outcome.message


def _of_equal_values(sample: Sample, found: torch.Tensor, eager: torch.Tensor) -> bool:
    """Whether both are positions of the same values along some axis."""
    data = sample.tensors[0]
    for axis, extent in enumerate(data.shape):
        with contextlib.suppress(RuntimeError):
            both = [one if one.dim() == data.dim() else one.unsqueeze(axis) for one in (found, eager)]
            if ((found >= 0) & (found < extent)).all() and torch.equal(*(data.gather(axis, one) for one in both)):
                return True
    return False


def campaign(operators: Iterable[Any], dtype: str, most: int | None, batch: int) -> Iterator[tuple[str, Tally]]:
    """Of each operator how its samples came out."""
    for operator in operators:
        kind, tally = getattr(torch, dtype), Tally()
        if kind not in operator.dtypes:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(samples_of(operator, kind, most))
            for first in range(0, len(samples), batch):
                for sample, how, why in outcomes(samples[first : first + batch], dtype):
                    tally.add(how, why)
                    if how in (WRONG, FAILED):
                        print(f"{how}: {sample.told}\n    {why}", flush=True)
        yield operator.formatted_name, tally


def table(tallies: dict[tuple[str, str], Tally]) -> str:
    """What came out, operators of which nothing was compared left out; then the reasons of refusals."""
    lines = [f"{'operator':44}{'dtype':10}" + "".join(f"{kind:>16}" for kind in KINDS)]
    for (name, dtype), tally in tallies.items():
        lines.append(f"{name:44}{dtype:10}" + "".join(f"{tally.counts[kind]:16}" for kind in KINDS))
    total = sum((tally.counts for tally in tallies.values()), Counter())
    lines.append(f"{'in all':54}" + "".join(f"{total[kind]:16}" for kind in KINDS))
    reasons = {name: tally.reasons for (name, _), tally in tallies.items() if tally.reasons}
    lines += [f"{name}: {reason} ({count})" for name, why in reasons.items() for reason, count in why.most_common(3)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The campaign; 1 where a sample is wrong or failed."""
    parser = argparse.ArgumentParser(description="PyTorch's samples of its operators through tvm_cascade.optimize.")
    parser.add_argument("words", nargs="*", help="parts of names of operators; all by default")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="may be given again; both by default")
    parser.add_argument("--samples", type=int, help="of each operator and dtype; all by default")
    parser.add_argument("--batch", type=int, default=8, help="samples that are compiled as one module")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    valued = [one for one in op_db if one.name not in _WITHOUT_VALUES]
    chosen = [one for one in valued if not given.words or any(word in one.formatted_name for word in given.words)]
    tallies = {}
    for dtype in given.dtype or DTYPES:
        for name, tally in campaign(chosen, dtype, given.samples, given.batch):
            tallies[name, dtype] = tally
            print(f"{name} {dtype}: " + ", ".join(f"{n} {kind}" for kind, n in tally.counts.items()), flush=True)
    print(table(tallies))
    return int(any(tally.counts[WRONG] or tally.counts[FAILED] for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
