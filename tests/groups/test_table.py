"""Groups and their offsets as one table: what absent groups answer, and what becomes of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lakelog.domain.pages import cut_group_pages, decode_group_page, encode_group_page
from lakelog.groups.events import (
    Adopt,
    CommitOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DeleteGroup,
    DeleteOffsets,
    Expire,
    ExpireOffsets,
    GroupEvent,
    GroupEventResult,
    GroupOutcome,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    OffsetsDeleted,
    Resolved,
    Sync,
    TargetAssignment,
    TimerExpired,
    TopicsChanged,
)
from lakelog.groups.state import ClassicGroup, ClassicState, ConsumerGroup
from lakelog.groups.table import GroupTable
from lakelog.model.errors import ErrorCode

TOPIC = b"t" * 16
OTHER = b"o" * 16


def join(group_id: str = "g", member_id: str = "m", *, is_new: bool = True) -> Join:
    return Join(
        group_id=group_id,
        member_id=member_id,
        is_new=is_new,
        instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=(("range", b"\x00\x00\x00\x00\x00\x01\x00\x03abc"),),
        holder=1,
        members_max=100,
        initial_delay_ms=0,
    )


def beat(epoch: int = 0, group_id: str = "g", member_id: str = "m") -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=20_000,
        names=("abc",),
        pattern=None,
        assignor=None,
        owned=(),
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout_ms=45_000,
        holder=1,
        members_max=100,
    )


def commit(
    offset: int,
    *,
    generation: int = -1,
    member_id: str = "",
    version: int = 9,
    partition: int = 0,
    group_id: str = "g",
) -> CommitOffsets:
    return CommitOffsets(
        group_id=group_id,
        member_id=member_id,
        instance_id=None,
        generation=generation,
        api_version=version,
        time_ms=1_000,
        offsets=((TOPIC, partition, offset, -1, "note"),),
    )


def kind(log: "Log") -> type:
    return type(log.table.groups["g"])


def offsets(table: GroupTable, group_id: str = "g") -> dict[int, int]:
    rows = table.offsets.get(group_id, {})
    return {partition: row.offset for (_, partition), row in rows.items()}


class Log:
    """A table with the positions counted."""

    def __init__(self) -> None:
        self.table = GroupTable()
        self.position = 0

    def __call__(self, event: GroupEvent) -> GroupOutcome:
        self.position += 1
        return self.table.apply(event, position=self.position)


NOBODY = ErrorCode.UNKNOWN_MEMBER_ID
NO_GROUP = ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (join(is_new=False), JoinResult(NOBODY)),
        (Sync("g", "m", None, 1, None, None, ()), GroupEventResult(NOBODY)),
        (Leave("g", (("m", None), ("", "i"))), LeaveResult((NOBODY, NOBODY))),
        (Expire("g", "m", 1), GroupEventResult(NOBODY)),
        (Adopt("g", "m", 1), GroupEventResult(NOBODY)),
        (TimerExpired("g", 0, "", 1), GroupEventResult(NOBODY)),
        (commit(5, generation=1, member_id="m"), GroupEventResult(NO_GROUP)),
        (
            commit(5, generation=1, member_id="m", version=8),
            GroupEventResult(ErrorCode.ILLEGAL_GENERATION),
        ),
        (DeleteGroup("g"), GroupEventResult(NO_GROUP)),
        (DeleteOffsets("g", ((TOPIC, "abc", 0),)), OffsetsDeleted(NO_GROUP)),
        (ExpireOffsets("g", (), 9), OffsetsDeleted(NO_GROUP)),
        (TargetAssignment("g", 1, 0, "uniform", (), ()), GroupEventResult(NO_GROUP)),
        (Resolved("g", "a.*", ()), GroupEventResult(NO_GROUP)),
        (TopicsChanged("g", 7), GroupEventResult(NO_GROUP)),
    ],
)
def test_a_group_that_is_not_there_is_not_made_by_what_it_refuses(
    event: GroupEvent, outcome: GroupOutcome
) -> None:
    log = Log()
    assert log(event) == outcome
    assert not log.table.groups
    assert not log.table.offsets
    assert not log.table.changed_buckets(since=0)


def test_a_later_heartbeat_does_not_make_a_group() -> None:
    log = Log()
    outcome = log(beat(3))
    assert isinstance(outcome, ConsumerHeartbeatResult)
    assert outcome.code is NO_GROUP
    assert not log.table.groups


def test_a_commit_without_a_member_makes_a_group_of_offsets_only() -> None:
    log = Log()
    assert log(commit(5)) == GroupEventResult(ErrorCode.NONE)
    assert log.table.groups["g"] == ClassicGroup("g")
    row = log.table.offsets["g"][TOPIC, 0]
    assert (row.offset, row.leader_epoch, row.metadata, row.time_ms, row.position) == (
        5,
        -1,
        "note",
        1_000,
        1,
    )


def test_p3_a_commit_from_outside_is_refused_while_the_group_lives() -> None:
    log = Log()
    log(commit(5))
    log(join())
    log(Sync("g", "m", None, 1, None, None, (("m", b"all"),)))
    assert log(commit(9)) == GroupEventResult(ErrorCode.UNKNOWN_MEMBER_ID)
    stale = commit(9, generation=0, member_id="m")
    assert log(stale) == GroupEventResult(ErrorCode.ILLEGAL_GENERATION)
    assert offsets(log.table) == {0: 5}
    assert log(commit(6, generation=1, member_id="m")) == GroupEventResult(ErrorCode.NONE)
    assert offsets(log.table) == {0: 6}


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets() -> None:
    log = Log()
    log(join())
    log(Sync("g", "m", None, 1, None, None, (("m", b"all"),)))
    log(commit(6, generation=1, member_id="m"))
    refused = log(beat(member_id="n"))
    assert isinstance(refused, ConsumerHeartbeatResult)
    assert refused.code is NO_GROUP
    assert log(Leave("g", (("m", None),))) == LeaveResult((ErrorCode.NONE,), ("m",))
    assert kind(log) is ClassicGroup
    log(beat(member_id="n"))
    assert kind(log) is ConsumerGroup
    assert offsets(log.table) == {0: 6}
    assert log(join(member_id="m2")) == JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    log(beat(-1, member_id="n"))
    assert log(join(member_id="m2")) == JoinResult(ErrorCode.NONE, "m2")
    group = log.table.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicState.COMPLETING
    assert offsets(log.table) == {0: 6}


def test_a_group_with_members_is_not_deleted_and_an_empty_one_goes_with_its_offsets() -> None:
    log = Log()
    log(join())
    log(commit(6, generation=1, member_id="m"))
    assert log(DeleteGroup("g")) == GroupEventResult(ErrorCode.NON_EMPTY_GROUP)
    log(Leave("g", (("m", None),)))
    log(commit(6))
    assert log(DeleteGroup("g")) == GroupEventResult(ErrorCode.NONE)
    assert not log.table.groups
    assert not log.table.offsets
    log(commit(1, partition=3))
    assert offsets(log.table) == {3: 1}  # nothing of the old group came back


def test_offsets_of_a_topic_that_is_read_are_not_deleted() -> None:
    log = Log()
    log(commit(5))
    log(join())
    log(Sync("g", "m", None, 1, None, None, (("m", b"all"),)))
    event = DeleteOffsets("g", ((TOPIC, "abc", 0), (OTHER, "free", 0)))
    codes = (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    assert log(event) == OffsetsDeleted(ErrorCode.NONE, codes)
    assert offsets(log.table) == {0: 5}
    log(Leave("g", (("m", None),)))
    assert log(event) == OffsetsDeleted(ErrorCode.NONE, (ErrorCode.NONE, ErrorCode.NONE))
    assert offsets(log.table) == {}
    assert "g" in log.table.groups


def test_offsets_of_other_programs_are_not_deleted_while_they_run() -> None:
    log = Log()
    log(commit(5))
    log(replace(join(), protocol_type="connect"))
    event = DeleteOffsets("g", ((TOPIC, "abc", 0),))
    assert log(event) == OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP)
    assert offsets(log.table) == {0: 5}


def test_a_commit_of_nothing_leaves_a_group_that_can_end() -> None:
    log = Log()
    log(replace(commit(5), offsets=()))
    assert "g" in log.table.groups
    log(ExpireOffsets("g", (), log.position))
    assert not log.table.groups


def test_p6_an_expiry_leaves_what_was_committed_after_it_was_decided() -> None:
    log = Log()
    log(commit(5, partition=0))
    log(commit(5, partition=1))
    decided = log.position
    log(commit(6, partition=1))
    log(ExpireOffsets("g", ((TOPIC, "abc", 0), (TOPIC, "abc", 1)), decided))
    assert offsets(log.table) == {1: 6}
    assert "g" in log.table.groups


def test_a_group_ends_with_its_last_offset_but_not_while_it_has_members() -> None:
    log = Log()
    log(commit(5))
    log(join())
    log(Sync("g", "m", None, 1, None, None, (("m", b"all"),)))
    log(ExpireOffsets("g", ((TOPIC, "abc", 0),), log.position))
    assert offsets(log.table) == {0: 5}  # it is read
    log(ExpireOffsets("g", ((TOPIC, "", 0),), log.position))
    assert offsets(log.table) == {}  # the topic is gone
    assert "g" in log.table.groups
    log(Leave("g", (("m", None),)))
    log(ExpireOffsets("g", (), log.position))
    assert not log.table.groups


def test_a_preview_says_what_apply_will_do_and_does_nothing() -> None:
    log = Log()
    after, outcome, is_changed = log.table.preview(beat())
    assert is_changed
    assert not log.table.groups
    assert log(beat()) == outcome
    assert log.table.groups["g"] == after
    assert isinstance(outcome, ConsumerHeartbeatResult)
    steady = replace(beat(outcome.epoch), rebalance_timeout_ms=-1, names=None, owned=None)
    *_, is_changed = log.table.preview(steady)
    assert not is_changed


steps = st.lists(
    st.one_of(
        st.builds(
            lambda group, partition, offset: commit(offset, partition=partition, group_id=group),
            st.sampled_from("abc"),
            st.integers(0, 2),
            st.integers(0, 99),
        ),
        st.builds(
            lambda group, partition: DeleteOffsets(group, ((TOPIC, "abc", partition),)),
            st.sampled_from("abc"),
            st.integers(0, 2),
        ),
        st.builds(DeleteGroup, st.sampled_from("abc")),
        st.just("freeze"),
        st.just("reload"),
    ),
    max_size=40,
)


def reloaded(table: GroupTable) -> GroupTable:
    made = GroupTable()
    for page in cut_group_pages(table, set(table.buckets())):
        for row in decode_group_page(encode_group_page(page)).groups:
            made.restore(*row)
    return made


def contents(table: GroupTable) -> list[bytes]:
    return [encode_group_page(page) for page in cut_group_pages(table, set(table.buckets()))]


@given(steps)
def test_a_frozen_copy_stays_and_a_reloaded_table_goes_on_alike(
    steps: list[GroupEvent | str],
) -> None:
    log, other = Log(), Log()
    frozen: list[tuple[GroupTable, list[bytes]]] = []
    for step in steps:
        if step == "freeze":
            copy = log.table.copied()
            frozen.append((copy, contents(copy)))
        elif step == "reload":
            other.table = reloaded(other.table)
        else:
            assert not isinstance(step, str)
            assert log(step) == other(step)
    assert contents(log.table) == contents(other.table)
    for copy, then in frozen:
        assert contents(copy) == then


def test_only_buckets_that_changed_are_named() -> None:
    log = Log()
    for number in range(200):
        log(commit(1, group_id=f"group-{number}"))
    since = log.position
    log(commit(2, group_id="group-7"))
    log(DeleteGroup("group-9"))
    log(commit(2, generation=4, group_id="group-11"))  # refused
    changed = log.table.changed_buckets(since=since)
    assert 1 <= len(changed) <= 2
    before = {
        page.bucket: encode_group_page(page)
        for page in cut_group_pages(reference(), set(range(64)))
    }
    after = {
        page.bucket: encode_group_page(page) for page in cut_group_pages(log.table, set(range(64)))
    }
    assert {bucket for bucket in after if after[bucket] != before[bucket]} == changed


def reference() -> GroupTable:
    log = Log()
    for number in range(200):
        log(commit(1, group_id=f"group-{number}"))
    return log.table
