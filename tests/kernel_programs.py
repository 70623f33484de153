"""The programs of the ledger of kernels: those of the GPU suites, of the tests, and of the records that are shipped.

A program of a suite is lowered in its plan, and every eighth in other geometries too. Tests ask for geometries that no
plan chooses, each of which is a level, a way to copy or a merge of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from tvm import tirx
from tvm.target import Target

import tvm_cascade
from benchmarks import suites
from corpus.programs.attention import VARIANTS, attention
from corpus.programs.normalisation import Normed
from corpus.programs.program import Precision
from corpus.workload import Workload
from tvm_cascade.devices.cards import H200
from tvm_cascade.driver import lowering
from tvm_cascade.driver.backend import Goal, Lowered
from tvm_cascade.driver.gpu import beginning_early, gpu_options, lower_plan, setting_of
from tvm_cascade.driver.lowering import designed
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.search import find_plan
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, reconfigured
from tvm_cascade.transform.fuse_function import fuse_function
from tvm_cascade.tuning import shipping
from tvm_cascade.tuning.known import known_designs

from .tile import (
    checked,
    folded_programs,
    test_columns,
    test_core_products,
    test_float8,
    test_folded_products,
    test_halves,
    test_peeled_rows,
    test_products,
    test_prologues,
    test_row_kernels,
    test_staged_rows,
    test_widened,
)  # fmt: skip
from .tile.column_programs import COLUMNS
from .tile.fold_programs import FOLDS
from .tile.gradient_programs import TE_GRADIENTS
from .tile.product_programs import Product
from .tile.row_programs import PROGRAMS
from .tile.test_compiled_kernels import KERNELS

TARGET = Target({"kind": "cuda", "arch": "sm_90a", "host": "llvm"})

EVERY, OTHERS = 8, 2
"""Of every eighth program of a suite so many other geometries are lowered too."""

Build = Callable[[], tirx.PrimFunc]
Lowering = Callable[[], Iterator[Lowered]]
"""Gives a program lowered in its plan, and then in other geometries."""

CPU = Target({"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 2})
"""What the programs of the suite `cpu` are scheduled for, whatever this machine is."""

GROUPS = ("tests", "records", "cpu", *suites.KERNELS)


@cache
def programs(group: str) -> Mapping[str, Lowering]:
    """The programs of a suite, of the tests or of the records by name: `suite/label`, `tests/name`."""
    if group == "tests":
        planned = {f"tests/{name}": partial(_planned, build, FuseOptions()) for name, build in _built().items()}
        return planned | {f"tests/{name}": partial(_configured, make) for name, make in _in_their_geometry()}
    if group == "records":
        return {f"records/{place} {params}": partial(_tuned, func) for place, (params, func) in enumerate(_recorded())}
    if group == "cpu":
        return {f"cpu/{entry.label}": partial(_scheduled, entry.workload) for entry in suites.entries(group)}
    return {
        f"{group}/{entry.label}": partial(_of_suite, entry.workload, 0 if place % EVERY else OTHERS)
        for place, entry in enumerate(suites.entries(group))
    }


# Where they are from.


def _of_suite(workload: Workload, others: int) -> Iterator[Lowered]:
    return _planned(workload.build, FuseOptions(**dict.fromkeys(workload.allowances, True)), others)


def _scheduled(workload: Workload) -> Iterator[Lowered]:
    goal = lowering.goal_of(CPU, FuseOptions(**dict.fromkeys(workload.allowances, True)))
    _, found = lowering.lowered(lowering.fused({"main": workload.build()}, goal), goal, [])["main"]
    yield found


def _recorded() -> Iterator[tuple[str, tirx.PrimFunc]]:
    for group in shipping.read(shipping.folder_of(H200)).groups():
        func = group[0][0].workload.mod["main"]
        yield ", ".join(param.name for param in func.params), func


_FOLDED = ("least", "argmax", "absmax", "log_sum_exp", "softmax", "cross_entropy", "entropy", "gathered")
_ROUTERS = ("router", "sigmoid_router", "root_softplus_router", "biased_choice_router", "grouped_router")


def _built() -> dict[str, Build]:
    tables = {"row": PROGRAMS, "column": COLUMNS, "fold": FOLDS, "gradient": TE_GRADIENTS}
    found = {f"{kind} {name}": build for kind, table in tables.items() for name, build in table.items()}
    found["row softmax of 1024"] = partial(PROGRAMS["softmax"], rows=4096, length=1024)
    found |= {f"folded {name}": partial(getattr(folded_programs, name), 192, 320, 128) for name in _FOLDED + _ROUTERS}
    found |= {f"backward {' '.join(map(str, case))}": partial(_backward, *case) for case in _BACKWARD}
    matmul = test_core_products.matmul
    found |= {f"cores {layout}": partial(matmul, 512, 768, 256, layout) for layout in ("NN", "NT", "TN", "TT")}
    for a, b in ((False, False), (True, False), (False, True), (True, True)):
        found[f"product {'T' if a else 'N'}{'N' if b else 'T'}"] = Product(512, 768, 256, a_across=a, b_across=b).build
    return found


_BACKWARD = (
    ("full", 64, "bfloat16"), ("full", 128, "bfloat16"), ("causal", 128, "float16"),
    ("causal_softcap", 128, "bfloat16"), ("window", 96, "bfloat16"), ("causal", 256, "bfloat16"),
)  # fmt: skip
"""Attention whose gradients are lowered: a variant, the width of a head, and a dtype."""


def _backward(variant: str, width: int, dtype: str) -> tirx.PrimFunc:
    shape = {"batch": 1, "heads": 16, "kv_heads": 16, "queries": 2048, "keys": 2048, "head_dim": width, "window": 512}
    func = attention(VARIANTS[variant])(shape, Precision(dtype, "float32")).prim_func()
    return tvm_cascade.gradient(func, wrt=("q", "k", "v")).backward


def _in_their_geometry() -> Iterator[tuple[str, Callable[[], Kernel]]]:
    yield from _attention()
    yield from _products()
    yield from _rows()


def _attention() -> Iterator[tuple[str, Callable[[], Kernel]]]:
    for name, (build, config) in KERNELS.items():
        yield f"attention {name}", lambda b=build, c=config: checked.kernel_of(b(), c)
    of_halves = partial(checked.kernel_of, skeleton=test_halves.SKELETON)
    for name, (workload, halved) in test_halves.CASES.items():
        yield f"halves {name}", lambda w=workload, c=halved: of_halves(w.build(), c)
    narrow, small = test_float8.NARROW, test_float8.SMALL
    for name, case in {"scores": test_float8.Attention(), "scores and values": narrow}.items():
        yield f"float8 {name}", partial(test_float8.allowed, case, small)
    yield "widened at hand", lambda: checked.kernel_of(test_widened.DECODE.func(), test_widened.SMALL)


def _products() -> Iterator[tuple[str, Callable[[], Kernel]]]:
    product = test_products
    for name, (case, config, _instructions) in product.COMPILED.items():
        yield f"product {name}", lambda p=case, c=config: product.kernel_of(p.build(), c, narrow_sums=True)
    folded = test_folded_products
    for name, (fold, _outputs) in folded.FOLDS.items():
        whole, long = folded.rows(48, 2, tile_rows=128, sharing=4), folded.stretches(32, 2)
        yield f"rows on chip {name}", lambda f=fold, c=whole: folded.kernel_of(f(130, 44, 128), c)
        yield f"stretches {name}", lambda f=fold, c=long: folded.kernel_of(f(70, 150, 64), c)
    prologue = test_prologues
    for name, form in {"plain": Normed(gain=False), "gain": Normed(), "gated": Normed(gated=True)}.items():
        yield f"prologue {name}", lambda f=form: prologue.kernel_of(prologue.linear(f), prologue.SMALL)
    clusters = dataclasses.replace(prologue.SMALL, columns=128, cluster=2, blocks=4)
    yield "prologue clusters", lambda: prologue.kernel_of(prologue.linear(Normed()), clusters)
    cores = test_core_products
    for name, cut in {"whole": cores.SMALL, "slices": cores.SLICED}.items():
        yield f"cores {name}", lambda c=cut: cores.kernel_of(cores.matmul(), c)


def _rows() -> Iterator[tuple[str, Callable[[], Kernel]]]:
    row, made = test_row_kernels, test_row_kernels.row_kernel
    levels = {"warp": row.WARP, "block": row.BLOCK, "cluster": row.CLUSTER, "grid": row.GRID, "many": row.MANY}
    for name, config in levels.items():
        yield f"row variance by {name}", lambda c=config: made(PROGRAMS["variance"](rows=5, length=1000), c)
    for name, config in test_peeled_rows.CONFIGS.items():
        yield f"row peeled, {name}", lambda c=config: made(PROGRAMS["rms_norm"](rows=9, length=1021), c)
    for name, config in test_staged_rows.CONFIGS.items():
        yield f"row staged by {name}", lambda c=config: made(PROGRAMS["softmax"]("float32", 3, 1608), c)
    columns = test_columns
    cuts = {"one": columns.ONE, "few lanes": columns.FEW_LANES, "grid": columns.GRID, "many": columns.MANY}
    for name, cut in cuts.items():
        yield f"column argmax by {name}", lambda c=cut: made(COLUMNS["argmax"](rows=36, length=71), c)
    yield "column softmax, kept", lambda: made(COLUMNS["softmax"](), columns.KEPT)


# What they are lowered to.


def goal_of(options: FuseOptions) -> Goal:
    """Kernels of an H200."""
    return Goal(TARGET, H200, gpu_options(options))


def _planned(build: Build, options: FuseOptions, others: int = 0) -> Iterator[Lowered]:
    """A function in its plan; then, where that is one kernel, in so many other geometries."""
    goal = goal_of(options)
    outcome = fuse_function(build(), goal.options, goal.device)
    plan = beginning_early(find_plan(outcome, "main", setting_of(goal)), outcome)
    yield lower_plan(plan, "main", goal)
    if others and len(plan.steps) == 1 and isinstance(kernel := plan.steps[0].chosen, Kernel):
        for other in _others(kernel, others, goal):
            steps = (dataclasses.replace(plan.steps[0], chosen=other),)
            yield lower_plan(dataclasses.replace(plan, steps=steps), "main", goal)


def _others(kernel: Kernel, count: int, goal: Goal) -> list[Kernel]:
    """Spread over all other configurations that fit, in the order of their words, which no estimate changes."""
    setting, found = setting_of(goal), dict[str, Kernel]()
    for config in kernel.skeleton.alternatives(kernel.program, setting):
        try:
            found[geometry_of(config)] = reconfigured(kernel, config, setting)
        except Unfit:
            continue
    found.pop(geometry_of(kernel.config), None)
    told = sorted(found)
    return [found[told[place * len(told) // count]] for place in range(min(count, len(told)))]


def _tuned(func: tirx.PrimFunc) -> Iterator[Lowered]:
    """A function in the design on record."""
    designs = known_designs(None, TARGET)
    assert designs is not None
    found, origins = designed({"main": func.without_attr("tvm_cascade.tuned_for")}, goal_of(FuseOptions()), designs)
    assert "main" in found, origins
    yield found["main"][1]


def _configured(make: Callable[[], Kernel]) -> Iterator[Lowered]:
    kernel = make()
    yield Lowered(kernel.func, kernel)


def geometry_of(config: object) -> str:
    """A configuration in all that tells it from others."""
    if not dataclasses.is_dataclass(config):
        return str(config)
    told = (f"{one.name}={geometry_of(getattr(config, one.name))}" for one in dataclasses.fields(config) if one.compare)
    return f"{type(config).__name__}({', '.join(told)})"
