"""The releases of apache-tvm-ffi that are accepted run what others end in a segmentation fault."""

from __future__ import annotations

import pytest

from .ffi_programs import PROGRAMS, returned


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_installed_release_runs_what_newer_ones_break(name: str) -> None:
    assert returned(name) == 0
