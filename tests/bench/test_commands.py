"""Commands of a checkout that measure rows of a table: which rows, and what is said where there are none."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.commands import add_cases, chosen
from tvm_cascade.errors import OptionError

CASES = ("full 16 x 1024", "causal 16 x 1024", "causal 16 x 4096")


def _parsed(*words: str) -> list[str]:
    parser = argparse.ArgumentParser()
    add_cases(parser)
    return chosen(CASES, parser.parse_args(words).cases)


def test_all_cases_are_measured_unless_words_choose() -> None:
    assert _parsed() == list(CASES)
    assert _parsed("--cases", "1024") == list(CASES[:2])
    assert _parsed("--cases", "full", "4096") == [CASES[0], CASES[2]]


def test_words_of_no_case_are_refused() -> None:
    with pytest.raises(OptionError) as refused:
        _parsed("--cases", "window")
    assert str(refused.value).startswith("expected words of full 16 x 1024, ") and "found window" in str(refused.value)
