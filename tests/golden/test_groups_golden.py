"""What a real Kafka 4.3.1 answered to the group scripts, and what we answer to the same scripts.

Each script of `groups/` is played against our broker through its port and compared step by step
with the recording, both brought to one form (`groups/normal.py`). What is left must be equal,
except for the rows of `DIFFERENT`, each with its reason and with what we answer instead.
`python -m tests.golden.record_groups` records again, or tells all differences of a running broker.
"""

import asyncio
from collections.abc import Iterator

import pytest
from tests.golden.groups import scripts
from tests.golden.groups.different import DIFFERENT, EITHER, NOT_PLAYED
from tests.golden.groups.embedded import embedded
from tests.golden.groups.normal import Normal, differences
from tests.golden.groups.recording import Difference, Recorded, compare, load, recorded
from tests.golden.groups.script import PROFILES, SCRIPTS, Played, Script, played
from tests.golden.groups.stage import Step

from lakelog.server.options import Address
from lakelog.wire.apis import APIS

RECORDED = {profile: load(profile) for profile in PROFILES}
SCRIPTS_MIN = 45


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, Address]]:
    """A broker of ours for each profile."""
    brokers = {profile: embedded(profile).start() for profile in PROFILES}
    yield {profile: broker.address for profile, broker in brokers.items()}
    for broker in brokers.values():
        broker.stop()


def unexpected(found: list[Difference]) -> list[Difference]:
    """The differences that no row explains, or that are not what the row says."""
    return [
        each
        for each in found
        if (each.script, each.step) not in DIFFERENT
        or DIFFERENT[each.script, each.step][1]
        != {path: ours for path, (_, ours) in each.values.items()}
    ]


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=lambda script: script.name)
def test_a_script_goes_as_it_went_with_kafka_or_differs_for_a_reason(
    script: Script, addresses: dict[str, Address]
) -> None:
    if script.name in NOT_PLAYED:
        pytest.skip(NOT_PLAYED[script.name])
    address = addresses[script.profile]
    now = asyncio.run(played(script, address.host, address.port))
    found = compare(script.name, RECORDED[script.profile][script.name], now)
    explained = {
        step
        for (name, step), (reason, _) in DIFFERENT.items()
        if name == script.name and reason not in EITHER
    }
    assert not [str(each) for each in unexpected(found)]
    assert explained <= {each.step for each in found}, "a difference is gone: remove its row"


def test_every_script_is_recorded_and_every_recording_has_a_script() -> None:
    for profile, recordings in RECORDED.items():
        assert set(recordings) == {one.name for one in scripts.of(profile)}
    assert len(SCRIPTS) >= SCRIPTS_MIN


def test_every_difference_is_about_a_step_that_is_recorded() -> None:
    steps = {
        (row.script, row.step)
        for recordings in RECORDED.values()
        for rows in recordings.values()
        for row in rows
    }
    assert set(DIFFERENT) <= steps


def test_a_recording_is_read_as_it_was_written() -> None:
    for recordings in RECORDED.values():
        for name, rows in recordings.items():
            assert [row.step for row in rows] == list(range(1, len(rows) + 1)), name
            for row in rows:
                row.asked()
                assert row.answered() is None or row.response


def test_ids_are_named_in_the_order_in_which_they_are_met() -> None:
    rows = RECORDED["prompt"]["a-member-gets-an-id-and-joins-with-it"]
    view = Normal(rows[0].script)
    view.request(rows[0].asked())
    assert view.response(rows[0].key, rows[0].answered())["member_id"] == "client-a-<1>"
    assert view.request(rows[2].asked())["member_id"] == "client-a-<1>"


def test_differences_are_told_by_their_path() -> None:
    theirs = {"code": 0, "members": [{"id": "a"}, {"id": "b"}], "topics": [1]}
    ours = {"code": 25, "members": [{"id": "a"}, {"id": "c"}], "topics": []}
    assert differences(theirs, theirs) == {}
    assert differences(theirs, ours) == {
        "code": (0, 25),
        "members[1].id": ("b", "c"),
        "topics": ([1], []),
    }


def as_played(rows: list[Recorded]) -> Played:
    """A recording as if it had just been played."""
    return Played(
        [
            Step(
                row.step,
                row.on,
                APIS[row.key],
                row.version,
                row.asked(),
                row.request,
                row.answered(),
                row.response,
            )
            for row in rows
        ]
    )


def test_a_recording_does_not_differ_from_itself_but_from_one_with_another_answer() -> None:
    for recordings in RECORDED.values():
        for name, rows in recordings.items():
            now = as_played(rows)
            assert compare(name, rows, now) == []
            assert recorded(name, now.steps) == rows
    rows = RECORDED["prompt"]["heartbeats-in-every-state"]
    now = as_played(rows)
    now.steps[1].response = now.steps[0].response
    (found,) = compare("heartbeats-in-every-state", rows, now)
    assert (found.step, found.values) == (2, {"error_code": (25, 24)})
