"""The mutation harness: its mutants find what they break, and a killed one is told from a survivor."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import mutate


@pytest.mark.parametrize("mutant", mutate.MUTANTS, ids=[mutant.name for mutant in mutate.MUTANTS])
def test_a_mutant_still_finds_what_it_breaks(mutant: mutate.Mutant) -> None:
    text = (mutate.ROOT / mutant.file).read_text(encoding="utf-8")
    changed = mutant.applied(text)
    if mutant.file.endswith(".py"):
        compile(changed, mutant.file, "exec")
    assert all((mutate.ROOT / test).exists() for test in mutant.tests)


def test_a_mutant_that_finds_nothing_is_an_error() -> None:
    gone = mutate.Mutant("a slip", "a.py", "x + 1", "x", ())
    with pytest.raises(ValueError, match=r"a slip: a\.py holds 2 times"):
        gone.applied("x + 1 + x + 1")


def test_a_killed_mutant_and_a_survivor_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "added.py").write_text("def added(a, b):\n    return a + b\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_added.py").write_text(
        "from added import added\ndef test():\n    assert added(2, 2) == 4"
    )
    said: list[str] = []
    mutants = [
        mutate.Mutant(name, "python/added.py", "a + b", new, ("tests/test_added.py",))
        for name, new in (("minus", "a - b"), ("times", "a * b"), ("not Python", "a +"))
    ]
    assert mutate.main([], mutants, tmp_path, said.append) == 1
    assert said[:2] == ["killed     minus", "survives   times"] and said[2].startswith("no tests: ")
    assert mutate.main(["minus"], mutants, tmp_path, said.append) == 0
    assert mutate.main(["no such"], mutants, tmp_path, said.append) == 1
