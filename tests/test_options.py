"""FuseOptions: defaults, domains, and presets from the environment."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from tvm_cascade.errors import CascadeError, OptionError
from tvm_cascade.options import FuseOptions, meaning_of


@pytest.mark.parametrize("option", dataclasses.fields(FuseOptions), ids=lambda option: option.name)
def test_an_option_says_what_it_means_and_what_it_takes(option: dataclasses.Field[Any]) -> None:
    assert option.metadata["meaning"]
    with pytest.raises(OptionError) as raised:
        FuseOptions(**{option.name: object()})
    assert raised.value.where == f"option `{option.name}`"
    assert raised.value.hint == option.metadata["remedy"]
    assert f"\n{option.name} : {meaning_of(option)}" in str(inspect.getdoc(FuseOptions))


def test_what_to_do_about_a_count_differs_from_count_to_count() -> None:
    hints = [field.metadata["remedy"] for field in dataclasses.fields(FuseOptions) if field.metadata["remedy"]]
    assert len(hints) == len(set(hints)) == 6


def test_options_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FuseOptions().tile = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", ["tile", "segments", "lanes", "narrow_positions"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, 2**31])
def test_a_count_must_be_a_positive_integer(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"option `{name}`"):
        FuseOptions(**{name: value})


def test_an_axis_is_cut_into_no_more_parts_than_a_grid_has_blocks_along_one() -> None:
    assert FuseOptions(segments=65535).segments == 65535
    with pytest.raises(OptionError, match="a positive integer, at most 65535") as raised:
        FuseOptions(segments=1_000_000_000)
    assert raised.value.found == "1000000000"


def test_only_segments_may_not_be_left_open() -> None:
    assert FuseOptions(tile=None, lanes=None, narrow_positions=None).tile is None
    with pytest.raises(OptionError, match="option `segments`"):
        FuseOptions(segments=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["vector_math", "force", "schedule", "tensor_cores", "row_kernels", "narrow_sums", "tf32"]
)
@pytest.mark.parametrize("value", [1, "true", None])
def test_a_switch_must_be_a_bool(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"option `{name}`"):
        FuseOptions(**{name: value})


@pytest.mark.parametrize("value", ["float16", ("int8",), ("float16", "float32")])
def test_rescalable_casts_are_a_tuple_of_low_precision_floats(value: Any) -> None:
    with pytest.raises(OptionError, match="rescalable_casts"):
        FuseOptions(rescalable_casts=value)


def test_float8_casts_are_rescalable_only_when_the_user_says_so() -> None:
    assert not any(dtype.startswith("float8") for dtype in FuseOptions().rescalable_casts)
    assert FuseOptions(rescalable_casts=("float8_e4m3fn",)).rescalable_casts == ("float8_e4m3fn",)


def test_an_empty_environment_gives_the_defaults() -> None:
    assert FuseOptions.from_environment() == FuseOptions()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("tile", "64", 64),
        ("segments", "4", 4),
        ("lanes", "16", 16),
        ("rescalable_casts", "float16, float8_e5m2", ("float16", "float8_e5m2")),
        ("vector_math", "off", False),
        ("force", "TRUE", True),
        ("schedule", "0", False),
        ("narrow_sums", "1", True),
        ("narrow_positions", "128", 128),
        ("tf32", "on", True),
    ],
)
def test_every_option_can_be_preset(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object) -> None:
    monkeypatch.setenv(f"TVM_CASCADE_{name.upper()}", text)
    assert FuseOptions.from_environment() == dataclasses.replace(FuseOptions(), **{name: value})


def test_an_argument_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CASCADE_TILE", "64")
    monkeypatch.setenv("TVM_CASCADE_SEGMENTS", "2")
    assert FuseOptions.from_environment(tile=32) == FuseOptions(tile=32, segments=2)


@pytest.mark.parametrize(("name", "text"), [("TILE", "many"), ("FORCE", "perhaps")])
def test_text_that_is_no_value_names_the_variable(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(f"TVM_CASCADE_{name}", text)
    with pytest.raises(OptionError, match=f"TVM_CASCADE_{name}") as raised:
        FuseOptions.from_environment()
    assert raised.value.found == repr(text)


def test_a_preset_outside_its_domain_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CASCADE_TILE", "0")
    with pytest.raises(OptionError, match="option `tile`"):
        FuseOptions.from_environment()


def test_an_unknown_keyword_is_named() -> None:
    with pytest.raises(OptionError, match="tiles") as raised:
        FuseOptions.from_environment(tiles=8)
    assert isinstance(raised.value, CascadeError) and isinstance(raised.value, ValueError)
