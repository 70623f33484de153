"""What pyproject.toml cannot say: where wheels are built, and links of the README."""

import atexit
import re
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def folders() -> dict[str, dict[str, str]]:
    """Where setuptools builds: outside the checkout, so that no wheel holds what an earlier build has left there."""
    scratch = tempfile.mkdtemp(prefix="tvm-cascade-build-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    found = {"build": {"build_base": scratch}}
    if "sdist" not in sys.argv:  # a source distribution holds its egg-info, which therefore lies beside the sources
        found["egg_info"] = {"egg_base": scratch}
    return found


def description() -> str:
    """README.md without pictures, and with links to files as plain words: beside an index's page there are no files."""
    text = re.sub(r"!\[[^\]]*\]\((?!\w+:)[^)]*\)\n*", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    return re.sub(r"\[([^\]]+)\]\((?!\w+:)[^)]*\)", r"\1", text)


def links() -> dict[str, str]:
    """URLs by name, of the one repository that pyproject.toml names; none where it names none."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (repository,) = re.findall(r'^repository = "(.*)"$', project, re.M)
    below = {"Source": "", "Issues": "/issues", "Changelog": "/blob/main/CHANGELOG.md"}
    return {name: repository + path for name, path in below.items()} if repository else {}


setup(
    options=folders(),
    project_urls=links(),
    long_description=description(),
    long_description_content_type="text/markdown",
)
