"""The shape of the code base: which part may import which, and how long a file and a function may be."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "python" / "tvm_cascade"

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

# Each part with the parts that it may import besides itself. A part is a module or subpackage of tvm_cascade.
BASE = {"errors", "options", "devices"}
STEPS = BASE | {"algebra"}
PROOF = STEPS | {"steps"}
ANALYSIS = PROOF | {"proof"}
TRANSFORM = ANALYSIS | {"analysis"}
LOWERING = TRANSFORM | {"transform"}
META_SCHEDULE = LOWERING | {"schedule", "tile"}
RELAX = META_SCHEDULE | {"meta_schedule"}
FRONT = {
    "te",
    "report",
    "targets",
    "native",
    "arguments",
    "compiled",
    "lowering_cuda",
    "generation",
    "compilation",
    "_versions",
    "_autoload",
}
LIBRARY = RELAX | FRONT | {"relax"}
# The numerics report is for users, so the oracle that it needs is a layer of its own, below the evidence of this
# project (`testing`, `bench`), which stays outside the library.
USERS = LIBRARY | {"evaluate", "accuracy", "__init__"}  # those who come in by the front door
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "options": {"errors"},
    "devices": set(),
    "_versions": {"errors"},
    "native": {"errors"},
    "algebra": {"errors"},
    "steps": STEPS,
    "proof": PROOF,
    "analysis": ANALYSIS,
    "transform": TRANSFORM,
    "schedule": LOWERING,
    "tile": LOWERING,
    "report": LOWERING | {"tile", "targets"},
    "te": LOWERING,
    "meta_schedule": META_SCHEDULE,
    "relax": RELAX,
    "targets": {"errors"},
    "arguments": {"errors"},
    "compiled": {"errors", "report", "arguments"},
    "lowering_cuda": LOWERING | {"schedule", "tile"},
    "generation": {"errors", "lowering_cuda", "native", "tile"},
    "compilation": RELAX | {"relax", "report", "targets", "arguments", "compiled", "lowering_cuda", "generation"},
    "_autoload": {"transform", "meta_schedule"},
    "evaluate": {"errors"},
    "accuracy": LIBRARY | {"evaluate"},
    "__init__": LIBRARY | {"accuracy"},
    "testing": USERS,
    "bench": USERS | {"testing"},
    "cli": USERS | {"testing", "bench"},
    "__main__": {"cli"},
}

# What may be imported when a module loads. The peers of the benchmarks and the tuner's needs are imported in functions.
THIRD_PARTY = {"tvm", "tvm_ffi", "numpy", "sympy", "mpmath", "ml_dtypes", "rich"}
ALGEBRA_THIRD_PARTY = {"sympy", "mpmath"}  # mpmath holds SymPy's numbers

MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = [*MODULES, *sorted((ROOT / "tests").rglob("*.py")), ROOT / "setup.py"]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imported(node: ast.AST, path: Path) -> Iterator[str]:
    """Absolute dotted names that an import statement reads; `from a import b` may read the module a.b."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = ("tvm_cascade", *path.relative_to(PACKAGE).parent.parts)
        base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
        module = ".".join(filter(None, (base, node.module)))
        yield from (f"{module}.{alias.name}" for alias in node.names)


def _parts_imported(path: Path) -> set[str]:
    names = [name.split(".") for node in ast.walk(_tree(path)) for name in _imported(node, path)]
    parts = {(*name, "__init__")[1] for name in names if name[0] == "tvm_cascade"}
    return {part if part in ALLOWED else "__init__" for part in parts}  # a public name comes from the front door


def _third_party(nodes: Iterator[ast.AST], path: Path) -> set[str]:
    tops = {name.split(".")[0] for node in nodes for name in _imported(node, path)}
    return tops - set(sys.stdlib_module_names) - {"tvm_cascade"}


def _at_load(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: all but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _at_load(child)


def test_the_package_is_where_these_tests_look() -> None:
    assert {"algebra", "errors", "__init__"} <= {_part(path) for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_imports_follow_the_layers(path: Path) -> None:
    part = _part(path)
    assert part in ALLOWED, f"{part} has no place in the order of layers yet"
    forbidden = _parts_imported(path) - ALLOWED[part] - {part}
    assert not forbidden, f"{part} must not import {sorted(forbidden)}"


def test_the_layers_have_no_cycle() -> None:
    assert set(TopologicalSorter(ALLOWED).static_order()) == set(ALLOWED)


@pytest.mark.parametrize("path", sorted((PACKAGE / "algebra").rglob("*.py")), ids=_name)
def test_the_algebra_knows_no_compiler(path: Path) -> None:
    assert _third_party(ast.walk(_tree(path)), path) <= ALGEBRA_THIRD_PARTY


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_loading_a_module_needs_no_optional_dependency(path: Path) -> None:
    assert _third_party(_at_load(_tree(path)), path) <= THIRD_PARTY


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_file_is_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_function_fits_a_screen(path: Path) -> None:
    functions = (node for node in ast.walk(_tree(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    long = {f.name: n for f in functions if (n := (f.end_lineno or f.lineno) - f.lineno + 1) > MAX_FUNCTION_LINES}
    assert not long


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=_name)
def test_every_folder_of_the_package_says_what_it_is(folder: Path) -> None:
    initial = folder / "__init__.py"
    assert initial.exists() and ast.get_docstring(_tree(initial))


# Where results of programs are compared there is one rule, `evaluate.tolerance`; the oracle and the algebra, which it
# rests on, are compared with float64 to its last digits, and clocks with clocks.
OWN_TOLERANCES = {"allclose", "assert_allclose", "isclose", "approx", "assert_almost_equal"}
FREE_TO_SAY = ("tests/algebra/", "tests/evaluate/", "tests/bench/test_timing.py")


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if _name(p).startswith("tests/") and not _name(p).startswith(FREE_TO_SAY)], ids=_name
)
def test_no_test_of_a_program_has_a_tolerance_of_its_own(path: Path) -> None:
    named = {node.attr for node in ast.walk(_tree(path)) if isinstance(node, ast.Attribute)}
    assert not named & OWN_TOLERANCES
