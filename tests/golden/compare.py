"""Golden texts: what the package prints, kept beside the tests. `UPDATE_GOLDEN=1 pytest …` rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent


def assert_golden(name: str, text: str) -> None:
    """The text is the one in `<name>.txt`, or becomes it where UPDATE_GOLDEN is set."""
    path = FOLDER / f"{name}.txt"
    text = text.rstrip("\n") + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.exists(), f"no golden text {path.name}: run once with UPDATE_GOLDEN=1 and read what it wrote"
    assert text == path.read_text(), f"{path.name} differs; if the new text is right, run with UPDATE_GOLDEN=1"
