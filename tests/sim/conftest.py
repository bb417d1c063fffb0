"""A simulation silences the log of the whole process; the tests after it want to hear it again."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _as_loud_as_before() -> Iterator[None]:
    log = logging.getLogger("lakelog")
    level = log.level
    yield
    log.setLevel(level)
