"""Bugs in what bounds groups: excused time, parts of large events, sizes and budgets."""

from tests.mutants.plant import Plant, plant

WATCH = (
    "tests/coordinator/test_timers_lateness.py",
    "tests/coordinator/test_member_expiry_sessions.py",
    "tests/coordinator/test_member_expiry_stalls.py",
)
HELD = ("tests/coordinator/test_budget.py",)
LARGE = ("tests/domain/test_group_parts.py", "tests/coordinator/test_group_domain_large_events.py")

TIME: tuple[Plant, ...] = (
    plant(
        "late ticks are excused without a limit",
        "coordinator/timers.py",
        "return min(self.late_s - since_late_s, LATE_EXCUSED_S_MAX)",
        "return self.late_s - since_late_s",
        tests=WATCH,
    ),
    plant(
        "late ticks are excused again and again",
        "coordinator/member_expiry.py",
        "if excused_s > 0 and not watched.is_excused:",
        "if excused_s > 0:",
        tests=WATCH,
    ),
    plant(
        "late ticks are not excused at all",
        "coordinator/member_expiry.py",
        "if excused_s > 0 and not watched.is_excused:",
        "if False:",
        tests=WATCH,
    ),
    plant(
        "every outage restarts every session",
        "coordinator/member_expiry.py",
        "            if not watched.is_restarted:\n",
        "            if True:\n",
        tests=WATCH,
    ),
    plant(
        "a stall restarts every session",
        "coordinator/member_expiry.py",
        "if self._unwell_ticks >= OUTAGE_TICKS:",
        "if True:",
        tests=WATCH,
    ),
)

PARTS: tuple[Plant, ...] = (
    plant(
        "an event larger than a record is refused",
        "coordinator/group_domain.py",
        "        if not parts or sum(",
        "        if parts or sum(",
        tests=LARGE,
    ),
    plant(
        "parts of two attempts mix",
        "groups/parts.py",
        "and (pending.attempt, pending.of) == (event.attempt, event.count)",
        "and pending.of == event.count",
        tests=LARGE,
    ),
    plant(
        "a new incarnation goes on with old parts",
        "domain/machine.py",
        "    state.parts.pop(record.writer, None)  # the rest",
        "    # the rest",
        tests=LARGE,
    ),
    plant(
        "parts count below their level",
        "domain/machine.py",
        "if state.level < PARTS_LEVEL:",
        "if False:",
        tests=LARGE,
    ),
    plant(
        "parts are forgotten by a checkpoint",
        "domain/checkpoint.py",
        "        parts=tuple((name, *pending) for name, pending in sorted(state.parts.items())),\n",
        "",
        tests=LARGE,
    ),
)

COMMITS: tuple[Plant, ...] = (
    plant(
        "of a commit in parts the last code wins",
        "coordinator/offsets.py",
        "whole.set_result(refused[0] if refused else ErrorCode.NONE)",
        "whole.set_result(codes[-1])",
        tests=("tests/coordinator/test_offsets_commits.py",),
    ),
)

BUDGET: tuple[Plant, ...] = (
    plant(
        "there may be any number of groups",
        "coordinator/budget.py",
        "if group_id not in table.groups and self._count() >= options.groups_max:",
        "if False:",
        tests=HELD,
    ),
    plant(
        "committed offsets do not count",
        "coordinator/budget.py",
        "return self._groups_bytes + sum(table.offset_bytes for table in self._tables())",
        "return self._groups_bytes",
        tests=HELD,
    ),
    plant(
        "offsets of a deleted group count on",
        "groups/table.py",
        "            self._count_bytes(group_id, -self.offset_bytes_of(group_id))\n",
        "",
        tests=HELD,
    ),
    plant(
        "a full group refuses its own members",
        "coordinator/budget.py",
        "        if added_bytes <= 0:\n            return None\n",
        "",
        tests=HELD,
    ),
)

OFFSETS_TOPIC: tuple[Plant, ...] = (
    plant(
        "plain requests write to internal topics",
        "broker/produce_topics.py",
        " or topic.name in INTERNAL_TOPICS:",
        ":",
        tests=("tests/broker/test_produce_rows.py",),
    ),
    plant(
        "patterns match internal topics",
        "coordinator/owner.py",
        "topics.keys() - INTERNAL_TOPICS",
        "topics",
        tests=("tests/broker/test_lookup_offsets_topic.py",),
    ),
)

PLANTS: tuple[Plant, ...] = TIME + PARTS + COMMITS + BUDGET + OFFSETS_TOPIC
