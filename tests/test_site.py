"""The site that MkDocs builds of the pages: its version, a menu of versions where there are several, its schemes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import tvm_cascade

from .pages import ROOT, script

pytest.importorskip("latex2mathml", reason="the extra `docs` is missing")
config = pytest.importorskip("mkdocs.config", reason="the extra `docs` is missing")


def configured() -> Mapping[str, Any]:
    """mkdocs.yml, after the hooks of docs/site.py."""
    found = script("site").on_config(config.load_config(str(ROOT / "mkdocs.yml")))
    assert isinstance(found, Mapping)
    return found


def test_each_page_has_the_version_at_its_foot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIKE_DOCS_VERSION", raising=False)
    found = configured()
    assert f" {tvm_cascade.__version__}," in found["copyright"] and "version" not in found["extra"]


def test_versions_have_a_menu_where_mike_builds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIKE_DOCS_VERSION", "0.1.0")
    assert configured()["extra"]["version"] == {"provider": "mike"}


def test_a_reader_chooses_light_or_dark_and_nothing_comes_from_elsewhere() -> None:
    theme = configured()["theme"]
    schemes = [(one.get("scheme"), "toggle" in one) for one in theme["palette"]]
    assert schemes == [(None, True), ("default", True), ("slate", True)]
    assert theme["font"] is False
