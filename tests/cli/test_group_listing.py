"""The answers of several brokers, joined."""

from lakelog.cli.cluster import Node
from lakelog.cli.group_listing import Listing, joined
from lakelog.server.options import Address
from lakelog.wire.messages.list_groups import ListedGroup

ONE = Node(1, Address("a", 9092))
TWO = Node(2, Address("b", 9092))


def test_a_group_that_two_brokers_tell_is_listed_once() -> None:
    rows = joined(
        [
            Listing(ONE, (ListedGroup("z", "consumer", "Stable", "classic"), ListedGroup("m"))),
            Listing(TWO, (ListedGroup("a", "", "Empty", "consumer"), ListedGroup("z"))),
            Listing(Node(3, Address("c", 1)), failure="nobody answers"),
        ]
    )
    assert [(row["group"], row["coordinator"]) for row in rows] == [("a", 2), ("m", 1), ("z", 1)]
    assert rows[2] == {
        "group": "z",
        "state": "Stable",
        "type": "classic",
        "protocol": "consumer",
        "coordinator": 1,
        "address": "a:9092",
    }


def test_what_an_old_broker_does_not_tell_is_not_known() -> None:
    (row,) = joined([Listing(ONE, (ListedGroup("g"),))])
    assert (row["state"], row["type"], row["protocol"]) == (None, None, None)
