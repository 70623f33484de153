"""The replay ledger: verdicts and sizes of states are as they were recorded, and a changed one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns import ledger
from campaigns.__main__ import main
from campaigns.grammar import draw
from campaigns.ledger_trial import ledger_trial
from tvm_cascade.errors import InputError

from .test_campaigns import FOUND, FOUND_IN_THE_ALGEBRA

RECORDED = Path(__file__).parent / "ledger.txt"
QUICK, LONG = 30, 300
"""Entries that are replayed: of those recorded a derivation takes a tenth of a second, a few take ten seconds."""


def changes(expected: ledger.Ledger) -> list[str]:
    found = {seed: ledger_trial(draw(seed)).code for seed in expected}
    return [str(change) for change in ledger.changes(expected, found)]


def test_verdicts_and_sizes_of_states_are_as_recorded() -> None:
    expected = ledger.sample(ledger.read(RECORDED), QUICK)
    assert len(expected) == QUICK
    assert not changes(expected)


@pytest.mark.slow
def test_verdicts_and_sizes_of_findings_and_of_many_states_are_as_recorded() -> None:
    recorded = ledger.read(RECORDED)
    findings = {seed: recorded[seed] for seed in (*FOUND, *FOUND_IN_THE_ALGEBRA)}
    assert not changes(findings | ledger.sample(recorded, LONG))


def test_a_ledger_is_written_in_order_and_read_as_it_was_written(tmp_path: Path) -> None:
    path, entries = tmp_path / "ledger.txt", {8: "3.1", 9: "infinite_rank", 10: "2.0", 84019250: "4.1"}
    ledger.write(path, dict(reversed(entries.items())))
    assert path.read_text() == "8 3.1 infinite_rank\n10 2.0\n84019250 4.1\n"
    assert ledger.read(path) == entries


@pytest.mark.parametrize("text", ["hello\n", "3\n", "3 2.0\n\n"])
def test_a_file_that_is_no_ledger_is_an_input_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.txt"
    path.write_text(text)
    with pytest.raises(InputError, match="a seed and its entries"):
        ledger.read(path)


def test_a_sample_is_spread_evenly_and_the_same_each_time() -> None:
    entries = {seed: "2.0" for seed in range(0, 1000, 10)}
    assert list(ledger.sample(entries, 4)) == [0, 250, 500, 750] == list(ledger.sample(entries, 4))
    assert ledger.sample(entries, 1000) == entries


def test_ranges_of_seeds_have_both_ends_in() -> None:
    assert ledger.seeds_of("3-5,9, 4") == [3, 4, 5, 9]


@pytest.mark.parametrize("text", ["", "x", "3-", "-3", "5-3", "3,,4", "0-9999999999"])
def test_seeds_that_are_none_are_an_input_error(text: str) -> None:
    with pytest.raises(InputError):
        ledger.seeds_of(text)


def test_the_command_records_adds_and_tells_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, known = tmp_path / "ledger.txt", ledger.read(RECORDED)
    ledger.write(path, {seed: known[seed] for seed in (1, 2, 3)})
    command = ["--jobs", "1", "--ledger", str(path)]
    assert main([*command, "--record", "7"]) == 0
    recorded = ledger.read(path)
    assert list(recorded) == [1, 2, 3, 7]
    ledger.write(path, {**recorded, 2: "9.9"})
    assert main([*command, "--sample", "4"]) == 1
    assert f"seed 2: 9.9 in the ledger, {recorded[2]} now\n1 of 4 entries differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--record", "3"], ["--sample", "3"], ["--ledger", str(RECORDED), "--sample", "0"]],
)
def test_a_replay_without_sense_is_bad_input(arguments: list[str]) -> None:
    assert main(arguments) == 2


def test_a_ledger_in_no_folder_is_bad_input() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--ledger", "no/file"])
