"""The command line: what it prints, what it returns, and that errors are messages."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import tvm_cascade
from benchmarks.check import __main__ as check
from benchmarks.check.audit import Audit, audit
from corpus import workloads
from tvm_cascade import cli, te
from tvm_cascade.accuracy.numerics import Subject
from tvm_cascade.cli.examples import EXAMPLES
from tvm_cascade.codes import CODES
from tvm_cascade.driver import progress
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.options import FuseOptions

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


Captured = pytest.CaptureFixture[str]
SCRIPT = """from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def f(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for v in range(8):
        with T.sblock("b"):
            b[v] = c[v]
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tvm_cascade", *arguments], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.slow
def test_run_explains_checks_and_times_every_form() -> None:
    done = command("run", "attention", "--small", "--force")
    assert done.returncode == 0, done.stderr
    assert "attention: fused: attention_max, attention_sum, attention_sums" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.rstrip().endswith("ok")]
    assert [" ".join(row[:2]) for row in rows] == ["tvm default", "ours, unfused", "ours, fused"]
    assert all("ms" in row for row in rows)
    assert "fusing alone:" in done.stdout and "temporaries:" in done.stdout and "exp (at most" in done.stdout


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are measured twice, not for long; what `run` measures by default is in a process of its own above."""
    monkeypatch.setattr("tvm_cascade.cli.run._SAMPLES", 2)
    monkeypatch.setattr("tvm_cascade.cli.run._SAMPLE_MS", 1)


@pytest.mark.usefixtures("few_samples")
def test_run_takes_shape_dtype_tile_segments_seed_and_target(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--shape", "rows=3,length=101", "--dtype", "float16", "--tile", "16", "--segments", "2"]
    assert cli.main(["run", "softmax", *arguments, "--seed", "7", "--target", "llvm", "--force"]) == 0
    printed = capsys.readouterr().out
    assert "softmax (float16): rows=3 length=101" in printed and "ours, fused" in printed


@pytest.mark.usefixtures("few_samples")
def test_run_returns_one_when_a_check_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def off_where_fused(subject: Subject, compiled: Compiled, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        factor = 1.01 if compiled is subject.fused else 1.0
        return {name: (factor * array).astype(array.dtype) for name, array in right(subject, compiled, arrays).items()}

    right = Subject.run
    monkeypatch.setattr(Subject, "run", off_where_fused)
    assert cli.main(["run", "moments", "--small", "--force"]) == 1
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "ok" in line.split() or "WRONG" in line]
    assert [(" ".join(row[:2]), row[-1]) for row in rows] == [
        ("tvm default", "ok"), ("ours, unfused", "ok"), ("ours, fused", "WRONG")
    ]  # fmt: skip


def test_run_of_a_program_that_does_not_fuse_says_why_and_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "Q7", "--small"], workloads.registry()) == 0
    printed = capsys.readouterr().out
    assert "refused: absmax, product" in printed and "[rounding]" in printed and "nothing to compare" in printed


def test_explain_prints_a_builders_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "moments", "--small", "--force"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("moments: fused: moments_mean_sum, moments_variance_sum") and "merge" in printed


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
    assert cli.main(["explain", "logsumexp", "--small", "--force", "--html", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and ">fused<" in page and "logsumexp_sum" in page
    assert capsys.readouterr().out == ""


def test_env_prints_versions_target_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TVM_CASCADE_TILE", "64")
    assert cli.main(["env"]) == 0
    lines = {line.strip().split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "0.27" in lines["apache-tvm"] and "llvm" in lines["target"]
    assert "64" in lines["option tile"] and "TVM_CASCADE_TILE" in lines["option tile"]


@pytest.mark.parametrize("named", [None, workloads.registry()], ids=["builders", "workloads"])
def test_programs_lists_all_that_have_a_name(
    named: Mapping[str, Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["programs"], named) == 0
    first = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert first == list(named or EXAMPLES)


def test_every_builder_has_a_name() -> None:
    assert {example.builder.__name__ for example in EXAMPLES.values()} == set(te.__all__)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_builder_is_a_program_with_data(name: str) -> None:
    example = EXAMPLES[name].cpu.with_dtype("float16")
    job = example.job
    arrays = job.inputs(np.random.default_rng(0))
    data = [(argument, *one.shape, one.dtype.name) for argument, one in zip(example.inputs, arrays, strict=True)]
    params = [(one.name, *map(int, one.ty.shape), str(one.ty.dtype)) for one in job.build().params]
    assert params[: len(data)] == data and data[0][-1] == "float16"
    outputs = [(*shape, dtype.name) for shape, dtype in job.outputs]
    assert [param[1:] for param in params[len(data) :]] == outputs


def test_a_bare_call_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"    {name} " in printed for name in ("run", "explain", "numerics", "options", "reasons"))


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"tvm-cascade {tvm_cascade.__version__}\n"


UNREADABLE = [
    ["tune", "--trials", "few"],
    ["runn"],
    ["run"],
    ["options", "--more"],
    ["explain", "attention", "--shape", "keys"],
    ["explain", "attention", "--dtype", "int8"],
    ["numerics", "moments", "--inputs", "bogus"],
    ["run", "attention", "--seed", "-1"],
    ["explain", "softmax", "--html", "/"],
    ["tune", "softmax", "--json", "/nonexistent/out.json"],
]


@pytest.mark.parametrize("arguments", UNREADABLE, ids=" ".join)
def test_an_argument_that_cannot_be_read_is_told_in_two_lines(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    error, remedy = capsys.readouterr().err.splitlines()
    command = f"{arguments[0]} " if len(arguments) > 1 or arguments == ["run"] else ""
    assert error.startswith("error: ") and remedy.startswith("  what to do: ") and remedy.endswith(f" {command}--help")
    assert "_" not in error or "--inputs" in arguments  # no name of ours


@pytest.mark.parametrize("command", ["run", "explain", "numerics", "tune"])
def test_every_option_of_the_pass_has_a_flag(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    for option in dataclasses.fields(FuseOptions):
        assert f"--{option.name.replace('_', '-')}" in told
        assert " ".join(option.metadata["meaning"].split()) in told


def test_a_flag_reaches_the_pass(capsys: pytest.CaptureFixture[str]) -> None:
    base = ["explain", "softmax", "--small", "--force"]
    assert cli.main([*base, "--target", "sm_90a"]) == 0
    assert "lowered to  the memory-bound kernel" in capsys.readouterr().out
    assert cli.main([*base, "--target", "sm_90a", "--no-row-kernels"]) == 0
    assert "the option row_kernels is off" in capsys.readouterr().out


def test_explain_tells_what_a_gpu_gets_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    target = '{"kind": "cuda", "arch": "sm_90a"}'
    assert cli.main(["explain", "attention_causal", "--dtype", "float16", "--target", target]) == 0
    printed = capsys.readouterr().out
    assert "lowered to" in printed and "mask" in printed and "accumulate attention" in printed


def test_explain_names_the_schedule_of_an_amd_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "logsumexp", "--small", "--target", "gfx942"]) == 0
    assert "lowered to  an S-TIR schedule" in capsys.readouterr().out


def test_the_lists_hold_every_option_and_every_reason_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["options"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert names == [option.name for option in dataclasses.fields(FuseOptions)]
    assert cli.main(["reasons"]) == 0
    codes = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert codes == list(CODES)
    assert cli.main(["reasons", "rounding"]) == 0
    assert capsys.readouterr().out.startswith("rounding  (refused)")


def test_check_and_numerics_take_a_file_and_workloads(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(program), "V1", "--small", "--inputs", "normal"]) == 0
    printed = capsys.readouterr()
    assert [line.split(":")[0] for line in printed.err.splitlines() if line.endswith(": ok")] == [
        "softmax_stats",
        "module.twice",
        "V1",
    ]
    assert "3 programs: 2 fused" in printed.out
    assert cli.main(["numerics", str(program), "--only", "softmax_stats", "--inputs", "nan"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [["nan", "m"], ["nan", "s"]]


def test_functions_that_cannot_be_run_are_left_out_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mixed.py"
    symbolic = """
n = tvm.tirx.Var("n", "int64")
b = te.placeholder((n,), "float32", name="b")
anyhow = te.create_prim_func([b, te.compute((n,), lambda i: b[i] * 2, name="c")])
"""
    path.write_text(PROGRAM + symbolic)
    assert check.main([str(path), "--inputs", "normal"]) == 0
    printed = capsys.readouterr()
    assert "left out: expected extents that are numbers" in printed.err and "`anyhow`" in printed.err
    assert "2 programs" in printed.out


OF_RELAX = """
from tvm.script import ir as I, relax as R

@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4, 96), "float32"), w: R.Tensor((96,), "float32")):
        with R.dataflow():
            shares = R.nn.log_softmax(R.nn.rms_norm(x, w, axes=[-1]), axis=-1)
            entropy = R.negative(R.sum(R.exp(shares) * shares, axis=-1))
            R.output(entropy)
        return entropy
"""


def test_a_file_may_hold_a_module_of_relax(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its operators are what the commands work on, as `get_pipeline` merges them."""
    path = tmp_path / "model.py"
    path.write_text(OF_RELAX)
    assert cli.main(["explain", str(path), "--json", "--force"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert {one["verdict"] for one in groups} == {"fused", "nothing to fuse"}
    assert max(len(one["buffers"]) for one in groups) == 3  # the maximum, the sum and the entropy
    assert check.main([str(path), "--inputs", "normal"]) == 0
    printed = capsys.readouterr()
    assert "2 programs: 1 fused" in printed.out and "as published" not in printed.out


def test_an_interrupt_tells_what_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object) -> Iterator[Audit]:
        yield audit(workloads.get("V1").cpu, ("normal",))
        raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.check.__main__.audits", interrupted)
    path = tmp_path / "check.json"
    assert check.main(["--json", str(path)]) == 130
    printed = capsys.readouterr()
    assert "1 program: 1 fused" in printed.out and printed.err.endswith("interrupted\n")
    assert [row["name"] for row in json.loads(path.read_text())["rows"]] == ["V1"]


def test_what_takes_long_says_so_within_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert progress.FIRST_SECONDS < 2.0
    with progress.waiting("baking"):
        time.sleep(progress.FIRST_SECONDS + 0.3)
    assert capsys.readouterr().err == "baking … 2 s\n"
    with progress.waiting("baking"):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("terminal", "wanted"), [(True, True), (True, False), (False, True)])
def test_a_long_compilation_says_what_it_does_on_a_terminal(
    terminal: bool, wanted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, inside of others too; the option turns it off, and neither it nor a short compilation leaves a word."""
    monkeypatch.setattr("tvm_cascade.driver.progress.COMPILING_SECONDS", 0.05)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    options = FuseOptions(progress=wanted)
    with progress.compiling(options), progress.compiling(options):
        progress.tell("planning 12 of 40 functions")
        time.sleep(0.3)
    told = "tvm-cascade: planning 12 of 40 functions … 0 s\n" if terminal and wanted else ""
    assert capsys.readouterr().err == told
    with progress.compiling(options):
        pass
    assert capsys.readouterr().err == ""


BAD = {
    "unknown program": (["run", "atention"], "did you mean attention"),
    "unknown extent": (["run", "attention", "--shape", "key=3"], "extents among"),
    "extent of zero": (["run", "attention", "--shape", "keys=0"], "positive integer"),
    "tile of zero": (["run", "attention", "--tile", "0"], "option `tile`"),
    "unknown cast": (["explain", "attention", "--rescalable-casts", "int8"], "rescalable_casts"),
    "target that TVM has words for": (["explain", "attention", "--target", "rocm"], "no ROCm device here"),
    "no target": (["run", "attention", "--target", "nonsense"], "a target of TVM"),
    "other target": (["run", "attention", "--target", "opencl"], "of kind llvm"),
    "a GPU's target": (["run", "attention", "--small", "--target", "sm_90a"], "`explain --target sm_90a`"),
    "a kind of GPU that is not here": (["run", "attention", "--small", "--target", "rocm"], "no ROCm device here"),
    "a GPU to tune on that is not here": (["tune", "attention", "--target", "gfx942"], "of kind rocm to measure on"),
    "target that is no JSON": (["explain", "attention", "--target", "{kind"], "--target"),
    "a processor that LLVM does not know": (
        ["run", "attention", "--small", "--target", '{"kind": "llvm", "mcpu": "foo"}'],
        "a processor that LLVM knows",
    ),
    "a name like no other": (["explain", "nosuch"], "one of attention,"),
    "no name": (["explain", ""], "found ''"),
    "no trials, told before the program is read": (["tune", "nowhere.py", "--trials", "0"], "a number of trials"),
    "no time, told before the program is read": (["tune", "nowhere.py", "--seconds", "-1"], "a number of seconds"),
    "unknown code": (["reasons", "no_such"], "codes among"),
    "folder": (["explain", "/"], "a folder"),
    "file of another kind": (["run", __file__.replace(".py", ".md")], "no such file"),
    "unknown function": (["explain", __file__, "--only", "f"], "PrimFuncs"),
    "too large for the oracle": (["run", "attention", "--shape", "keys=16777216"], "--small"),
    "missing file": (["explain", "nowhere.py"], "a file that exists"),
    "shape of a file": (["explain", "nowhere.py", "--shape", "keys=3"], "with a program by name"),
    "heads that do not fit": (["explain", "attention", "--shape", "kv_heads=3"], "divides 8"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_a_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: expected") and message in printed.err and printed.out == ""


def test_a_file_that_cannot_be_written_after_all_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["V1", "--small", "--inputs", "normal", "--json", "/proc/nowhere.json"]
    assert check.main(arguments) == 2
    printed = capsys.readouterr()
    assert "1 program: 1 fused" in printed.out and "where: /proc/nowhere.json" in printed.err


def test_bad_input_leaves_no_traceback() -> None:
    done = command("explain", "attention", "--tile", "0")
    assert done.returncode == 2 and "Traceback" not in done.stderr and "option `tile`" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("broken.py", "x = 1\ndef :", "broken.py:2: def :"),
        ("raises.py", "def f():\n    raise RuntimeError('no luck')\n\nf()", "raises.py:2: raise RuntimeError"),
        ("inside.py", "import json\n\njson.loads('{')", "inside.py:3: json.loads"),
        ("script.py", SCRIPT, "script.py:6: b[v] = c[v]"),
        ("older.py", SCRIPT.replace("T.sblock", "T.block"), "what to do: in TVM 0.27 TVMScript is"),
        ("leaves.py", "import sys\nsys.exit(3)", "sys.exit(3)\n  where: "),
        ("empty.py", "x = 1", "at the file's top level"),
        ("broken.json", "{", "tvm.ir.save_json"),
        ("other.json", '{"a": 1}', "tvm.ir.save_json"),
        ("list.json", "[1, 2]", "tvm.ir.save_json"),
    ],
)
def test_a_file_that_holds_no_program_is_a_message(
    tmp_path: Path, name: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = tmp_path / name
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    for spelling in (str(path), name):
        assert cli.main(["explain", spelling]) == 2
        assert message in capsys.readouterr().err
