"""The tables of docs/compatibility.md against what the broker serves."""

import re

from tests.docs.pages import DOCS, rows, section

from lakelog.broker.api import ENDPOINTS
from lakelog.topics.broker_configs import DEFINITIONS as BROKER_DEFINITIONS
from lakelog.topics.broker_configs import READ_ONLY, TOPIC_NAMES
from lakelog.topics.configs import DEFINITIONS
from lakelog.wire.apis import APIS

PAGE = DOCS / "compatibility.md"


def versions(found: range) -> str:
    return f"{found[0]}" if len(found) == 1 else f"{found[0]}-{found[-1]}"


def test_the_table_of_apis_is_the_one_that_is_served() -> None:
    written = [tuple(row[:3]) for row in rows(section(PAGE, "## APIs"))]
    served = [(str(int(key)), APIS[key].name, versions(APIS[key].versions)) for key in ENDPOINTS]
    assert written == sorted(served, key=lambda row: int(row[0]))


def test_every_topic_config_is_named_once_and_no_other() -> None:
    text = "\n".join(section(PAGE, "## Topic configs"))
    named = re.findall(r"`([a-z]+(?:\.[a-z0-9]+)*)`", text)
    configs = [name for name in named if "." in name or name in DEFINITIONS]
    assert sorted(configs) == sorted(DEFINITIONS)


def test_every_broker_config_that_is_not_a_topics_is_named_once() -> None:
    text = "\n".join(section(DOCS / "administration.md", "## Broker configs"))
    named = re.findall(r"`([a-z]+(?:\.[a-z0-9]+)+)`", text)
    own = sorted(name for name in BROKER_DEFINITIONS if name not in TOPIC_NAMES)
    assert sorted(name for name in named if name in own) == own
    assert all(name in BROKER_DEFINITIONS or name in READ_ONLY for name in named)
