"""Where our broker answers otherwise than Kafka on purpose, and what it answers instead."""

from collections.abc import Mapping
from typing import Final

ISSUED: Final = "a member id that was issued and not used is in the memory of its broker only (K3)"
ASSIGNMENT: Final = "what a member had in the generation before is not shown as this one's"
CLIENT: Final = "after a static member was replaced, the client that is there now is shown"
TWICE: Final = "a group that is named twice is described once"
EMPTY_TARGET: Final = "a group without members has no target to wait for: its epochs are equal (P4)"
EAGER: Final = "a target is made as soon as it is needed, not with the next heartbeat"
NOBODY: Final = "a member epoch without a member id is that of an unknown member; Kafka fails"
OWN_ID: Final = "a static member may join again under its own id, as a dynamic one may (row 92)"
SECOND_LOOK: Final = (
    "who takes over partitions that its target lacks lets go of them one beat later"
)
ECHO: Final = "a JoinGroup that is refused names the member id that was sent"

Values = Mapping[str, object]
"""Our value by the path to it in the answer."""

_READS_T: Final = bytes.fromhex("000100000001000174ffffffff00000000")
"""A consumer's subscription to topic t."""

_OTHER_WAY: Final = "a-static-consumer-comes-back-with-another-subscription"
_DEAD: Final[Values] = {
    "groups[0].error_code": 69,
    "groups[0].error_message": True,
    "groups[0].group_state": "Dead",
}


DIFFERENT: Final[dict[tuple[str, int], tuple[str, Values]]] = {
    ("a-member-gets-an-id-and-joins-with-it", 2): (ISSUED, _DEAD),
    ("joins-that-are-refused", 22): (ISSUED, _DEAD),
    ("an-issued-id-that-leaves-lets-a-rebalance-go-on", 9): (
        ISSUED,
        {
            "groups[0].group_state": "CompletingRebalance",
            "groups[0].members[0].member_assignment": b"",
        },
    ),
    ("an-issued-id-that-is-not-used", 5): (ISSUED, {"groups": []}),
    ("an-issued-id-that-is-not-used", 9): (ISSUED, _DEAD),
    ("an-issued-id-that-is-not-used", 11): (ISSUED, {"results[0].error_code": 69}),
    ("an-issued-id-that-is-not-used", 12): (
        ISSUED,
        {
            "error_code": 0,
            "generation_id": 1,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "leader": "client-c-<3>",
            "members": [
                {
                    "member_id": "client-c-<3>",
                    "group_instance_id": None,
                    "metadata": _READS_T,
                }
            ],
        },
    ),
    ("an-emptied-consumer-group-becomes-classic", 7): (
        ISSUED,
        {"groups[0].protocol_type": "consumer", "groups[0].group_type": "consumer"},
    ),
    ("an-emptied-consumer-group-becomes-classic", 8): (ISSUED, {"error_code": 25}),
    ("an-emptied-consumer-group-is-asked-as-classic", 11): (
        ISSUED,
        {"groups[0].protocol_type": "consumer", "groups[0].group_type": "consumer"},
    ),
    ("a-second-member-joins", 14): (ASSIGNMENT, {"groups[0].members[0].member_assignment": b""}),
    ("a-follower-joins-again-changed", 13): (
        ASSIGNMENT,
        {
            "groups[0].members[0].member_assignment": b"",
            "groups[0].members[1].member_assignment": b"",
        },
    ),
    ("a-static-member-is-not-dropped-from-a-rebalance", 8): (
        ASSIGNMENT,
        {
            "groups[0].members[0].member_assignment": b"",
            "groups[0].members[1].member_assignment": b"",
        },
    ),
    ("a-static-leader-is-replaced", 27): (CLIENT, {"groups[0].members[0].client_id": "client-b"}),
    ("a-static-follower-is-replaced", 13): (CLIENT, {"groups[0].members[1].client_id": "client-c"}),
    ("a-static-member-is-replaced-with-other-metadata", 10): (
        CLIENT,
        {"groups[0].members[1].client_id": "client-c"},
    ),
    ("a-static-member-is-replaced-with-other-metadata", 15): (
        CLIENT,
        {"groups[0].members[0].client_id": "client-b"},
    ),
    ("a-static-member-is-replaced-before-the-sync", 5): (
        CLIENT,
        {"groups[0].members[0].client_id": "client-b"},
    ),
    ("a-static-member-is-replaced-while-its-sync-waits", 10): (
        CLIENT,
        {"groups[0].members[1].client_id": "client-c"},
    ),
    ("a-static-member-is-replaced-while-its-join-waits", 12): (
        CLIENT,
        {
            "groups[0].members[0].client_id": "client-c",
            "groups[0].members[0].member_assignment": b"",
            "groups[0].members[1].member_assignment": b"",
        },
    ),
    ("groups-are-described-in-every-version", 31): (
        TWICE,
        {
            "groups": [
                {
                    "error_code": 0,
                    "error_message": False,
                    "group_id": "groups-are-described-in-every-version.stable",
                    "group_state": "Stable",
                    "protocol_type": "consumer",
                    "protocol_data": "range",
                    "members": [
                        {
                            "member_id": "client-a-<2>",
                            "group_instance_id": None,
                            "client_id": "client-a",
                            "client_host": "/127.0.0.1",
                            "member_metadata": _READS_T,
                            "member_assignment": b"for " + _READS_T,
                        }
                    ],
                    "authorized_operations": -2147483648,
                }
            ]
        },
    ),
    ("a-consumer-joins", 13): (EMPTY_TARGET, {"groups[0].assignment_epoch": 3}),
    ("a-member-leaves-and-its-partitions-go-on", 12): (
        EMPTY_TARGET,
        {"groups[0].assignment_epoch": 5},
    ),
    ("a-static-consumer-comes-back", 20): (EMPTY_TARGET, {"groups[0].assignment_epoch": 3}),
    ("an-administrator-removes-consumers", 7): (EMPTY_TARGET, {"groups[0].assignment_epoch": 5}),
    ("a-static-consumer-does-not-come-back", 5): (EMPTY_TARGET, {"groups[0].assignment_epoch": 3}),
    ("a-member-leaves-and-its-partitions-go-on", 6): (
        EAGER,
        {
            "groups[0].group_state": "Reconciling",
            "groups[0].assignment_epoch": 4,
            "groups[0].members[0].target_assignment.topic_partitions[0].partitions": [0, 1],
        },
    ),
    ("earlier-then-consumers", 20): (
        EAGER,
        {
            "groups[0].group_state": "Reconciling",
            "groups[0].assignment_epoch": 5,
            "groups[0].members[1].target_assignment.topic_partitions[0].partitions": [2, 3],
        },
    ),
    ("offsets-for-consumers", 20): (NOBODY, {"groups[0].error_code": 25}),
    ("a-static-consumer-comes-back-with-its-id", 6): (
        OWN_ID,
        {
            "error_code": 0,
            "error_message": False,
            "member_id": "one",
            "member_epoch": 2,
            "heartbeat_interval_ms": 5000,
            "assignment": {"topic_partitions": [{"topic_id": "<1>", "partitions": [0, 1]}]},
        },
    ),
    ("a-classic-member-at-a-live-consumer-group", 7): (ECHO, {"member_id": "one"}),
    ("a-classic-member-at-a-live-consumer-group", 8): (ECHO, {"member_id": "nobody"}),
    (_OTHER_WAY, 8): (
        SECOND_LOOK,
        {"member_epoch": 3, "assignment.topic_partitions": []},
    ),
    (_OTHER_WAY, 9): (
        SECOND_LOOK,
        {
            "groups[0].members[1].member_epoch": 3,
            "groups[0].members[1].assignment.topic_partitions[0].topic_id": "<1>",
            "groups[0].members[1].assignment.topic_partitions[0].topic_name": f"{_OTHER_WAY}.t",
            "groups[0].members[1].assignment.topic_partitions[0].partitions": [0],
        },
    ),
    (_OTHER_WAY, 10): (
        SECOND_LOOK,
        {"assignment.topic_partitions[0].partitions": [1]},
    ),
}
"""By script and step: the reason, and what we answer instead."""

EITHER: Final = frozenset({EAGER})
"""Reasons that depend on the moment: the answer may as well be Kafka's."""

NOT_PLAYED: Final = {
    "an-issued-id-expires": ISSUED,
    "an-issued-id-holds-up-a-later-rebalance": ISSUED,
}
"""Scripts that cannot go on behind a difference: with us a rebalance waits for members only."""
