"""The native library: it builds, loads without a driver, and says in one sentence why it is not there or fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest

from tvm_cascade import native
from tvm_cascade.cli import main
from tvm_cascade.errors import InputError, NativeLibraryError
from tvm_cascade.native import library
from tvm_cascade.native.toolkit import find_nvcc

ROOT = Path(__file__).parents[2]


@pytest.fixture
def nothing_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A source tree and a cache in which nobody has built the library."""
    sources = tmp_path / "sources"
    shutil.copytree(ROOT / "src_cuda", sources / "src_cuda")
    shutil.copy(ROOT / "CMakeLists.txt", sources)
    monkeypatch.setattr(library, "source_folder", lambda: sources)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CUDACXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("tvm_cascade.native.toolkit._USUAL_HOME", Path("/nowhere"))
    monkeypatch.setenv("PATH", "")


@pytest.mark.usefixtures("nothing_built")
@pytest.mark.parametrize(
    "call",
    [
        native.load,
        native.device_count,
        native.device_properties,
        native.flush_l2,
        lambda: native.max_active_clusters(8, 0),
        lambda: native.time_function(print),
    ],
)
def test_without_the_library_every_call_says_how_to_build_it(call: object) -> None:
    assert native.library_path() is None
    with pytest.raises(NativeLibraryError, match="python -m tvm_cascade build-native"):
        call()  # type: ignore[operator]


@pytest.mark.usefixtures("nothing_built")
def test_the_environment_says_that_it_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "native library not built; run `python -m tvm_cascade build-native`" in printed
    assert "gpus unknown without the native library" in printed


@pytest.mark.usefixtures("nothing_built", "no_nvcc")
def test_building_without_nvcc_is_skipped_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build-native"]) == 0
    assert capsys.readouterr().out.startswith("skipped: there is no nvcc")
    with pytest.raises(NativeLibraryError, match="there is no nvcc"):
        native.build()


@pytest.mark.usefixtures("nothing_built")
def test_a_compiler_that_fails_is_an_error_with_its_messages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "cmake"
    broken.write_text("#!/bin/sh\necho no space left on device; exit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")
    with pytest.raises(NativeLibraryError, match=r"exit code 3:\nno space left on device"):
        native.build()
    assert native.library_path() is None


def test_a_file_that_is_no_library_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "libother.so"
    file.write_text("not a library")
    monkeypatch.setenv("TVM_CASCADE_NATIVE_LIBRARY", str(file))
    with pytest.raises(NativeLibraryError, match=r"libother\.so") as raised:
        native.load()
    assert "TVM_CASCADE_NATIVE_LIBRARY" in raised.value.hint


@pytest.mark.usefixtures("nothing_built")
def test_a_change_of_the_sources_asks_for_another_library() -> None:
    before = library.cached_path()
    with (library.source_folder() / "src_cuda" / "runtime" / "device.cc").open("a") as source:
        source.write("// changed\n")
    assert library.cached_path() != before


@pytest.mark.parametrize(("runs", "warmups"), [(0, 1), (-1, 0), (1, -1)])
def test_timing_nothing_is_refused(runs: int, warmups: int) -> None:
    with pytest.raises(InputError, match="runs"):
        native.time_function(print, runs=runs, warmups=warmups)


def test_samples_have_a_median_and_a_spread() -> None:
    samples = native.Samples((3.0, 1.0, 2.0, 5.0, 4.0, 100.0))
    assert samples.median_s == 3.5
    assert samples.spread_s == tuple(np.percentile([1, 2, 3, 4, 5, 100], (20, 80)))


def test_cmake_without_nvcc_configures_to_nothing_and_says_so(tmp_path: Path) -> None:
    tools = [tool for name in ("cmake", "ninja", "make") if (tool := shutil.which(name))]
    if shutil.which("cmake") is None or len(tools) < 2:
        pytest.skip("there is no cmake, or nothing for it to drive")
    (tmp_path / "bin").mkdir()
    for tool in tools:
        (tmp_path / "bin" / Path(tool).name).symlink_to(tool)
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    built = str(tmp_path / "build")
    for command in (["cmake", "-S", str(ROOT), "-B", built, *generator], ["cmake", "--build", built]):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
        if "-S" in command:
            assert "no nvcc on PATH or in CUDACXX, so the optional native library is skipped" in done.stdout


def test_an_installed_package_carries_the_sources(tmp_path: Path) -> None:
    if int(next((d.version for d in distributions(name="setuptools")), "0").split(".")[0]) < 77:
        pytest.skip("setuptools is older than pyproject.toml asks for")
    command = ["setup.py", "-q", "egg_info", "--egg-base", str(tmp_path), "build_py", "--build-lib", str(tmp_path)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    installed = tmp_path / "tvm_cascade" / "native" / "sources"
    for path in [ROOT / "CMakeLists.txt", *(ROOT / "src_cuda").rglob("*.*")]:
        assert (installed / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


_EVERY_CALL = """
import numpy as np
from tvm_cascade import native
from tvm_cascade.errors import CascadeError
print(native.load())
for call in (
    native.device_count,
    native.device_properties,
    native.flush_l2,
    lambda: native.max_active_clusters(8, 1024),
    lambda: native.time_function(print, "never called"),
    lambda: native.poison(np.zeros(3, "float32")),
):
    try:
        print(call())
    except CascadeError as error:
        print(type(error).__name__, error.found)
"""


def test_the_library_builds_loads_without_a_driver_and_names_the_calls_that_fail(tmp_path: Path) -> None:
    if reason := native.why_not_buildable():
        pytest.skip(reason)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CUDACXX": find_nvcc() or ""}
    build = [sys.executable, "-m", "tvm_cascade", "build-native"]
    done = subprocess.run(build, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    path = done.stdout.splitlines()[-1]
    assert path.startswith(str(tmp_path)) and [p.name for p in Path(path).parent.iterdir()] == [library.FILE_NAME]

    without_gpu = {**environment, "TVM_CASCADE_NATIVE_LIBRARY": path, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", _EVERY_CALL], env=without_gpu, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded, count, properties, *scoped, poisoned = done.stdout.splitlines()
    assert loaded == path
    assert count.startswith("DeviceError cudaGetDeviceCount(&count): cudaError")
    assert properties.startswith("DeviceError cudaGetDeviceProperties(")
    assert len(scoped) == 3 and all("DeviceError cuda" in line for line in scoped)
    assert poisoned.startswith("InputError")
