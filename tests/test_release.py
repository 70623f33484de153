"""The release script: what stands against a release is told, and a dry run does nothing but say what would be run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .pages import ROOT, script

RELEASE = script("release", ROOT / ".ci")
FILES = ("CHANGELOG.md", "CITATION.cff", "README.md", "python/tvm_cascade/_versions.py")


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=one", "-c", "user.email=one@host.invalid"]
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    return tmp_path


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def test_a_dry_run_says_what_it_would_do_and_does_none_of_it(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = RELEASE.version_of(checkout)
    assert RELEASE.main(["--dry-run"], checkout) == 0
    printed = capsys.readouterr().out
    for told in (".whl[test]", ".tar.gz[test]", "-m tvm_cascade run attention", f"git tag --annotate v{version}"):
        assert told in printed
    assert sorted(one.name for one in checkout.iterdir()) == [
        ".git",
        "CHANGELOG.md",
        "CITATION.cff",
        "README.md",
        "python",
    ]
    assert not list((checkout / ".git" / "refs" / "tags").iterdir())


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CITATION.cff"])
def test_versions_that_differ_stand_against_it(checkout: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    version = RELEASE.version_of(checkout)
    change(checkout / name, version, "9.9.9")
    git(checkout, "commit", "-qam", "another version")
    (told,) = RELEASE.problems(checkout)
    assert name in told and version in told and "9.9.9" in told
    assert RELEASE.main([], checkout) == 1
    assert told in capsys.readouterr().err


def test_a_changed_checkout_stands_against_it(checkout: Path) -> None:
    change(checkout / "README.md", "softmax", "Softmax")
    (told,) = RELEASE.problems(checkout)
    assert "README.md" in told and "clean checkout" in told


def test_a_tag_that_is_there_stands_against_it(checkout: Path) -> None:
    git(checkout, "tag", f"v{RELEASE.version_of(checkout)}")
    (told,) = RELEASE.problems(checkout)
    assert f"v{RELEASE.version_of(checkout)}" in told
    assert list(RELEASE.problems(checkout)) == [told]


def test_the_short_test_is_there() -> None:
    assert (ROOT / RELEASE.SHORT_TEST).is_file()
