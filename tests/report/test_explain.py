"""`tvm_cascade.explain`: the verdicts and formulas that a user reads, as objects, text, JSON and HTML."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi
from rich.console import Console
from tvm import relax, te, tirx, topi

import tvm_cascade
from corpus import workloads
from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.obligations.certificate import PREMISE
from tvm_cascade.obligations.check import OBLIGATIONS
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.report.group import Formula, FunctionReport, GroupReport, bytes_text
from tvm_cascade.symbolic.separate import RANK_LIMIT
from tvm_cascade.te import topk
from tvm_cascade.transform import fuse_function
from tvm_cascade.transform.cost import Estimate

ROOT = Path(__file__).parents[2]

GROUP_KEYS = [
    "function",
    "verdict",
    "reason",
    "buffers",
    "formulas",
    "latex",
    "references",
    "ranges",
    "certificate",
    "infinities",
    "passes_before",
    "passes_after",
    "bytes_before",
    "bytes_after",
    "us_before",
    "us_after",
    "obligations",
    "passes",
    "inside",
]


def program(name: str) -> tirx.PrimFunc:
    return workloads.get(name).cpu.build()


def only_group(explanation: Explanation) -> GroupReport:
    (group,) = explanation.groups
    return group


def no_reduction() -> tirx.PrimFunc:
    x = te.placeholder((8,), "float32", name="x")
    return te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1, name="y")])


@pytest.fixture(scope="module")
def attention() -> Explanation:
    return tvm_cascade.explain(program("attention"))


@pytest.mark.parametrize("name", ["attention", "variance", "inertia", "entropy", "layernorm_gemm", "rmsnorm_gemm"])
def test_every_reference_comes_with_the_argument_for_it(name: str) -> None:
    group = only_group(tvm_cascade.explain(program(name)))
    assert group.references and list(group.ranges) == list(group.references)
    said = dict(group.facts)
    assert all(argument and said[f"range at {quantity}"] == argument for quantity, argument in group.ranges.items())


def test_a_fused_group_names_the_users_buffers_and_shows_the_whole_fold(attention: Explanation) -> None:
    group = only_group(attention)
    assert group.verdict is Verdict.FUSED and attention.fused
    assert group.function == "main" and group.buffers == ("row_max", "row_sum", "out")
    assert group.reason.code == "fold"
    sections = [formula.section for formula in group.formulas]
    assert list(dict.fromkeys(sections)) == ["lift", "reference (running)", "merge", "finish"]
    assert [f.left for f in group.formulas if f.section == "finish"] == list(group.buffers)
    assert group.references == {"row_max": "running", "1/row_sum": "deferred"}
    assert list(group.obligations) == list(OBLIGATIONS)
    assert group.obligations["finish over any split = definition"] > 0
    facts = dict(group.facts)
    assert "finish over any split = definition (" in facts["checked at random points"]
    assert facts["certificate"].startswith(f"bounded {PREMISE}: ")
    assert re.fullmatch(r"classes agree at \d+ points", facts["checked at infinities"])


@pytest.mark.parametrize("name", ["attention", "variance", "softmax", "Q1", "entropy", "layernorm_gemm", "moe_routing"])
def test_the_page_on_explanations_has_every_label(name: str) -> None:
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    for group in tvm_cascade.explain(program(name), "sm_90a").groups:
        labels = {re.sub(r"^range at .*", "range at …", label) for label, _ in group.rows}
        assert len(labels) >= 2 and not {label for label in labels if f"`{label}`" not in page}


def test_an_argument_of_several_results_is_given_once(attention: Explanation) -> None:
    arguments = only_group(attention).certificate.removeprefix(f"bounded {PREMISE}: ").split("; ")
    assert arguments[1].startswith("exp(x − c) ≤ 1") and len(arguments) == len(set(arguments)) == 3


def test_what_is_only_checked_is_never_called_proved(attention: Explanation) -> None:
    assert "proved" not in str(attention).lower()
    assert RANK_LIMIT == 6 and "up to 6 products" in Reason("infinite_rank").law


def test_a_fused_group_says_what_it_saves(attention: Explanation) -> None:
    group = only_group(attention)
    assert group.passes_before is not None and group.passes_after is not None
    assert group.passes_before > group.passes_after == 1
    scores = 4 * 32 * 96 * 4  # heads x queries x keys x bytes of float32: at least one stage of this size is gone
    assert group.bytes_before is not None and group.bytes_after is not None
    assert group.bytes_before >= scores > group.bytes_after


def test_long_exact_constants_are_shown_as_decimals(attention: Explanation) -> None:
    first_lift = only_group(attention).formulas[0]
    assert first_lift.right == "0.176776695*scores"  # 1/sqrt(32) as float32 has it


@pytest.mark.parametrize("length", [100, "many"])
def test_the_number_of_all_positions_is_written_out_or_said(length: int | str) -> None:
    extent = length if isinstance(length, int) else tirx.Var(length, "int64")
    x = te.placeholder((4, extent), "float32", name="x")
    j, k = (te.reduce_axis((0, extent), name) for name in "jk")
    count = tirx.Cast("float32", extent) if extent is not length else 100.0
    total = te.compute((4,), lambda i: te.sum(x[i, j], axis=j), name="total")
    spread = te.compute((4,), lambda i: te.sum((x[i, k] - total[i] / count) * (x[i, k] - total[i] / count), axis=k))
    group = only_group(tvm_cascade.explain(te.create_prim_func([x, spread])))
    told = {formula.left: formula.right for formula in group.formulas}
    assert told["c_total'"] == "total_0/n"
    if length == 100:
        assert not any("N" in formula.right for formula in group.formulas)
    else:
        assert "N" in told["compute"] and told["N"] == "many, all positions"


def test_latex_writes_buffer_names_as_they_are(attention: Explanation) -> None:
    latex = only_group(attention).latex
    assert latex.startswith(r"\begin{aligned}") and latex.count(r"\\") == len(only_group(attention).formulas) - 1
    assert r"\mathit{row\_sum}" in latex


def test_a_refused_group_says_which_law_fails_and_what_would_make_it_fuse() -> None:
    group = only_group(tvm_cascade.explain(program("Q7")))
    assert group.verdict is Verdict.REFUSED and group.reason.code == "rounding"
    assert group.buffers == ("absmax", "product") and "float8_e4m3fn" in group.reason.detail
    assert not group.formulas and not group.obligations and group.passes_after is None
    text = str(group)
    assert "absmax, product" in text and "to make it fuse" in text and group.reason.hint in text


def test_a_reduction_alone_is_nothing_to_fuse_and_is_not_shown_as_a_refusal() -> None:
    x = te.placeholder((4, 16), "float32", name="x")
    func = te.create_prim_func([x, *topk(x, 3, axis=1)]).with_attr("global_symbol", "main")
    explanation = tvm_cascade.explain(func)
    group = only_group(explanation)
    assert group.verdict is Verdict.NOTHING and group.reason.code == "single_reduction"
    assert str(explanation).splitlines()[0] == f"main: nothing to fuse: {', '.join(group.buffers)}"
    assert "refused" not in str(explanation) and "to make it fuse" not in str(explanation)
    assert json.loads(explanation.to_json())["groups"][0]["verdict"] == "nothing to fuse"
    html, refused = explanation._repr_html_(), tvm_cascade.explain(program("Q7"))._repr_html_()
    colour = re.search(r"color:(.+?)\">refused", refused)
    assert colour is not None and ">nothing to fuse<" in html and colour[1] not in html


def test_a_program_that_cannot_be_read_is_unknown_with_its_reason() -> None:
    x = te.placeholder((4, 16), "float32", name="x")
    func = te.create_prim_func([x, topi.sort(x, axis=1)]).with_attr("global_symbol", "main")
    explanation = tvm_cascade.explain(func)
    group = only_group(explanation)
    assert group.verdict is Verdict.UNKNOWN and group.reason.code == "extern" and group.buffers == ()
    assert "sort" in str(explanation) and not explanation.fused
    assert explanation.functions == (FunctionReport("main", "unchanged", "extern"),)


def test_a_declined_group_shows_its_fold_and_how_to_force_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = Estimate(3, 1, 4096, 0, ns_before=1e5, ns_after=5e5)
    monkeypatch.setattr(fuse_function, "estimate", lambda *_: slower)
    func = program("softmax_stats")
    group = only_group(tvm_cascade.explain(func, force=False))
    assert group.verdict is Verdict.DECLINED and group.formulas
    assert (group.passes_before, group.passes_after, group.bytes_before, group.bytes_after) == (3, 1, 4096, 0)
    assert "force=True" in str(group) and "500.0 us" in str(group)
    assert only_group(tvm_cascade.explain(func, force=True)).verdict is Verdict.FUSED


def test_of_a_function_that_is_fused_already_the_fold_that_it_carries_is_shown(attention: Explanation) -> None:
    fused = tvm.s_tir.transform.FuseCascadedReductions()(tvm.IRModule({"main": program("attention")}))
    explanation = tvm_cascade.explain(fused)
    group, before = only_group(explanation), only_group(attention)
    assert group.verdict is Verdict.FUSED and group.buffers == before.buffers
    unread = ("finish", "row_max")  # a result that nobody reads once the others are fused with it
    sides = [[(f.section, f.left) for f in one.formulas] for one in (group, before)]
    assert sides[0] == [side for side in sides[1] if side != unread]
    assert all(formula.right for formula in group.formulas)
    assert explanation.functions[0].status == "already fused"


def test_every_function_of_a_module_is_listed_and_what_is_no_prim_func_is_skipped() -> None:
    external = relax.ExternFunc("somewhere.else")
    mod = tvm.IRModule({"stats": program("softmax_stats"), "plain": no_reduction(), "elsewhere": external})
    explanation = tvm_cascade.explain(mod)
    assert {f.name: f.status for f in explanation.functions} == {
        "stats": "fused",
        "plain": "unchanged",
        "elsewhere": "skipped",
    }
    assert {group.function for group in explanation.groups} == {"stats"}
    assert all(f"{name}: " in str(explanation) for name in ("stats", "plain", "elsewhere"))


def model() -> tvm.IRModule:
    """The entropy of the shares of a normalised row, in Relax."""
    x, builder = relax.Var("x", relax.TensorType((4, 96), "float32")), relax.BlockBuilder()
    w = relax.Var("w", relax.TensorType((96,), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            shares = builder.emit(relax.op.nn.log_softmax(relax.op.nn.rms_norm(x, w, axes=[-1]), axis=-1))
            entropy = relax.op.sum(relax.op.multiply(relax.op.exp(shares), shares), axis=-1)
            out = builder.emit_output(relax.op.negative(entropy))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("target", [{"kind": "llvm", "num-cores": 2}, {"kind": "cuda", "arch": "sm_90a"}])
def test_of_relax_what_the_pipeline_merges_is_explained_as_the_pipeline_reports_it(target: dict[str, Any]) -> None:
    mod = model()
    before = mod.script()
    explanation = tvm_cascade.explain(mod, target, force=True)
    pipeline = tvm_cascade.relax.get_pipeline(target, force=True)
    pipeline(mod)
    assert explanation.groups == pipeline.report.groups and explanation.apart == pipeline.report.apart
    assert [(f.name, f.status, f.lowering) for f in explanation.functions] == [
        (f.name, f.status, f.lowering) for f in pipeline.report.functions
    ]
    (cascade,) = [f for f in explanation.functions if f.status == "fused"]
    assert "log_softmax" in cascade.name and "main" not in {f.name for f in explanation.functions}
    (norm, *_), why = explanation.apart[0].operators, explanation.apart[0].why
    page = explanation.to_html("a model")
    assert norm == "rms_norm" and f"{explanation.apart[0]}" in str(explanation)
    assert (
        f"{explanation.apart[0].heading}" in page
        and why[:30] in page
        and cascade.lowering.replace("`", "") in re.sub("<[^>]*>", "", page)
    )
    assert mod.script() == before


CPU = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}


def test_the_schedule_of_a_cpu_is_named_with_how_it_is_cut() -> None:
    stats = workloads.get("softmax_stats").with_shape(rows=64, length=4096).build()
    options = {"tile": 128, "lanes": 16, "segments": 2}
    (told,) = tvm_cascade.explain(stats, CPU, **options).functions
    assert told.status == "fused" and told.design == "the model's estimates"
    cut = "the fused loop: tiles of 128 positions, 16 lanes, 2 segments, 1 row a task"
    assert told.lowering == f"an S-TIR schedule: {cut}"
    assert tvm_cascade.compile(stats, CPU, **options).report.functions == (told,)
    attention = workloads.get("attention").cpu.build()
    (told,) = tvm_cascade.explain(attention, CPU, tile=32).functions
    assert "tiles of 32 positions, 1 lane, 1 segment, 32 rows a task, 32 of them side by side" in told.lowering


def test_of_what_is_not_fused_the_rule_of_each_nest_is_named() -> None:
    x, w = te.placeholder((64, 256), name="x"), te.placeholder((256, 128), name="w")
    k, column = te.reduce_axis((0, 256), "k"), te.reduce_axis((0, 128), "column")
    product = te.compute((64, 128), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
    length = te.compute((64,), lambda i: te.sum(product[i, column] * product[i, column], axis=column), name="length")
    twice = te.compute((64, 128), lambda i, j: product[i, j] * 2.0 + length[i], name="twice")
    (told,) = tvm_cascade.explain(te.create_prim_func([x, w, twice]), CPU).functions
    assert told.status == "unchanged" and not told.design
    rules = "product: a product in register tiles; length: rows in 64 lanes; twice: vectors of 64 along the output"
    assert told.lowering == f"an S-TIR schedule: {rules}"


def test_elements_that_are_more_than_a_buffer_are_told_and_so_are_products_inside() -> None:
    told = only_group(tvm_cascade.explain(program("rmsnorm_gemm"), force=True))
    elements = {formula.left: formula.right for formula in told.formulas if formula.section == "element"}
    assert elements == {"x_1": "x[token, k] * x[token, k]", "x_2": "x[token, k] * gain[k] * weight[k, column]"}
    assert not told.inside
    attention = only_group(tvm_cascade.explain(program("attention"), force=True))
    assert attention.inside == ("scores",) and "computed inside" in str(attention)
    assert not [formula for formula in attention.formulas if formula.section == "element"]


def test_an_empty_module_has_no_groups() -> None:
    explanation = tvm_cascade.explain(tvm.IRModule({}))
    assert explanation.groups == () and explanation.functions == () and str(explanation) == "no functions"


@pytest.mark.parametrize("value", [None, "attention", 3, [], tvm.target.Target("llvm")])
def test_what_is_no_program_is_an_input_error(value: Any) -> None:
    with pytest.raises(InputError, match="IRModule or a tirx"):
        tvm_cascade.explain(value)


def test_an_unknown_option_is_an_option_error() -> None:
    with pytest.raises(OptionError, match="tiles"):
        tvm_cascade.explain(no_reduction(), tiles=3)


@pytest.mark.parametrize("name", ["attention", "Q7", "variance"])
def test_the_module_is_not_changed(name: str) -> None:
    mod = tvm.IRModule({"main": program(name)})
    text, copy = mod.script(), tvm.ir.load_json(tvm.ir.save_json(mod))
    tvm_cascade.explain(mod)
    assert mod.script() == text and tvm_ffi.structural_equal(mod, copy)


def test_the_keys_of_the_json_form_are_stable(attention: Explanation) -> None:
    told = json.loads(attention.to_json())
    assert list(told) == ["schema", "functions", "groups", "apart"] and told["schema"] == 1
    plain = {"lowering": "", "tile_program": "", "plan": [], "whole": "", "design": "", "buckets": []}
    assert told["functions"] == [{"name": "main", "status": "fused", "note": "by this pass", **plain}]
    (group,) = told["groups"]
    assert list(group) == GROUP_KEYS
    assert list(group["reason"]) == ["code", "law", "detail", "hint", "counterexample"]
    assert group["verdict"] == "fused" and group["buffers"] == ["row_max", "row_sum", "out"]
    assert all(list(formula) == ["section", "left", "right"] for formula in group["formulas"])


def test_the_text_shows_verdict_formulas_and_passes(attention: Explanation) -> None:
    text, group = str(attention), only_group(attention)
    assert text.splitlines()[0] == "main: fused: row_max, row_sum, out"
    assert all(str(formula) in text for formula in group.formulas)
    assert f"{group.passes_before} before, {group.passes_after} after" in text


def test_html_escapes_whatever_comes_from_the_user() -> None:
    hostile = "<script>alert('&')</script>"
    group = GroupReport(
        hostile,
        Reason("extern", hostile),
        (hostile,),
        (Formula(hostile, hostile, hostile),),
        references={hostile: hostile},
    )
    explanation = Explanation((group,), (FunctionReport(hostile + "2", "skipped", hostile),))
    html = explanation._repr_html_()
    assert "<script" not in html and html.count("&lt;script&gt;") == 10


def test_html_tells_what_the_text_tells(attention: Explanation) -> None:
    html = attention._repr_html_()
    assert "row_sum" in html and ">fused<" in html and "exp(" in html and "passes over the axis" in html


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (8 << 20, "8.0 MiB"), (3 << 40, "3072.0 GiB")]
)
def test_sizes_are_given_in_binary_units(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_in_a_terminal_sentences_keep_to_their_column() -> None:
    """And nothing but breaks and colours is added."""
    explanation = tvm_cascade.explain(workloads.get("softmax").cpu.build(), target="sm_90a")
    terminal = Console(file=io.StringIO(), width=60, force_terminal=True, color_system="standard")
    terminal.print(explanation)
    coloured = terminal.file.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert "\x1b[1;32mmain: fused" in coloured and "".join(plain.split()) == "".join(str(explanation).split())
    lines = plain.splitlines()
    assert max(map(len, lines)) <= 60
    (start,) = (k for k, line in enumerate(lines) if line.startswith("  certificate"))
    column = lines[start].index("bounded")
    assert lines[start + 1][:column].isspace() and not lines[start + 1][column].isspace()
