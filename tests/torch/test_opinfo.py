"""PyTorch's own samples of a few operators, as `tests/opinfo.py` runs all; and how it tells wrong from right."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch.testing imports it")

from tvm import relax  # noqa: E402

from tvm_cascade.torch.converters import CONVERTERS  # noqa: E402

from .. import opinfo  # noqa: E402

OPERATORS = (
    "amax",
    "argmin",
    "nanmean",
    "std_mean",
    "logaddexp",
    "cumsum",
    "cat",
    "as_strided",
    "linalg_vector_norm",
    "nn_functional_soft_margin_loss",
    "nn_functional_upsample_nearest",
    "nn_functional_avg_pool2d",
    "nn_functional_layer_norm",
    "nn_functional_batch_norm",
    "nn_functional_cross_entropy",
)


def chosen(*names: str) -> list[Any]:
    return [one for one in opinfo.op_db if one.formatted_name in names]


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@torch.no_grad()
def test_samples_of_operators_are_right(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    tallies = dict(opinfo.campaign(chosen(*OPERATORS), dtype, most=2, batch=4))
    assert set(tallies) == set(OPERATORS)
    assert not capsys.readouterr().out
    for name, tally in tallies.items():
        assert set(tally.counts) <= {opinfo.RIGHT, opinfo.ALONE} and tally.counts[opinfo.RIGHT], name


@torch.no_grad()
def test_the_campaign_tells_how_samples_came_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(site: Any) -> Any:
        return site.emit(relax.op.sin(site["self"]))

    monkeypatch.setattr("tvm_cascade.torch.importer.compared", lambda *_: None)
    monkeypatch.setitem(CONVERTERS, "expm1.default", wrong)  # type: ignore[arg-type]
    assert opinfo.main(["expm1", "nextafter", "--dtype", "float32", "--samples", "1"]) == 1
    told = capsys.readouterr().out
    counts = {line.split()[0]: line.split()[2:] for line in told.splitlines() if line.count("float32 ") == 1}
    assert counts["expm1"] == ["0", "1", "0", "0", "0"] and counts["nextafter"] == ["0", "0", "1", "0", "0"]
    assert (
        "wrong: expm1 sample 0 of torch.float32" in told
        and "nextafter: operators that can be converted: aten.nextafter" in told
    )
