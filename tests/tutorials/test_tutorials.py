"""Every notebook in tutorials/ runs from top to bottom on the CPU, and prints what is stored in it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from benchmarks.record import stored

from ..tiers import slow_but

TUTORIALS = sorted((Path(__file__).parents[2] / "tutorials").glob("*.ipynb"))
QUICK = [path for path in TUTORIALS if path.stem in ("01_online_softmax", "11_derive")]
"""A fused loop on the CPU, and a fold by itself; the pages of docs/ show refusals, kernels and models of PyTorch."""

OPTIONAL = {"matplotlib": "test", "torch": "torch"}
"""Packages that a notebook may import, and the extra that each is of."""

NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]\d+)?")
PUBLIC = re.compile(r"^\s*(?:from|import) tvm_cascade\.", re.M)


def told(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """By code cell, the words that it printed: numbers and blanks, which differ from machine to machine, apart.

    What libraries log, on the other stream, depends on when Python collects its garbage.
    """
    shown = [
        [out for out in cell.outputs if out.get("name") != "stderr"]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    texts = [
        "".join(out.text if out.output_type == "stream" else out.data.get("text/plain", "") for out in outputs)
        for outputs in shown
    ]
    return [NUMBER.sub("#", text).split() for text in texts]


def test_there_are_tutorials() -> None:
    assert len(TUTORIALS) >= 10


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_notebook_is_stored_with_what_it_shows_and_uses_public_names_alone(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    outputs = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert outputs and not any(out.output_type == "error" for out in outputs)
    assert not PUBLIC.search("\n".join(cell.source for cell in notebook.cells))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_picture_has_a_title_and_names_of_its_axes(path: Path) -> None:
    """And is as fine as a screen; the last cell of several that make it has its names."""
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    for source in (source for source in cells if "plt.show()" in source):
        assert all(name in source for name in ("title(", "set_xlabel(", "set_ylabel("))
        assert all(int(dots) >= 100 for dots in re.findall(r"dpi=(\d+)", source)) and "dpi=" in source


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_notebook_has_a_picture(path: Path) -> None:
    outputs = [out for cell in nbformat.read(path, as_version=4).cells for out in cell.get("outputs", [])]
    assert any(kind.startswith("image/") for out in outputs for kind in out.get("data", ()))


@pytest.mark.parametrize("path", slow_but(QUICK, TUTORIALS), ids=lambda path: path.stem)
def test_the_notebook_runs_and_prints_what_is_stored(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    source = "\n".join(cell.source for cell in stored.cells if cell.cell_type == "code")
    for package, extra in OPTIONAL.items():
        if re.search(rf"^import {package}\b", source, re.M) and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package}, of the extra `{extra}`, is missing")
    fresh = nbformat.read(path, as_version=4)
    NotebookClient(fresh, timeout=300, kernel_name="python3").execute()
    assert told(fresh) == told(stored)


def test_the_tutorial_of_tuning_has_a_session_with_a_relation_and_one_without() -> None:
    notebook = nbformat.read(next(path for path in TUTORIALS if "tuning" in path.stem), as_version=4)
    printed = "\n".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    found = [float(one) for one in re.findall(r"rank correlation of estimates and times: (-?[\d.]+)", printed)]
    assert len(found) == 2 and min(found) < 0.5 and max(found) > 0.75


def test_the_speeds_that_the_tutorial_of_hopper_quotes_are_those_of_the_benchmarks() -> None:
    root = Path(__file__).parents[2]
    text = "\n".join(cell.source for cell in nbformat.read(root / "tutorials" / "09_hopper.ipynb", as_version=4).cells)
    quoted = re.findall(r'"(H\d)": \(([\d.]+), ([\d.]+)\)', text)
    (mha,) = (result for result in stored() if (result.environment.slug, result.suite) == ("h200", "mha"))
    assert len(quoted) == 6
    for row, *speeds in quoted:
        (report,) = (report for report in mha.reports if report.label == row)
        for program, speed in zip(("ours", "cudnn"), speeds, strict=True):
            seconds = report.seconds(program)
            assert seconds is not None and abs((report.flops or 0) / seconds / 1e12 / float(speed) - 1) < 1e-3


@pytest.mark.parametrize(
    ("name", "suite", "begins", "points"),
    [
        ("05_attention", "prefill", "full", {"d128 full"}),
        ("05_attention", "prefill", "causal", {"d128 causal"}),
        ("06_products", "normgemm", "RMSNorm, bfloat16", {"normed_rms_plain"}),
        ("06_products", "normgemm", "LayerNorm, bfloat16", {"normed_layer"}),
        ("06_products", "quant", "quantised to float8", {"Q7", "Q2", "Q9", "Q5", "Q4"}),
    ],
)
def test_a_curve_is_of_the_results_that_are_stored(name: str, suite: str, begins: str, points: set[str]) -> None:
    """A suite that was measured again makes the pictures anew."""
    (notebook,) = (nbformat.read(path, as_version=4) for path in TUTORIALS if path.stem == name)
    printed = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", [])).splitlines()
    (result,) = (one for one in stored() if (one.environment.slug, one.suite) == ("h200", suite))
    where = result.environment
    assert f"{where.card}, {where.date:.10}, commit {where.commit}" in printed
    reports = [one for one in result.reports if points & {*one.groups, one.label.split()[0]}]
    rates = [(one.flops or 0) / (one.seconds("ours") or 0) / 1e12 for one in reports]
    assert len(rates) >= 4
    (line,) = (line for line in printed if line.startswith(f"{begins}: "))
    assert line.startswith(f"{begins}: {min(rates):.0f} to {max(rates):.0f} TFLOP/s, ")
