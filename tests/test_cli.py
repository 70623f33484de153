"""The command line: what it prints, what it returns, and that errors are messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

from tvm_cascade import cli
from tvm_cascade.bench import workloads
from tvm_cascade.bench.case import Case
from tvm_cascade.bench.peers import OURS_FUSED, PEERS, Runnable

PROGRAM = '''
"""Two programs, one of which holds a cascade."""
import tvm
from tvm import te
from tvm.script import tirx as T

print("this file talks")

@T.prim_func(s_tir=True)
def softmax_stats(x: T.Buffer((4, 100), "float32"), m: T.Buffer((4,), "float32"), s: T.Buffer((4,), "float32")):
    for i, j in T.grid(4, 100):
        with T.sblock("m"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                m[vi] = T.min_value("float32")
            m[vi] = T.max(m[vi], x[vi, vj])
    for i, j in T.grid(4, 100):
        with T.sblock("s"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                s[vi] = T.float32(0)
            s[vi] = s[vi] + T.exp(x[vi, vj] - m[vi])

a = te.placeholder((8,), "float32", name="a")
module = tvm.IRModule({"twice": te.create_prim_func([a, te.compute((8,), lambda i: a[i] * 2, name="b")])})
'''


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tvm_cascade", *arguments], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_run_explains_checks_and_times_every_form() -> None:
    done = command("run", "attention", "--small", "--force")
    assert done.returncode == 0, done.stderr
    assert "attention: fused: row_max, row_sum, out" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.rstrip().endswith("ok")]
    assert [" ".join(row[:2]) for row in rows] == ["tvm default", "ours, unfused", "ours, fused"]
    assert all("ms" in row for row in rows)
    assert "fusing alone:" in done.stdout and "temporaries:" in done.stdout and "exp (at most" in done.stdout


def test_run_takes_shape_dtype_tile_segments_seed_and_target(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--shape", "rows=3", "length=101", "--dtype", "float16", "--tile", "16", "--segments", "2"]
    assert cli.main(["run", "softmax_stats", *arguments, "--seed", "7", "--target", "llvm", "--force"]) == 0
    printed = capsys.readouterr().out
    assert "softmax_stats (float16): rows=3 length=101" in printed and "ours, fused" in printed


def test_run_returns_one_when_a_check_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def zeros(case: Case) -> Runnable:
        return Runnable(lambda: None, lambda: [np.zeros_like(exact) for exact in case.exact])

    monkeypatch.setitem(PEERS, OURS_FUSED, zeros)
    assert cli.main(["run", "variance", "--small", "--force"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_run_of_a_program_that_does_not_fuse_says_why_and_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "Q7", "--small"]) == 0
    printed = capsys.readouterr().out
    assert "refused: absmax, product" in printed and "[rounding]" in printed and "nothing to compare" in printed


def test_explain_prints_a_workloads_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "variance", "--small", "--force"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("variance: fused: mean_sum, moment") and "merge" in printed


def test_explain_reads_every_function_of_a_python_file(program: Path) -> None:
    done = command("explain", str(program), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)  # what the file itself prints does not come between
    assert {f["name"] for f in told["functions"]} == {"softmax_stats", "module.twice"}
    assert [group["buffers"] for group in told["groups"]] == [["m", "s"]]


def test_explain_reads_a_saved_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "module.json"
    mod = tvm.IRModule({"stats": workloads.get("softmax_stats").cpu.build()})
    path.write_text(tvm.ir.save_json(mod))
    assert cli.main(["explain", str(path), "--force"]) == 0
    assert capsys.readouterr().out.startswith("stats: fused: row_max, row_sum")


def test_explain_writes_html(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.html"
    assert cli.main(["explain", "softmax_stats", "--small", "--force", "--html", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and ">fused<" in page and "row_sum" in page
    assert capsys.readouterr().out == ""


def test_env_prints_versions_target_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TVM_CASCADE_TILE", "64")
    assert cli.main(["env"]) == 0
    lines = {line.strip().split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "0.27" in lines["apache-tvm"] and "llvm" in lines["target"]
    assert "64" in lines["option tile"] and "TVM_CASCADE_TILE" in lines["option tile"]


def test_workloads_lists_every_workload(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["workloads", "--source", "Neptune"]) == 0
    first = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert first == list(workloads.names(source="Neptune"))


BAD = {
    "unknown workload": (["run", "atention"], "did you mean attention"),
    "unknown extent": (["run", "attention", "--shape", "key=3"], "extents among"),
    "shape that is no pair": (["explain", "attention", "--shape", "keys"], "NAME=N"),
    "extent of zero": (["run", "attention", "--shape", "keys=0"], "positive integer"),
    "unknown dtype": (["explain", "attention", "--dtype", "int8"], "a dtype among"),
    "tile of zero": (["run", "attention", "--tile", "0"], "option `tile`"),
    "unknown cast": (["explain", "attention", "--rescalable-casts", "int8"], "rescalable_casts"),
    "no target": (["run", "attention", "--target", "nonsense"], "a target of TVM"),
    "other target": (["run", "attention", "--target", "opencl"], "of kind llvm"),
    "negative seed": (["run", "attention", "--small", "--seed", "-1"], "seed"),
    "too large for the oracle": (["run", "PF_GLOBAL", "--shape", "keys=1048576"], "--small"),
    "missing file": (["explain", "nowhere.py"], "a file that exists"),
    "shape of a file": (["explain", "nowhere.py", "--shape", "keys=3"], "with a workload only"),
    "html nowhere": (["explain", "softmax_stats", "--small", "--html", "/nonexistent/out.html"], "--html"),
    "unknown family": (["workloads", "--family", "cooking"], "a family among"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_a_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: expected") and message in printed.err and printed.out == ""


def test_bad_input_leaves_no_traceback() -> None:
    done = command("explain", "attention", "--tile", "0")
    assert done.returncode == 2 and "Traceback" not in done.stderr and "option `tile`" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("broken.py", "def :", "a Python file that runs"),
        ("raises.py", "raise RuntimeError('no luck')", "no luck"),
        ("empty.py", "x = 1", "at the file's top level"),
        ("broken.json", "{", "tvm.ir.save_json"),
        ("other.json", '{"a": 1}', "tvm.ir.save_json"),
        ("list.json", "[1, 2]", "tvm.ir.save_json"),
    ],
)
def test_a_file_that_holds_no_program_is_a_message(
    tmp_path: Path, name: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert cli.main(["explain", str(path)]) == 2
    assert message in capsys.readouterr().err
