"""`python -m benchmarks.tune`: tunes a suite, and tells how near the model's own choices are to the best.

Beside the suites that are measured, `tuning-cpu` and `tuning-gpu` have programs of every kind that has designs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks import suites
from benchmarks.commands import command
from benchmarks.suites.entry import Entry
from corpus import workloads
from corpus.workload import Workload
from tvm_cascade.cli import tune
from tvm_cascade.cli.arguments import console
from tvm_cascade.tuning.proposals import DEFAULT_TRIALS
from tvm_cascade.tuning.report import FunctionTuning

_NEAR = (1.05, 1.1)
"""Of the best time, what the default may take and count as near."""

_TUNED = 1.03
"""Of the best of all, what a session of few trials may take."""

_VARIANTS = ("attention", "attention_causal", "attention_gqa", "attention_window")
_HEAD_DIMS, _LENGTHS, _LONG = (64, 96, 128), (128, 512, 1000, 2048), 4096
_FOLDS = ("softmax_stats", "logsumexp", "entropy", "variance", "inertia", "kl_divergence")
_ROWS = ((1024, 1000), (1024, 8192), (64, 131072))
_PRODUCTS = ("rmsnorm_gemm", "layernorm_gemm")
_TOKENS = (64, 512)


def _cpu() -> Iterator[Workload]:
    """Attention of several forms, features and lengths, folds of rows, and norms into products, in float32."""
    for name in _VARIANTS:
        for head_dim in _HEAD_DIMS:
            for length in (*_LENGTHS, _LONG) if head_dim == _HEAD_DIMS[0] else _LENGTHS:
                heads = 8 if length < _LONG else 4
                shape = {"heads": heads, "queries": length, "keys": length, "head_dim": head_dim}
                yield workloads.get(name).with_shape(**shape)
    for rows, length in _ROWS:
        yield from (workloads.get(name).with_shape(rows=rows, length=length) for name in _FOLDS)
    for tokens in _TOKENS:
        yield from (workloads.get(name).with_shape(tokens=tokens) for name in _PRODUCTS)


_OF_GPU_SUITES: Mapping[str, tuple[str, ...]] = {
    "prefill": ("d128s512", "d128s2048c", "d128s4096", "d128s4096c", "d64s2048", "d64s4096c", "d256s4096"),
    "decode": ("DC_CAUSAL 32768", "DC_GQA 2048", "H8", "32/8 16x4096 q1", "64/8 64x1024 q4", "64/8 1x32768 q1"),
    "row": (
        "softmax 8192 float16", "layer_norm 8192 float32", "cross_entropy 50257 float16", "softmax 197 float16",
        "rms_norm 16x8192 bfloat16", "layer_norm_gradient 8192 float16",
    ),
    "normgemm": ("normed_rms 4096x4096", "normed_layer 4096x4096"),
    "moe": ("R3", "R6", "R8"),
    "mla": ("L3",),
    "quant": ("Q5",),
    "loss": ("cross entropy 4096", "cross entropy 16"),
    "variance": ("V5",),
    "inertia": ("I7",),
}  # fmt: skip
"""A few programs of each suite: at least one for each skeleton."""


def _gpu() -> Iterator[Workload]:
    for suite, labels in _OF_GPU_SUITES.items():
        yield from (entry.workload for entry in suites.entries(suite, labels))


_OWN: Mapping[str, Callable[[], Iterator[Workload]]] = {"tuning-cpu": _cpu, "tuning-gpu": _gpu}

SUITES = (*_OWN, *(name for name in suites.SUITES if name != suites.MODELS))
"""Those that are measured too."""


def entries(suite: str, only: Sequence[str] = ()) -> list[Workload]:
    """The programs of a suite, in order.

    Parameters
    ----------
    suite : one of `SUITES`.
    only : labels or names of workloads to keep; all by default.

    Raises
    ------
    WorkloadError
        When there is no such suite, or something in `only` is not in it.
    """
    if suite not in _OWN:
        return [entry.workload for entry in suites.entries(suite, only)]
    found = [Entry(job.label, job) for job in _OWN[suite]()]
    return [entry.workload for entry in suites.selected(suite, found, only)]


def table(found: Sequence[tuple[str, FunctionTuning]]) -> Table:
    """Labels and sessions as rows."""
    shown = Table(box=SIMPLE_HEAD)
    columns = ("program", "designs", "failed", "default µs", "best µs", "gain", f"best of {DEFAULT_TRIALS}", "best")
    for column in columns:
        shown.add_column(column, justify="left" if column in ("program", "best") else "right")
    for label, one in found:
        failed = str(len({trial.key for trial in one.failures}))
        within = "" if one.within is None else f"{one.within:.3f}"
        if one.default is None or one.best is None:
            shown.add_row(label, str(one.tried), failed, "", "", "", within, one.stopped)
            continue
        times = (f"{(trial.seconds or 0.0) * 1e6:.1f}" for trial in (one.default, one.best))
        shown.add_row(label, str(one.tried), failed, *times, f"{one.gain:.3f}", within, one.changes(one.best))
    return shown


def sentence(found: Sequence[tuple[str, FunctionTuning]]) -> str:
    """How many of the defaults are near the best, and what tuning gives in the geometric mean."""
    gains = [one.gain for _, one in found if one.default is not None and one.best is not None]
    if not gains:
        return "no program was measured"
    near = [sum(gain <= share for gain in gains) for share in _NEAR]
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    told = ", ".join(f"within {share - 1:.0%} in {count}" for share, count in zip(_NEAR, near, strict=True))
    text = f"of {len(gains)} programs the default is {told}; tuning gives {mean:.3f} in the geometric mean"
    shares = [one.within for _, one in found if one.within is not None]
    if shares:
        few = sum(share <= _TUNED for share in shares)
        text += f"; the best of {DEFAULT_TRIALS} trials is within {_TUNED - 1:.0%} of the best of all in {few}"
        text += f" of {len(shares)}"
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--suite", choices=SUITES, required=True, metavar="SUITE", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="workloads or labels to keep")
    parser.add_argument("--small", action="store_true", help="workloads at sizes for small machines")
    tune.add_session_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Tune a suite; returns the exit code, 1 where a function could not be measured."""
    jobs = [job.cpu if args.small else job for job in entries(args.suite, args.only)]
    found, out = tune.tuned({job.label: job for job in jobs}.values(), args), console()
    out.print(table(found))
    out.print(sentence(found), markup=False)
    return 0 if all(one.best is not None for _, one in found) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "tune all programs of a suite, and tell how near the model's own choices are to the best"
    return command("benchmarks.tune", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
