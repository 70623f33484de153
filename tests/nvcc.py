"""nvcc and the disassembler for tests: what a CUDA text compiles to, read from its machine code."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tvm_cascade.driver.toolkit import find_nvcc


def nvcc(*arguments: str | Path, arch: str = "sm_90a") -> str:
    """Runs nvcc, for Hopper by default, and gives its messages; skips the test where there is none."""
    tool = find_nvcc()
    if tool is None:
        pytest.skip("there is no nvcc")
    command = [tool, "-std=c++17", f"-arch={arch}", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def instructions(cubin: Path) -> Counter[str]:
    """How often each instruction is in a cubin, by its name with modifiers; skips where there is no disassembler."""
    packaged = importlib.util.find_spec("nvidia")
    folders = [f"{folder}/cu13/bin" for folder in (packaged and packaged.submodule_search_locations) or ()]
    beside = Path(find_nvcc() or "").resolve().parent
    path = ":".join([os.environ.get("PATH", ""), str(beside), *folders])
    tool = shutil.which("cuobjdump", path=path)
    if tool is None or shutil.which("nvdisasm", path=path) is None:
        pytest.skip("there is no cuobjdump with its nvdisasm")
    command, found = [tool, "--dump-sass", cubin], {**os.environ, "PATH": path}
    listing = subprocess.run(command, env=found, capture_output=True, text=True, check=True).stdout
    return Counter(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", listing))
