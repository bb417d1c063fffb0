"""Bugs in groups: in their machines, in their table, and in the coordinator around them."""

from tests.mutants.plant import Plant, plant

CLASSIC = (
    "tests/groups/test_classic.py",
    "tests/groups/test_classic_join.py",
    "tests/groups/test_classic_leave.py",
    "tests/groups/test_classic_rebalance_sync.py",
)
CONSUMER = (
    "tests/groups/test_consumer.py",
    "tests/groups/test_consumer_heartbeat.py",
    "tests/groups/test_consumer_reconcile.py",
    "tests/groups/test_consumer_target.py",
)
TABLE = ("tests/groups/test_table.py",)
COORDINATOR = (
    "tests/coordinator/test_coordinator.py",
    "tests/coordinator/test_member_expiry.py",
    "tests/coordinator/test_member_expiry_stalls.py",
    "tests/coordinator/test_classic_requests.py",
    "tests/coordinator/test_consumer_requests.py",
)

MACHINES: tuple[Plant, ...] = (
    plant(
        "Expire without holder, classic",
        "groups/classic.py",
        "if member.holder_epoch != event.holder_epoch:",
        "if False:",
        tests=CLASSIC,
    ),
    plant(
        "Expire without holder, consumer",
        "groups/consumer.py",
        "if member.holder_epoch != event.holder_epoch:",
        "if False:",
        tests=CONSUMER,
    ),
    plant(
        "a timer of an older number counts",
        "groups/classic.py",
        "timer.kind == event.kind and timer.number == event.number",
        "timer.kind == event.kind",
        tests=CLASSIC,
    ),
    plant(
        "a commit of an older generation counts",
        "groups/classic.py",
        "    if event.generation != group.generation:\n"
        "        return ErrorCode.ILLEGAL_GENERATION\n"
        "    if group.state is ClassicState.COMPLETING:",
        "    if group.state is ClassicState.COMPLETING:",
        tests=CLASSIC,
    ),
    plant(
        "a target of an older epoch counts",
        "groups/consumer_target.py",
        "if event.epoch != group.epoch or not needs_target(group):",
        "if not needs_target(group):",
        tests=CONSUMER,
    ),
    plant(
        "a partition is given before it is let go of",
        "groups/consumer_reconcile.py",
        "elif owners.get(partition, member.member_id) == member.member_id:",
        "elif True:",
        tests=CONSUMER,
    ),
    plant(
        "a heartbeat that says nothing lets go of partitions",
        "groups/consumer_reconcile.py",
        "if dropped and is_held(dropped, owned):",
        "if dropped and owned is not None and is_held(dropped, owned):",
        tests=CONSUMER,
    ),
)

STATE: tuple[Plant, ...] = (
    plant(
        "an expiry takes a newer commit along",
        "groups/table.py",
        "and committed.position > event.position",
        "and False",
        tests=TABLE,
    ),
    plant(
        "a frozen copy shares what is written",
        "groups/table.py",
        "        self._own.clear()\n",
        "",
        tests=TABLE,
    ),
    plant(
        "a live group changes its protocol",
        "groups/routing.py",
        "if isinstance(group, ConsumerGroup) and group.members:",
        "if False:",
        tests=TABLE,
    ),
)

SHELL: tuple[Plant, ...] = (
    plant(
        "groups are spoken for without a session",
        "coordinator/group_domain.py",
        "if self._clock.monotonic_s() >= self._brokers.alive_until_s():",
        "if False:",
        tests=COORDINATOR,
    ),
    plant(
        "a reload leaves the parked unanswered",
        "coordinator/group_domain.py",
        "            callback()\n        self._look_at_all()\n",
        "            callback()\n",
        tests=COORDINATOR,
    ),
    plant(
        "after an outage old deadlines count",
        "coordinator/member_expiry.py",
        "            self._sessions.restart(now_s)\n",
        "",
        tests=COORDINATOR,
    ),
    plant(
        "nobody watches the members of a dead broker",
        "coordinator/member_expiry.py",
        "return member.holder not in self._live and self._rank(group_id) == 0",
        "return False",
        tests=COORDINATOR,
    ),
    plant(
        "a member that talks to us is left to its former holder",
        "coordinator/classic_requests.py",
        "if group.members[member_id].holder == self._own_id:",
        "if True:",
        tests=COORDINATOR,
    ),
)

OF_PREPARED = ("tests/broker/test_offset_commit_template.py",)
PREPARED: tuple[Plant, ...] = (
    plant(
        "a template takes the bytes of another version",
        "broker/offset_commit_template.py",
        " or version != self.like[0]",
        "",
        tests=OF_PREPARED,
    ),
    plant(
        "what stands behind the offset in a template may be anything",
        "broker/offset_commit_template.py",
        " and found.endswith(self.after)",
        "",
        tests=OF_PREPARED,
    ),
    plant(
        "a repeated commit may name a partition that its topic lacks",
        "broker/offset_commit_template.py",
        " or not 0 <= partition < topic.partition_count",
        "",
        tests=OF_PREPARED,
    ),
    plant(
        "a commit that differs from the last one makes a template",
        "broker/offset_commit_template.py",
        "if known.pop(call.connection, None) == like:",
        "if known.pop(call.connection, None) is not None:",
        tests=OF_PREPARED,
    ),
)

PLANTS = MACHINES + STATE + SHELL + PREPARED
