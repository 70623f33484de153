"""Trials of `compile`: here on the CPU, as a GPU's are on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from campaigns import gpu_trial
from campaigns.grammar import draw
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.errors import InputError
from tvm_cascade.transform import fuse_function


@pytest.mark.parametrize("seed", [3, 5])
def test_a_program_is_compiled_run_and_right(seed: int) -> None:
    record = gpu_trial.gpu_trial(draw(seed), "auto")
    assert (record.finding, record.verdict) == ("", "fused"), record


def test_results_that_are_wrong_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Compiled.__call__

    def shifted(self: Compiled, *arrays: np.ndarray) -> None:
        plain(self, *arrays)
        arrays[-1][...] = np.roll(arrays[-1], 1) + arrays[-1].dtype.type(1)

    monkeypatch.setattr(Compiled, "__call__", shifted)
    assert gpu_trial.gpu_trial(draw(3), "auto").finding == "wrong"


def test_what_is_raised_is_a_finding() -> None:
    record = gpu_trial.gpu_trial(draw(3), "no such target")
    assert record.finding == "error" and "InputError" in record.detail


def test_a_fold_that_fails_our_own_checks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def raised(*_: object, **__: object) -> None:
        raise InputError("a fold", "another", "a test")

    monkeypatch.setattr(fuse_function, "rewrite", raised)
    record = gpu_trial.gpu_trial(draw(3), "auto")
    assert (record.finding, record.code) == ("error", "defect"), record
