"""What an installed tvm-cascade gives: names inside TVM after a bare `import tvm`, version checks, lazy names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from types import ModuleType

import pytest
import tvm

import tvm_cascade
from tvm_cascade import _autoload, _versions
from tvm_cascade.errors import OptionError, VersionError

ROOT = Path(__file__).parent.parent
NAMESPACES = ("s_tir", "tirx", "tir")


@pytest.fixture(scope="session")
def path_of_installed_package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PYTHONPATH with which new interpreters see the package as installed, even if it is run from its source tree."""
    path = os.environ.get("PYTHONPATH", "")
    if any(entry.name == "tvm_cascade" for entry in metadata.entry_points(group="tvm.backends")):
        return path
    folder = tmp_path_factory.mktemp("metadata")
    subprocess.run([sys.executable, "setup.py", "-q", "egg_info", "--egg-base", folder], cwd=ROOT, check=True)
    return f"{folder}{os.pathsep}{path}"


def _python(code: str, pythonpath: str, folder: Path, **environment: str) -> str:
    """What a new interpreter prints, from an unrelated folder; stderr included, so that warnings are seen."""
    variables = {**os.environ, "PYTHONPATH": pythonpath, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _pretend_installed(folder: Path, distribution: str, version: str) -> None:
    information = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")


_SOURCES = ("python", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def test_a_wheel_holds_the_tree_as_it_is_and_leaves_nothing_in_it(tmp_path: Path) -> None:
    """What an earlier build has left of a module that is gone does not ship."""
    if int(metadata.version("setuptools").split(".")[0]) < 77:
        pytest.skip("setuptools is older than pyproject.toml asks for")
    tree, stale = tmp_path / "tree", "build/lib/tvm_cascade/gone.py"
    for name in _SOURCES:
        source = ROOT / name
        copy = partial(shutil.copytree, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        tree.mkdir(exist_ok=True)
        (copy if source.is_dir() else shutil.copy)(source, tree / name)
    (tree / stale).parent.mkdir(parents=True)
    (tree / stale).write_text("")
    before = sorted(path for path in tree.rglob("*") if "__pycache__" not in path.parts)
    command = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(tmp_path),
        ".",
    ]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    assert sorted(path for path in tree.rglob("*") if "__pycache__" not in path.parts) == before
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        sources = {name for name in archive.namelist() if name.endswith((".py", ".cuh"))}
        (about,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    package = ROOT / "python"
    of_tree = (path for path in package.rglob("*") if path.suffix in (".py", ".cuh"))
    assert sources == {str(path.relative_to(package)) for path in of_tree}
    assert "# tvm-cascade" in about and "The benchmarks list" in about and "](BENCHMARKS.md)" not in about


def test_links_come_from_the_one_repository_that_is_named(tmp_path: Path) -> None:
    address = "https://host.invalid/owner/tvm-cascade"
    project = (ROOT / "pyproject.toml").read_text()
    (named,) = re.findall(r'^repository = "(.*)"$', project, re.M)
    cited = re.findall(r'^repository-code: "?(.*?)"?$', (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited == [named] * bool(named)
    (tmp_path / "python").symlink_to(ROOT / "python")
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "pyproject.toml").write_text(project.replace(f'repository = "{named}"', f'repository = "{address}"'))
    (tmp_path / "info").mkdir()
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", "info"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (about,) = (path.read_text() for path in tmp_path.glob("info/*/PKG-INFO"))
    assert f"Project-URL: Source, {address}\n" in about and f"Project-URL: Issues, {address}/issues\n" in about


_OF_TESTS = (".ci", ".github", "benchmarks", "campaigns", "corpus", "docs", "tests", "tutorials")
_OF_READERS = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")


def test_a_source_distribution_holds_what_its_tests_need(tmp_path: Path) -> None:
    if int(metadata.version("setuptools").split(".")[0]) < 77:
        pytest.skip("setuptools is older than pyproject.toml asks for")
    tree, left_out = tmp_path / "tree", (".git", ".*_cache", "__pycache__", ".hypothesis", "*.egg-info", ".tvm*")
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*left_out))
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=tree, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    files = (one for folder in _OF_TESTS for one in (tree / folder).rglob("*") if one.is_file())
    assert {*(str(one.relative_to(tree)) for one in files), *_OF_READERS, "mkdocs.yml", "CITATION.cff"} <= found


def test_what_every_change_has_to_pass_is_run_on_each() -> None:
    public = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "pull_request:" in public and "- run: .ci/run\n" in public
    assert all(path.read_text().strip() for path in (ROOT / ".github").rglob("*.md"))
    assert len(list((ROOT / ".github").rglob("*.md"))) >= 4  # a pull request, and reports of three kinds


def test_a_bare_import_of_tvm_is_enough_and_stays_light(path_of_installed_package: str, tmp_path: Path) -> None:
    code = """
import sys, tvm
for name in ("sympy", "rich", "tvm_cascade.algebra", "tvm_cascade.transform", "tvm_cascade.meta_schedule"):
    assert name not in sys.modules, name
from tvm.tir.transform import FuseCascadedReductions
import tvm.tir.transform
assert tvm.tir.transform.FuseCascadedReductions is FuseCascadedReductions
assert tvm.s_tir.transform.FuseCascadedReductions is FuseCascadedReductions
assert tvm.tirx.transform.FuseCascadedReductions is FuseCascadedReductions
from tvm.script import tir as T
from tvm.script import tirx
assert T.prim_func is tirx.prim_func
assert tvm.get_global_func("s_tir.meta_schedule.cpu.tvm_cascade", allow_missing=True) is not None
"""
    assert _python(code, path_of_installed_package, tmp_path) == ""


def test_importing_the_package_attaches_it_where_autoload_is_off(
    path_of_installed_package: str, tmp_path: Path
) -> None:
    code = """
import tvm
assert not hasattr(tvm.s_tir.transform, "FuseCascadedReductions")
import tvm_cascade
tvm.tir.transform.FuseCascadedReductions, tvm.s_tir.transform.FuseCascadedReductions
"""
    assert _python(code, path_of_installed_package, tmp_path, TVM_DEVICE_BACKEND_AUTOLOAD="0") == ""


def test_a_tvm_without_compiler_is_left_as_it_is(path_of_installed_package: str, tmp_path: Path) -> None:
    code = """
import tvm
assert tvm._RUNTIME_ONLY and not hasattr(tvm, "tir")
import tvm_cascade
"""
    assert _python(code, path_of_installed_package, tmp_path, TVM_USE_RUNTIME_LIB="1") == ""


def test_a_wrong_version_warns_when_tvm_is_imported(path_of_installed_package: str, tmp_path: Path) -> None:
    _pretend_installed(tmp_path, "apache-tvm-ffi", "0.1.15.post2")
    printed = _python("import tvm", f"{tmp_path}{os.pathsep}{path_of_installed_package}", tmp_path)
    assert "UserWarning: Failed to autoload tvm backend 'tvm_cascade'" in printed
    assert "apache-tvm-ffi 0.1.15.post2" in printed
    assert "pip install 'apache-tvm>=0.27,<0.28' 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'" in printed


def test_a_wrong_version_is_an_error_before_tvm_is_loaded(path_of_installed_package: str, tmp_path: Path) -> None:
    _pretend_installed(tmp_path, "apache-tvm", "0.28.0")
    code = """
import sys
try:
    import tvm_cascade
except ImportError as error:
    print(type(error).__name__, error.found)
assert "tvm" not in sys.modules and "tvm_ffi" not in sys.modules
"""
    printed = _python(code, f"{tmp_path}{os.pathsep}{path_of_installed_package}", tmp_path)
    assert printed.strip() == "VersionError apache-tvm 0.28.0"


@pytest.mark.parametrize("version", ["0.27.0", "0.27.0.post1", "0.27.3+cu130"])
def test_every_release_of_the_supported_tvm_is_accepted(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    _pretend_versions(monkeypatch, {"apache-tvm": version, "apache-tvm-ffi": "0.1.14.post1"})
    _versions.check()


@pytest.mark.parametrize("version", ["0.1.14.post0", "0.1.14.post1", "0.1.14.post1+local"])
def test_every_release_of_the_supported_ffi_is_accepted(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    _pretend_versions(monkeypatch, {"apache-tvm": "0.27.0", "apache-tvm-ffi": version})
    _versions.check()


@pytest.mark.parametrize(
    ("distribution", "version"),
    [
        ("apache-tvm", "0.26.0"),
        ("apache-tvm", "0.28.0.dev0"),
        ("apache-tvm", "1.27.0"),
        ("apache-tvm", "0.270.0"),
        ("apache-tvm-ffi", "0.1.13.post3"),
        ("apache-tvm-ffi", "0.1.14"),
        ("apache-tvm-ffi", "0.1.15.post1"),
        ("apache-tvm-ffi", "0.1.15.post2"),
    ],
)
def test_other_versions_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, distribution: str, version: str) -> None:
    _pretend_versions(monkeypatch, {"apache-tvm": "0.27.0", "apache-tvm-ffi": "0.1.14.post1", distribution: version})
    with pytest.raises(VersionError) as raised:
        _versions.check()
    assert raised.value.found == f"{distribution} {version}"
    assert raised.value.expected.startswith(distribution)
    assert "pip install" in raised.value.hint


def test_a_missing_tvm_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend_versions(monkeypatch, {"apache-tvm-ffi": "0.1.14.post1"})
    with pytest.raises(VersionError, match="no apache-tvm"):
        _versions.check()


def _pretend_versions(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    def version(distribution: str) -> str:
        if distribution not in versions:
            raise metadata.PackageNotFoundError(distribution)
        return versions[distribution]

    monkeypatch.setattr(metadata, "version", version)


def test_the_checked_versions_are_those_that_pip_installs() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for name, asked, *_ in _versions._REQUIREMENTS:
        assert f'"{name}{asked}"' in project


def test_attaching_twice_changes_nothing() -> None:
    before = {name: vars(getattr(tvm, name).transform).copy() for name in NAMESPACES}
    tir, finders = tvm.tir, list(sys.meta_path)
    _autoload.autoload()
    assert tvm.tir is tir and sys.modules["tvm.tir"] is tir and sys.meta_path == finders
    assert {name: vars(getattr(tvm, name).transform) for name in NAMESPACES} == before


@pytest.mark.parametrize("has_transform", [True, False])
def test_an_existing_tvm_tir_is_kept_and_attached_to(monkeypatch: pytest.MonkeyPatch, has_transform: bool) -> None:
    existing, transform = ModuleType("tvm.tir"), ModuleType("tvm.tir.transform")
    existing.__path__ = []
    monkeypatch.setitem(sys.modules, "tvm.tir", existing)
    monkeypatch.delitem(sys.modules, "tvm.tir.transform")
    if has_transform:
        monkeypatch.setitem(sys.modules, "tvm.tir.transform", transform)
    monkeypatch.setattr(tvm, "tir", existing)
    _autoload.autoload()
    assert tvm.tir is existing
    assert tvm.tir.transform.FuseCascadedReductions is _autoload.FuseCascadedReductions
    assert (tvm.tir.transform is transform) == has_transform


def test_tvm_tir_has_the_names_that_tvm_moved() -> None:
    assert tvm.tir.PrimFunc is tvm.tirx.PrimFunc
    assert tvm.tir.Schedule is tvm.s_tir.Schedule
    assert tvm.tir.transform.LowerInitBlock is tvm.s_tir.transform.LowerInitBlock
    assert {"PrimFunc", "Schedule"} <= set(dir(tvm.tir))


def test_tvm_tir_is_a_well_behaved_module() -> None:
    assert importlib.util.find_spec("tvm.tir.transform") is not None
    assert not hasattr(tvm.tir, "__file__")  # it must not pass for the file of another module
    with pytest.raises(AttributeError, match=r"tvm\.tir.*no_such_name"):
        _ = tvm.tir.no_such_name
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tvm.tir.no_such_module")


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_each_namespace_builds_the_pass(namespace: str) -> None:
    build = getattr(tvm, namespace).transform.FuseCascadedReductions
    assert isinstance(build(tile=64), tvm.transform.Pass)
    with pytest.raises(OptionError, match="tiles"):
        build(tiles=64)


@pytest.mark.parametrize("name", tvm_cascade.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(tvm_cascade, name)
    assert getattr(value, "__name__", name).split(".")[-1] == name  # reducers have a name of their own
    assert name in dir(tvm_cascade)


@pytest.mark.parametrize(("name", "module"), [("compile", "compilation"), ("tune", "tune")])
def test_functions_stay_functions_when_their_modules_are_imported(name: str, module: str) -> None:
    imported = importlib.import_module(f"tvm_cascade.tuning.{module}")
    assert getattr(tvm_cascade, name) is getattr(imported, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tvm_cascade.no_such_name


def test_the_package_declares_its_types() -> None:
    assert resources.files("tvm_cascade").joinpath("py.typed").is_file()
