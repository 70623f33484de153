"""The HTML of an explanation: pictures, formulas, bars and links, all of them in one document that loads nothing."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

import tvm_cascade
from benchmarks.check.definition import Definition
from tvm_cascade.report.explanation import Explanation, fragment, picture
from tvm_cascade.report.group import FunctionReport, GroupReport, PassReport, StepReport
from tvm_cascade.report.levels import LevelReport

SVG = "{http://www.w3.org/2000/svg}"
PROGRAMS = {
    "fused": "total = sum x; mean = total/N; spread = sum (x - mean)**2; out = (x - mean)/sqrt(spread/N + 0.1)",
    "selected": "top = max x; mass = sum exp(x - top); best = top2 exp(x - top)/mass -> best, best_at",
    "refused": "total = sum x; out = sum tanh(x - total)",
    "alone": "out = sum x",
}


def explained(name: str) -> Explanation:
    return tvm_cascade.explain(Definition(name, PROGRAMS[name]).build(), force=True)


def tree_of(one: Explanation) -> ElementTree.Element:
    """The page as XML, which no HTML parser had to mend."""
    return ElementTree.fromstring(one.to_html("a < b"))


def texts(tree: ElementTree.Element, tag: str) -> list[str]:
    return ["".join(found.itertext()) for found in tree.iter(tag)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_page_is_well_formed_and_loads_nothing(name: str) -> None:
    tree = tree_of(explained(name))
    loading = [(key, value) for node in tree.iter() for key, value in node.attrib.items() if key in ("src", "href")]
    assert all(key == "href" and value.startswith("#") for key, value in loading)
    assert not {node.tag for node in tree.iter()} & {"script", "link", "iframe", "img"}
    assert "url(" not in "".join(node.get("style", "") for node in tree.iter())


def test_a_page_is_as_wide_and_as_dark_as_its_reader_has_it() -> None:
    """What is wider than the screen scrolls by itself; boxes and names of a picture lie on a ground of its own."""
    tree = tree_of(explained("fused"))
    above = {child: node for node in tree.iter() for child in node}
    wide = [node for tag in ("table", f"{SVG}svg") for node in tree.iter(tag)]
    assert len(wide) >= 2 and all("overflow-x:auto" in above[node].get("style", "") for node in wide)
    (viewport,) = (node for node in tree.iter("meta") if node.get("name") == "viewport")
    assert viewport.get("content") == "width=device-width" and "color-scheme:light dark" in texts(tree, "style")[0]
    (drawn,) = tree.iter(f"{SVG}svg")
    ground = drawn.find(f"{SVG}rect")
    assert ground is not None and all(ground.get(side) == drawn.get(side) for side in ("width", "height"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_reason_leads_to_its_law_and_remedy(name: str) -> None:
    one = explained(name)
    tree, (group,) = tree_of(one), one.groups
    (link,) = (node for node in tree.iter("a") if node.text is None)
    (section,) = (node for node in tree.iter() if f"#{node.get('id')}" == link.get("href"))
    told = "".join(section.itertext())
    assert group.reason.law in told and group.reason.hint in told and group.reason.code in told


@pytest.mark.parametrize("name", ["fused", "selected"])
def test_every_formula_is_typeset(name: str) -> None:
    one = explained(name)
    (group,) = one.groups
    of_fold = [formula for formula in group.formulas if formula.section != "element"]  # those are the program's text
    assert len(list(tree_of(one).iter("math"))) == len(of_fold) > 4


def test_what_is_behind_a_name_is_a_subscript_and_cases_stand_beside_a_brace() -> None:
    one = tvm_cascade.explain(Definition("m", "top = max x; out = sum y if x == top else 0").build(), force=True)
    tree = tree_of(one)
    below = [["".join(part.itertext()) for part in node] for node in tree.iter("msub")]
    assert {("top", "0"), ("top", "0, 2"), ("c", "top"), ("c'", "top")} <= set(map(tuple, below))
    lines = texts(tree, "math")
    assert any(line.startswith("out0={") and " if " in line and line.endswith(" otherwise") for line in lines)


def test_a_sum_is_multiplied_by_the_exponential_of_a_step() -> None:
    """Not divided by that of its negative."""
    program = "top = max x; mass = sum exp(x - top)"
    tree = tree_of(tvm_cascade.explain(Definition("m", program).build(), force=True))
    powers = ["".join(node.itertext()) for node in tree.iter("msup")]
    assert "e-Δctop, 1" in powers and "e-Δctop, 2" in powers and not list(tree.iter("mfrac"))


def test_a_kernel_has_its_tile_program_and_a_plan_the_reason_of_each_kind() -> None:
    step = StepReport("stream", "two < three", ("q",), ("o",), 1e6, 0.0, 1.0)
    whole = "no `stream` (folds) or `row` (rows of memory): o is outside; no `folded` (products): nothing feeds it"
    one = FunctionReport("main", "fused", "-", "two < three", "score     q @ k\nmask      r = 0", (step,), whole)
    rows = [texts(row, "td") for row in ElementTree.fromstring(fragment((), (one,))).iter("tr")]
    assert ["stream", "folds", "o is outside"] in rows and ["row", "rows of memory", "o is outside"] in rows
    assert (
        ["folded", "products", "nothing feeds it"] in rows and ["score", "q @ k"] in rows and ["mask", "r = 0"] in rows
    )
    assert sum("two < three" in row for row in rows) == 1  # what it is lowered to is its only kernel


def test_the_picture_has_every_pass_and_the_loop_with_its_state() -> None:
    one = explained("fused")
    (group,) = one.groups
    assert [(p.writes, p.reducer, p.reads, p.waits_for, p.after) for p in group.passes] == [
        (("total",), "sum", ("x",), (), False),
        (("spread",), "sum", ("x",), (0,), False),
        (("out",), "", ("x",), (0, 1), True),
    ]
    (drawn,) = tree_of(one).iter(f"{SVG}svg")
    told = texts(drawn, f"{SVG}text")
    assert told[1:4] == ["total = sum over x", "spread = sum over x", "out = map of x"]
    assert told[5] == "one loop over x" and told[6] == f"state {', '.join(group.state)}" and told[7] == told[3]
    assert drawn.get("aria-label") == "As written: 3 passes over the axis; fused: 2"
    assert (group.passes_before, group.passes_after) == (3, 2)


def test_what_is_refused_is_drawn_as_it_is_written() -> None:
    (drawn,) = tree_of(explained("refused")).iter(f"{SVG}svg")
    told = texts(drawn, f"{SVG}text")
    assert told == ["as written", "total = sum over x", "out = sum over x"]
    assert len(list(drawn.iter(f"{SVG}path"))) == 2  # one arrow: its line and its head


def test_boxes_stay_in_the_picture_and_long_lists_are_broken() -> None:
    passes = [PassReport((f"a_rather_long_name_{k}",), "sum", ("x" * 50,), tuple(range(k)), k > 6) for k in range(9)]
    drawn = ElementTree.fromstring(picture(passes, [f"component_{k}" for k in range(30)]))
    width, height = float(drawn.get("width", 0)), float(drawn.get("height", 0))
    for box in drawn.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.get("width", 0)) <= width
        assert float(box.get("y", 0)) + float(box.get("height", 0)) <= height
    assert "".join(texts(drawn, f"{SVG}text")).count("component_") == 30
    assert max(map(len, texts(drawn, f"{SVG}text"))) <= 45


def test_what_fusing_saves_is_shown_as_bars_of_one_scale() -> None:
    group = GroupReport(
        "main", explained("fused").groups[0].reason, us_before=8.0, us_after=2.0, bytes_before=4096, bytes_after=0
    )
    shown = fragment((group,), ())
    widths = re.findall(r'title="([a-z ,]+)"[^>]*width:(\d+)px', shown)
    assert widths == [
        ("intermediates along it, unfused", "120"),
        ("intermediates along it, fused", "0"),
        ("estimated time, unfused", "120"),
        ("estimated time, fused", "30"),
    ]
    assert shown.count("4.0 KiB") == 1 and shown.count("2.0 us") == 1


def test_bars_are_as_long_as_their_share_of_the_longest() -> None:
    steps = (
        StepReport("row", "a block a row", ("x",), ("m",), 4e6, 0.0, 2.0),
        StepReport("product", "tiles of 128 < 256", ("m", "w"), ("out",), 1e6, 5e9, 8.0),
    )
    shown = fragment((), (FunctionReport("main", "fused", "a plan", lowering="two kernels", plan=steps),))
    widths = re.findall(r'title="([a-z ]+)"[^>]*width:(\d+)px', shown)
    assert widths == [("bytes", "120"), ("estimated time", "30"), ("bytes", "30"), ("estimated time", "120")]
    assert "4.0 MB, 2.0 us" in shown and "tiles of 128 &lt; 256" in shown


def test_a_kernel_that_moves_nothing_has_no_bar_of_bytes() -> None:
    step = StepReport("", "a schedule", (), ("out",), 0.0, 0.0, 1.0)
    shown = fragment((), (FunctionReport("main", "unchanged", "-", lowering="a schedule", plan=(step,)),))
    assert 'title="bytes"' not in shown and 'title="estimated time"' in shown


def test_each_level_of_the_memory_has_a_bar_of_the_plans_scale() -> None:
    levels = LevelReport("memory", 4e6, "B", 2.0), LevelReport("tensor cores", 5e9, "flop a multiprocessor", 4.0)
    step = StepReport("product", "tiles", ("x",), ("out",), 4e6, 5e9, 8.0, levels)
    shown = fragment((), (FunctionReport("main", "fused", "a plan", lowering="a kernel", plan=(step,)),))
    widths = re.findall(r'title="(memory|tensor cores)"[^>]*width:(\d+)px', shown)
    assert widths == [("memory", "30"), ("tensor cores", "60")]
    assert "4.0 MB, 2.0 us" in shown and "5.0 Gflop a multiprocessor, 4.0 us" in shown
