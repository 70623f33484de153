"""The HTML of a plan: a row for each kernel, with its bytes and its time as bars beside those of the others."""

from __future__ import annotations

import re

from tvm_cascade.report.group import FunctionReport
from tvm_cascade.report.html import fragment
from tvm_cascade.report.steps import StepReport


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
