"""Every notebook in tutorials/ runs from top to bottom on the CPU, in order."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIALS = sorted((Path(__file__).parents[2] / "tutorials").glob("*.ipynb"))


def test_there_are_tutorials() -> None:
    assert TUTORIALS


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_notebook_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    said = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert said, "a notebook that shows nothing teaches nothing"
