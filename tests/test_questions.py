"""docs/questions.md: the page that answers a question is among the first that a search for its words finds.

The search of the site ranks sections by how often they have the words, or words that begin with them, by how rare these
are, and titles first. So does the one here (BM25), over the same sections, but for the page of questions itself.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from .pages import PAGES, ROOT, Page

QUESTIONS = "docs/questions.md"
FIRST = 5
"""Pages that somebody looks at."""

LETTERS = re.compile(r"[a-z0-9_]+")
COMMON = frozenset(
    LETTERS.findall(
        "a an and are as at be by do does for from get has have how i in is it its me my not of on one or so than that "
        "the them then these they this to use what when which why with without you your happens other each"
    )
)
TITLE, K, B = 8, 1.2, 0.75
"""How many words of text one of a title is worth, and the two constants of BM25."""


def words(text: str) -> list[str]:
    """Words in lower case, without endings of plurals."""
    found = (word for word in LETTERS.findall(text.lower()) if word not in COMMON)
    return [re.sub(r"(?<=[^aeious])s$|(?<=e)s$", "", word) for word in found]


def questions() -> dict[str, str]:
    """Each question -> the target of the first link of its answer."""
    (page,) = (page for page in PAGES if page.name == QUESTIONS)
    parts = re.split(r"^### (.*)$", page.text, flags=re.M)[1:]
    answers = zip(parts[::2], parts[1::2], strict=True)
    return {asked: found.group(1) for asked, answer in answers if (found := re.search(r"\]\(([^)]+)\)", answer))}


def sections() -> Iterator[tuple[str, str, str]]:
    """(page, title, text) of all that the site's search knows."""
    pages = [page for page in PAGES if page.name != QUESTIONS]
    texts = [(page.path.name, page.text) for page in [*pages, Page(ROOT / "BENCHMARKS.md")]]
    for path in sorted((ROOT / "tutorials").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts.append((path.name, "\n".join("".join(cell["source"]) for cell in cells)))
    for name, text in texts:
        parts = re.split(r"^#+ (.*)$", re.sub("<!--.*?-->", "", text, flags=re.S), flags=re.M)
        for title, body in zip(parts[1::2], parts[2::2], strict=True):
            yield name, title, body


class Index:
    """BM25 over sections, with titles counted several times."""

    def __init__(self) -> None:
        self.entries = []
        for page, title, body in sections():
            counts: Counter[str] = Counter(words(body))
            counts.update({word: TITLE * count for word, count in Counter(words(title)).items()})
            self.entries.append((page, counts))
        self.mean = sum(counts.total() for _, counts in self.entries) / len(self.entries)

    def pages(self, asked: str) -> list[str]:
        """The pages of the best sections, the best first."""
        scores = dict.fromkeys((page for page, _ in self.entries), 0.0)
        found = [[self._score(counts, word) for _, counts in self.entries] for word in set(words(asked))]
        rarity = [math.log(1 + len(self.entries) / (1 + sum(map(bool, word)))) for word in found]
        for (page, _), *of_words in zip(self.entries, *found, strict=True):
            scores[page] = max(scores[page], sum(map(operator.mul, rarity, of_words)))
        return sorted(scores, key=lambda page: -scores[page])

    def _score(self, counts: Counter[str], word: str) -> float:
        count = sum(times for term, times in counts.items() if term.startswith(word))
        return count * (K + 1) / (count + K * (1 - B + B * counts.total() / self.mean))


@pytest.fixture(scope="module")
def index() -> Index:
    return Index()


def test_there_are_thirty() -> None:
    assert len(questions()) >= 30


@pytest.mark.parametrize("asked", questions())
def test_the_page_that_answers_is_found(index: Index, asked: str) -> None:
    page = questions()[asked].partition("#")[0].rsplit("/", 1)[-1]
    assert page in index.pages(asked)[:FIRST]


def test_a_page_that_does_not_answer_is_not(index: Index) -> None:
    """Of answers given to the next question, few are found: the search tells questions apart."""
    asked = list(questions())
    pages = [questions()[one].partition("#")[0].rsplit("/", 1)[-1] for one in asked]
    shifted = [page in index.pages(one)[:FIRST] for one, page in zip(asked, [*pages[7:], *pages[:7]], strict=True)]
    assert sum(shifted) < len(asked) / 3
