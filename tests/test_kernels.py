"""The ledger of emitted kernels: one of each kind is as recorded, and what differs is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tvm_cascade.tile.cost import Counts
from tvm_cascade.tile.row.skeleton import RowSkeleton

from . import kernels

RECORDED = kernels.read()
ROW = "tests/row softmax of 1024"
WHOLE = [name for name in RECORDED if kernels.kept(name).exists()]
"""The entries whose texts are kept, which are quick ones."""


@pytest.mark.parametrize("name", WHOLE)
def test_a_kernel_is_as_recorded(name: str) -> None:
    told = kernels.differences(name, RECORDED[name], kernels.emitted(kernels.program_of(name))[name])
    assert not told, "\n".join((f"{', '.join(told)}; `python -m tests.kernels` tells of all kernels", *told.values()))


def test_every_kind_of_kernel_has_a_text() -> None:
    assert {kernels.kept(name) for name in WHOLE} == set(kernels.kept("").parent.glob("*"))
    kinds = {entry.variant for entry in RECORDED.values()} - {"cpu"}
    assert len(kinds) > 8 and kinds == {RECORDED[name].variant for name in WHOLE}


def of_fewer_threads(emit: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, program, config, *rest: emit(self, program, dataclasses.replace(config, threads=64), *rest)


def slower(counts: Callable[..., Counts]) -> Callable[..., Counts]:
    return lambda *arguments: counts(*arguments)._replace(threads=1e3)


@pytest.mark.parametrize(
    ("method", "change", "expected"),
    [("emit", of_fewer_threads, "TIR, CUDA, text"), ("counts", slower, "estimate")],
)
def test_the_command_tells_what_differs(
    method: str, change: Any, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = tmp_path / "kernels.tsv", list[str]()

    def run(*options: str) -> int:
        return kernels.main([ROW, "--jobs", "1", *options], said.append, path)

    kernels.write({ROW: RECORDED[ROW], "tests/gone #2": RECORDED[ROW]}, path)
    kernels.kept(ROW, path).parent.mkdir()
    kernels.kept(ROW, path).write_bytes(kernels.kept(ROW).read_bytes())
    assert run() == 0
    monkeypatch.setattr(RowSkeleton, method, change(getattr(RowSkeleton, method)))
    assert run() == 1
    (told,) = (text for text in said if text.startswith(f"{ROW}: "))
    assert told.splitlines()[0] == f"{ROW}: {expected}"
    assert ("(64, 1) main_kernel" in told) == (method == "emit")
    assert run("--write") == 0 == run()
    assert set(kernels.read(path)) == {ROW, "tests/gone #2"}  # which was not asked for


def test_what_is_new_or_gone_is_told() -> None:
    entry = RECORDED[ROW]
    assert kernels.differences("tests/a", entry, None) == {"gone": f"row {entry.geometry}"}
    assert kernels.differences("tests/a", None, (entry, "", "")) == {"new": f"row {entry.geometry}"}
    moved = dataclasses.replace(entry, family="columns")
    assert kernels.differences("tests/a", entry, (moved, "", ""))["choice"].startswith("- row RowConfig(")
