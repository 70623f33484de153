"""README.md and docs/*.md hold: their code runs as printed, prints what stands there, and what they name is there.

A block of `python` is run, in one namespace with those before it on the page; a block of `sh` is a command of this
package, or of the corpus; one of `cpp` is compiled where there is a compiler, and run. A block without a language is
printed by the one before it, line by line, perhaps among others. Commands under a marker install the package: `.ci/run`
reads those.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import linecache
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

import tvm_cascade
from benchmarks.check.catalogue import CATALOGUE
from benchmarks.check.definition import HARD
from benchmarks.page import without_quotes
from corpus import __main__ as corpus
from tvm_cascade import cli
from tvm_cascade.codes import CODES
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.te.selection import MOST

from . import lint
from .pages import PAGES, ROOT, Block, Page, script

TEXTS = {page.name: page.text for page in PAGES}
ALL = "\n".join(TEXTS.values())
NOTEBOOKS = {
    path.name: "\n\n".join("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
    for path in sorted((ROOT / "tutorials").glob("*.ipynb"))
}
COMMAND = re.compile(r"python -m (tvm_cascade|corpus) ([^`]*)")
STARTED = {"tvm_cascade": cli.main, "corpus": corpus.main}
NEEDS = dict.fromkeys(("pytorch", "training", "experts", "distributed"), "torch")
"""Pages that need an optional package."""

ELSEWHERE = {"extending": "test_extending.py", "each_builder": "test_each_builder.py"}
"""Pages whose code runs in a test of their own: with the rows that one adds, and as another is written."""

OPTIONAL = {
    "tvm_cascade.optimize": "torch",
    "tvm_cascade.torch_operator": "torch",
    "tvm_cascade.distributed": "torch",
    "tvm_cascade.distributed.shard": "torch",
    "tvm_cascade.distributed.DTensorFolds": "torch",
    "benchmarks.backward": "torch",
    "benchmarks.flex": "torch",
    "benchmarks.mixtures": "torch",
    "benchmarks.training": "torch",
}
"""Names and benchmarks that do."""


@pytest.mark.usefixtures("kept_workers")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.path.stem not in ELSEWHERE], ids=lambda page: page.path.stem
)
def test_every_block_runs_and_prints_what_stands_below_it(
    page: Page, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if page.path.stem in NEEDS:
        pytest.importorskip(NEEDS[page.path.stem])
    namespace: dict[str, object] = {"__name__": page.path.stem}
    printed = ""
    for block in page.blocks():
        if block.marker:
            assert f"readme_command {block.marker})" in (ROOT / ".ci" / "run").read_text()
        elif block.language == "python":
            lines = block.text.splitlines(keepends=True)  # where TVMScript looks for the source of a function
            linecache.cache[block.where] = len(block.text), None, lines, block.where
            inspect.modulesbyfile.setdefault(block.where, __name__)  # or it is searched for at each PrimFunc
            exec(compile(block.text, block.where, "exec"), namespace)
            printed = capsys.readouterr().out
        elif block.language == "sh":
            for line in block.text.splitlines():
                found = COMMAND.fullmatch(line)
                assert found, f"{block.where}: nobody runs this"
                assert STARTED[found[1]](shlex.split(found[2])) == 0
            printed = capsys.readouterr().out
        elif block.language == "cpp":
            _compiles_and_runs(block, Path(str(namespace["folder"])), tmp_path)
        else:
            assert not block.language, f"{block.where}: nobody runs this"
            _is_printed(block, printed)


def _is_printed(block: Block, printed: str) -> None:
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    for wanted in block.text.splitlines():
        text = " ".join(wanted.split())
        assert text in lines, f"{block.where}: nothing above prints, in this order: {text}\nprinted is\n{printed}"


def _compiles_and_runs(block: Block, libraries: Path, folder: Path) -> None:
    """A program whose argument is the library that the page has exported."""
    if not shutil.which("g++"):
        return
    source, program = folder / "host.cc", folder / "host"
    source.write_text(block.text)
    config = [sys.executable, "-m", "tvm_ffi.config", "--cxxflags", "--ldflags", "--libs"]
    flags = subprocess.run(config, check=True, capture_output=True, text=True).stdout.split()
    runtime = Path(tvm.__file__).parent / "lib"
    ffi = next(flag.removeprefix("-L") for flag in flags if flag.startswith("-L"))
    flags += [f"-L{runtime}", "-Wl,--no-as-needed", "-ltvm_runtime", f"-Wl,-rpath,{runtime}:{ffi}"]
    subprocess.run(["g++", "-Wall", "-Werror", str(source), *flags, "-o", str(program)], check=True)
    (library,) = libraries.glob("*.so")
    subprocess.run([program, library], check=True, timeout=60)


@pytest.mark.parametrize("line", sorted({words for _, words in re.findall(rf"`{COMMAND.pattern}`", ALL)}))
def test_a_command_that_the_text_names_can_be_given(line: str) -> None:
    words = [{"N": "1", "M": "1", "J": "1"}.get(word, word) for word in shlex.split(line)]
    assert callable(cli.parser().parse_args(words).run)


@pytest.mark.parametrize("line", sorted(set(re.findall(r"`python -m (benchmarks[^`]*)`", ALL))))
def test_a_benchmark_that_the_text_names_can_be_run(line: str) -> None:
    module, *words = ({"N": "1", "NAME": "cpu"}.get(word, word) for word in shlex.split(line))
    if module in OPTIONAL:
        pytest.importorskip(OPTIONAL[module])
    parser = argparse.ArgumentParser(exit_on_error=False)
    named = importlib.import_module(module)
    command = named if hasattr(named, "add_arguments") else importlib.import_module(f"{module}.__main__")
    command.add_arguments(parser)
    parser.parse_args(words)


def test_the_commands_are_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    (listed,) = re.findall(r"`tvm-cascade ([^`]*)`", TEXTS["docs/api.md"])
    cli.main([])
    told = re.findall(r"^    ([a-z-]+)(?: |$)", capsys.readouterr().out, re.M)
    assert listed.replace("\\", "").split(" | ") == told


def test_the_codes_that_the_text_gives_are_those_there_are() -> None:
    text = TEXTS["docs/fuses.md"]
    codes = set(re.findall(r"\(`(\w+)`[):;,]", text[text.index("## When it will not fuse") :]))
    assert len(codes) >= 8 and codes <= CODES.keys()


def test_counts_of_what_was_checked_are_those_of_the_code() -> None:
    evidence = " ".join(TEXTS["docs/evidence.md"].split())
    assert f"takes {len(CATALOGUE)} cascades" in evidence
    assert f"products), on {len(HARD)} kinds of data" in evidence
    assert f"run on {len(INPUTS)} kinds of data" in evidence


def test_the_limit_of_topk_is_that_of_topk() -> None:
    assert f"in TE, k up to {MOST}:" in TEXTS["docs/api.md"]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tvm_cascade(?:\.\w+)+)", ALL))))
def test_a_name_that_the_text_gives_is_there(name: str) -> None:
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name])
    *path, last = name.split(".")
    found = importlib.import_module(".".join(path))
    assert hasattr(found, last) or importlib.import_module(name)


def test_the_reference_has_every_public_name() -> None:
    found = TEXTS["docs/reference.md"]
    constants = {"AND", "LENGTH", "MAX", "MIN", "OR", "POSITION", "PROD", "SUM"}
    missing = [
        name for name in tvm_cascade.__all__ if name not in constants and f"::: tvm_cascade.{name}\n" not in found
    ]
    assert not missing


@pytest.mark.parametrize("name", re.findall(r"^::: (\S+)$", TEXTS["docs/reference.md"], re.M))
def test_docstrings_that_the_reference_shows_have_no_private_words(name: str) -> None:
    module, _, last = name.rpartition(".")
    if module.startswith(("tvm_cascade.torch", "tvm_cascade.distributed")):
        pytest.importorskip("torch")
    value = getattr(importlib.import_module(module), last)
    members = [one for key, one in vars(value).items() if key[0] != "_"] if inspect.isclass(value) else []
    shown = [text for text in map(inspect.getdoc, (value, *members)) if text]
    assert shown and not [word for text in shown for word in lint.private(text, lint.PRIVATE_IN_PROSE)]


def _anchors(page: Page) -> set[str]:
    """What a host of code makes of headings: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", page.text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_every_link_to_a_file_leads_somewhere(page: Page) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.text, flags=re.M | re.S)
    for target in re.findall(r"\]\((?!\w+:)([^)]+)\)", prose):
        path, _, anchor = target.partition("#")
        found = (page.path.parent / path).resolve() if path else page.path
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in _anchors(Page(found)), f"{page.name}: {target}"


@pytest.mark.parametrize("text", [*TEXTS.values(), *NOTEBOOKS.values()], ids=[*TEXTS, *NOTEBOOKS])
def test_a_link_tells_its_page_and_a_table_its_columns(text: str) -> None:
    """And no paragraph stands twice; code and lists of formulas apart."""
    assert not re.findall(r"\[[^\]]*\.(?:md|ipynb)\]\(", text)
    assert not re.findall(r"^\|[ |]*\n\|[-:| ]+$", text, re.M)
    _tells_all_once(text)


def test_the_changelog_tells_all_once_and_a_first_release_changes_nothing() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _tells_all_once(text)
    first = re.split(r"^## ", text, flags=re.M)[-1]
    assert "### Added\n" in first and not re.findall(r"^### (?:Changed|Fixed|Removed)", first, re.M)


def _tells_all_once(text: str) -> None:
    prose = re.sub(r"<!--.*?-->|^```.*?^```$|<pre>.*?</pre>", "", text, flags=re.M | re.S)
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n|^- ", prose, flags=re.M)]
    long = [part for part in parts if len(part) > 60]
    assert len(long) == len(set(long))


def test_what_the_text_installs_is_of_this_checkout() -> None:
    """It is on no package index, and an extra is one that pyproject.toml has."""
    everything = "\n".join([*TEXTS.values(), *NOTEBOOKS.values()])
    wanted = re.findall(r"pip install (?:-e )?'?\.\[([\w,]+)\]", everything)
    listed = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2]
    assert {"test", "torch"} <= set(wanted) <= set(re.findall(r"^(\w+) = \[", listed.partition("\n[")[0], re.M))
    assert not re.findall(r"pip install '?tvm-cascade", everything)


def test_the_rooms_and_their_picture_are_those_of_the_package() -> None:
    page, rooms = TEXTS["docs/architecture.md"], script("rooms")
    table = page.partition("| part | what it does |")[2].partition("\n\n")[0]
    told = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|")))
    folders = [path.parent.name for path in (ROOT / "python" / "tvm_cascade").glob("*/__init__.py")]
    assert sorted(told) == sorted(folders)
    drawn = (ROOT / "docs" / rooms.PICTURE).read_text(encoding="utf-8")
    assert drawn == rooms.picture(), "python -m docs.rooms writes it anew"
    assert sorted(re.findall(r">(\w+)</text>", drawn)) == sorted(folders) and f"]({rooms.PICTURE})" in page
    of_data = (ROOT / "docs" / "pictures" / "architecture.svg").read_text(encoding="utf-8")
    named = re.findall(r'font-weight="bold"[^>]*>([a-z_, ]+)</text>', of_data)
    assert len(named) >= 9 and {room for names in named for room in names.split(", ")} <= {*folders}


def test_the_version_to_cite_is_this_one() -> None:
    assert f"\nversion: {tvm_cascade.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_front_page_is_about_a_screen() -> None:
    assert len(without_quotes(TEXTS["README.md"]).split()) < 800
    shown = re.sub("<!--.*?-->", "", TEXTS["README.md"], flags=re.S)
    assert len(re.findall(r"\S*\w\S*", shown)) <= 1000


def test_a_page_is_read_in_one_go() -> None:
    """But for the gallery, which is a list; notebooks without what they print."""
    pages = {**TEXTS, **NOTEBOOKS}
    shown = {name: re.sub("<!--.*?-->", "", text, flags=re.S) for name, text in pages.items() if "gallery" not in name}
    assert not {name: len(text.split()) for name, text in shown.items() if len(text.split()) > 2500}
