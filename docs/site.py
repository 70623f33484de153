"""Hooks of MkDocs: files outside of docs become pages, so that the repository and the site read the same text.

README.md is the front page, BENCHMARKS.md a page, and so is each notebook with its stored outputs. Links between files
are followed to the pages that they became; those to files that are no pages become plain words. Formulas become MathML.
"""

from __future__ import annotations

import html
import json
import logging
import os
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = {"README.md": "index.md", "BENCHMARKS.md": "benchmarks.md"}
"""Files of the repository by the page that each becomes; notebooks become pages of their own name."""

_LOG = logging.getLogger("mkdocs.hooks.site")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The version, at the foot of each page, and the repository, where pyproject.toml names one.

    Pages that mike builds, next to those of other versions, have a menu of these; others would ask for it in vain.
    """
    package = (ROOT / "python" / "tvm_cascade" / "_versions.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^RELEASE = "(.*)"$', package, re.M)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (repository,) = re.findall(r'^repository = "(.*)"$', project, re.M)
    config.repo_url = repository or None
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    config.copyright = f"tvm-cascade {version}, Apache License 2.0"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs."""
    for source, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted((ROOT / "tutorials").glob("*.ipynb")):
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=markdown_of(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Follow links between files of the repository to pages of the site."""
    uri = page.file.src_uri
    sources = {page: source for source, page in OUTSIDE.items()}
    source = sources.get(uri, f"docs/{uri}" if not uri.startswith("tutorials/") else uri)

    def followed(link: re.Match[str]) -> str:
        picture, text, target, anchor = link.groups()
        to = _page_of(normpath(str(PurePosixPath(source).parent / target)))
        if files.get_file_from_path(to) is None:
            return text
        return f"{picture}[{text}]({relpath(to, PurePosixPath(uri).parent)}{anchor or ''})"

    return _LINK.sub(followed, markdown)


_CELL = re.compile(r"<td.*?</td>", re.S)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def on_page_content(page_html: str, **_of: Any) -> str:
    """Formulas as MathML, which browsers draw without a script from elsewhere; no backslash before bars in tables."""

    def drawn(formula: re.Match[str]) -> str:
        kind, text = formula.groups()
        if kind == "span":
            return convert(html.unescape(text).strip(), display="inline")
        return f'<div class="formula">{convert(html.unescape(text).strip(), display="block")}</div>'

    return _FORMULA.sub(drawn, _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), page_html))


_FAULTS = {
    "something is loaded from another host": re.compile(
        r'<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//[^"]*"|<link\b[^>]*"stylesheet"[^>]*\bhref="(?:https?:)?//[^"]*"'
    ),
    "a formula is not drawn": re.compile(r'class="arithmatex"[^<]*'),
    "a backslash stands in a table": re.compile(r"<td[^>]*>[^<]*(?:<code>[^<]*)?\\\|"),
}


def on_post_page(output: str, page: Page, **_of: Any) -> str:
    """Warn of what a reader would see of a page, or without a network not see; `--strict` makes that an error."""
    for fault, pattern in _FAULTS.items():
        for found in pattern.findall(output):
            _LOG.warning("%s: %s: %s", page.file.src_uri, fault, found)
    return output


def _page_of(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path == "tutorials":
        return "tutorials/01_online_softmax.md"
    path = OUTSIDE.get(path, path.removeprefix("docs/"))
    return re.sub(r"\.ipynb$", ".md", path)


def markdown_of(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and the outputs that are stored in it."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [f"```python\n{source}\n```", *map(_shown, cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any]) -> str:
    """What a cell has printed or drawn."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/svg+xml" in data:
        return re.sub(r"^(<\?xml|<!DOCTYPE)[^>]*>\s*", "", "".join(data["image/svg+xml"]), flags=re.M).strip()
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
