"""The linter of the code base: this checkout breaks none of its rules, and a made-up one breaks each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from . import lint

PACKAGE = "python/tvm_cascade"
DOC = '"""What it is."""\n'


def checkout(root: Path, files: dict[str, str]) -> Path:
    """A checkout of a few files, in which the package says what it is."""
    for name, text in {f"{PACKAGE}/__init__.py": DOC, f"{PACKAGE}/errors.py": DOC, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


BROKEN: dict[str, tuple[dict[str, str], str]] = {
    "an import upward": (
        {"errors.py": "import sys\nfrom tvm_cascade.tile import x"},
        "errors.py:2: errors must not import tile",
    ),
    "an import upward in a function": (
        {"errors.py": "def f():\n    from . import algebra"},
        "errors.py:2: errors must not import algebra",
    ),
    "a name of the front door": (
        {"errors.py": "from . import compile"},
        "errors.py:1: errors must not import __init__",
    ),
    "the benchmarks in a function of the package": (
        {"../../benchmarks/__init__.py": DOC, "../../benchmarks/a.py": ""}
        | {"cli/__init__.py": DOC, "cli/run.py": "def f():\n    from benchmarks.a import x"},
        "cli/run.py:2: cli must not import benchmarks",
    ),
    "a part without a place": ({"kitchen.py": ""}, "kitchen.py:1: kitchen has no place in the order of layers yet"),
    "a circle through a function": (
        {
            "te/__init__.py": DOC,
            "te/a.py": "def f():\n    import tvm_cascade.te.b",
            "te/b.py": "from .c import x",
            "te/c.py": "from . import a",
        },
        "te/a.py:1: modules import each other: tvm_cascade.te.a, tvm_cascade.te.b, tvm_cascade.te.c",
    ),
    "a circle of types": (
        {
            "te/__init__.py": DOC,
            "te/a.py": "if TYPE_CHECKING:\n    from tvm_cascade.te.b import B",
            "te/b.py": "from tvm_cascade.te.a import A",
        },
        "te/a.py:1: modules import each other: tvm_cascade.te.a, tvm_cascade.te.b",
    ),
    "a skeleton read by name": (
        {
            "tile/__init__.py": DOC,
            "tile/select.py": "from tvm_cascade.tile.skeletons import table",
            "tile/skeletons/__init__.py": DOC,
            "tile/skeletons/table.py": "from tvm_cascade.tile.skeletons.row.kernel import K",
            "tile/skeletons/row/__init__.py": DOC,
            "tile/skeletons/row/kernel.py": "from tvm_cascade.tile.skeletons.row import config",
            "tile/skeletons/row/config.py": "",
            "tile/program.py": "from tvm_cascade.tile.skeletons.row import config",
        },
        "tile/program.py:1: only the table reads the skeleton row",
    ),
    "a kernel that refuses": (
        {
            "tile/__init__.py": DOC,
            "tile/kernel.py": "from tvm.tirx.script import builder\n\nfrom tvm_cascade.tile.operand import Unfit",
        },
        "tile/kernel.py:3: writes kernels and refuses: decide in the shape or the configuration",
    ),
    "the target around a function": (
        {"te/__init__.py": DOC, "te/a.py": "def f():\n    return tvm.target.Target.current()"},
        "te/a.py:2: Target.current: take the target or the device",
    ),
    "a compiler in the algebra": (
        {"algebra/__init__.py": DOC, "algebra/a.py": "def f():\n    import tvm"},
        "algebra/a.py:1: the algebra must not import tvm",
    ),
    "an optional dependency at load": (
        {"errors.py": "try:\n    import torch\nexcept ImportError:\n    pass"},
        "errors.py:1: torch is optional: import it in the function that needs it",
    ),
    "a package for an optional dependency at load": (
        {"torch/__init__.py": DOC, "torch/a.py": "import torch", "driver/__init__.py": DOC}
        | {"../../benchmarks/__init__.py": DOC, "../../benchmarks/b.py": "from tvm_cascade.torch.a import torch"},
        "benchmarks/b.py:1: tvm_cascade.torch is optional: import it in the function that needs it",
    ),
    "a long file": ({"errors.py": "\n" * 601}, "errors.py:1: 601 lines, of at most 600"),
    "a long function": (
        {"errors.py": "\ndef f():\n" + "    pass\n" * 60},
        "errors.py:2: f has 61 lines, of at most 60",
    ),
    "a folder without a word": ({"te/a.py": DOC}, "te/a.py:1: its folder has no __init__.py with a docstring"),
    "a folder of few words": (
        {"te/__init__.py": "x = 1"},
        "te/__init__.py:1: its folder has no __init__.py with a docstring",
    ),
    "a first line without an end": (
        {"errors.py": '"""Errors, and"""'},
        "errors.py:1: its first line is no sentence of at most 120 characters",
    ),
    "a long first line": (
        {"errors.py": f'"""{"x" * 120}."""'},
        "errors.py:1: its first line is no sentence of at most 120 characters",
    ),
    "a private word in a first line": (
        {"errors.py": '"""How work is dealt."""'},
        "errors.py:1: `dealt` in `How work is dealt.`: say scheduled",
    ),
    "a private word in a name": (
        {"errors.py": "\ndef f(newTeam_2):\n    pass"},
        "errors.py:2: `team` in `newTeam_2`: say thread group",
    ),
    "a private phrase in a page": (
        {"../../docs/a.md": "# A\n\n```python\nbeside\n```\n\n`told` of a second\nway."},
        "docs/a.md:7: `second way`: say fallback",
    ),
    "a private word in a notebook": (
        {
            "../../tutorials/a.ipynb": json.dumps(
                {
                    "cells": [
                        {"cell_type": "code", "source": ["told = 1"]},
                        {"cell_type": "markdown", "source": ["# A\n", "\n", "It is told."]},
                    ]
                }
            )
        },
        "tutorials/a.ipynb:3: `told`: say reported, named or known",
    ),
    "a tolerance of its own": (
        {"../../tests/test_a.py": "np.testing.assert_allclose(a, b)"},
        "tests/test_a.py:1: assert_allclose: compare by evaluate.tolerance",
    ),
}


@pytest.mark.parametrize(("files", "told"), BROKEN.values(), ids=BROKEN)
def test_a_checkout_that_breaks_a_rule_is_told_where(files: dict[str, str], told: str, tmp_path: Path) -> None:
    (tmp_path / PACKAGE).mkdir(parents=True)
    root = checkout(tmp_path, {f"{PACKAGE}/{name}": text for name, text in files.items()})
    where = "" if told.startswith(("tests/", "benchmarks/", "docs/", "tutorials/")) else f"{PACKAGE}/"
    assert [str(found) for found in lint.violations(root)] == [where + told]


def test_what_may_be_done_breaks_no_rule(tmp_path: Path) -> None:
    files = {
        f"{PACKAGE}/te/__init__.py": DOC,
        f"{PACKAGE}/te/a.py": "import numpy as np\nfrom tvm_cascade.errors import InputError\nfrom . import b",
        f"{PACKAGE}/te/b.py": "def f():\n    import torch\n" + "    pass\n" * 58,
        f"{PACKAGE}/torch/__init__.py": DOC,
        f"{PACKAGE}/torch/a.py": "import torch",
        f"{PACKAGE}/options.py": "\n" * 600,
        "tests/algebra/test_a.py": "np.testing.assert_allclose(a, b)",
    }
    assert not lint.violations(checkout(tmp_path, files))


def test_a_table_of_layers_with_a_circle_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lint.ALLOWED, "errors", {"algebra"})
    (found,) = lint.violations(checkout(tmp_path, {}))
    assert "the table of layers has a circle" in found.told


def test_a_tower_of_laws_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lint, "MAX_FLOORS", 2)
    files = {f"{PACKAGE}/algebra/__init__.py": DOC, f"{PACKAGE}/algebra/a.py": DOC}
    files |= {
        f"{PACKAGE}/algebra/{above}.py": f"{DOC}\nfrom tvm_cascade.algebra.{below} import x"
        for below, above in ("ab", "bc")
    }
    (found,) = lint.violations(checkout(tmp_path, files))
    assert str(found).endswith("algebra/c.py:1: floor 3 of the algebra, of at most 2")


def test_short_files_of_one_reader_need_a_reason(tmp_path: Path) -> None:
    files = {f"{PACKAGE}/te/__init__.py": DOC, f"{PACKAGE}/te/a.py": DOC, f"{PACKAGE}/te/long.py": "\n" * 301}
    files |= {f"{PACKAGE}/te/{name}.py": "from tvm_cascade.te.both import x" for name in ("b", "c")}
    files[f"{PACKAGE}/te/both.py"] = DOC
    reasons = {"ideas": ["errors", "te.b"], "parts": ["te.c", "te.both"]}
    found = lint.violations(checkout(tmp_path, {**files, lint.LONE_FILES: json.dumps(reasons)}))
    assert [str(one) for one in found] == [
        f"{PACKAGE}/te/a.py:1: one file imports it at most, and {lint.LONE_FILES} has no reason why it is one",
        f"{PACKAGE}/__init__.py:1: tvm_cascade.te.both needs no reason in {lint.LONE_FILES}",
    ]


def test_a_folder_without_modules_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no modules"):
        lint.violations(tmp_path)


@pytest.mark.slow  # `.ci/run` and the hook before a commit run the command itself
def test_this_checkout_breaks_no_rule() -> None:
    ran = subprocess.run([sys.executable, lint.__file__], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"0 violations of {len(lint.RULES)} rules\n"), ran.stdout + ran.stderr
