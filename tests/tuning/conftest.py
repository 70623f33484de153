"""What sessions on this machine's CPU build and run with, in workers that are kept where a test asks for that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tvm_cascade.tuning.building import LocalBuilder
from tvm_cascade.tuning.running import LocalRunner


@pytest.fixture
def builder() -> Iterator[LocalBuilder]:
    with contextlib.closing(LocalBuilder(batch=1)) as made:
        yield made


@pytest.fixture
def runner() -> Iterator[LocalRunner]:
    with contextlib.closing(LocalRunner()) as made:
        yield made
