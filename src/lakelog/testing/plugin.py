"""The pytest plugin: a `lakelog_broker` fixture for your own suite. Installed with the package.

    def test_orders_arrive(lakelog_broker):
        producer = Producer({"bootstrap.servers": lakelog_broker.bootstrap})

Each test gets a broker of its own, in memory, in about a tenth of a second. To share one among
more tests set its scope in your pytest configuration: `lakelog_scope = "session"` (or "module",
"class", "package"); then give your topics names of their own.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

import pytest

if TYPE_CHECKING:
    from _pytest.scope import ScopeName

    from lakelog.testing.broker import EmbeddedBroker

SCOPES: Final = ("function", "class", "module", "package", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `lakelog_scope` to the settings."""
    parser.addini("lakelog_scope", "How long a lakelog_broker lives.", default="function")


def _scope(fixture_name: str, config: pytest.Config) -> "ScopeName":
    scope = str(config.getini("lakelog_scope"))
    if scope not in SCOPES:
        raise pytest.UsageError(f"lakelog_scope of {fixture_name}: use one of {', '.join(SCOPES)}")
    return cast("ScopeName", scope)


@pytest.fixture(scope=_scope)
def lakelog_broker() -> "Iterator[EmbeddedBroker]":
    """A running broker with its data in memory: `lakelog_broker.bootstrap` is its address."""
    # Here, because every pytest run of every project loads this plugin.
    from lakelog.testing.broker import EmbeddedBroker  # noqa: PLC0415 - see above

    with EmbeddedBroker() as broker:
        yield broker
