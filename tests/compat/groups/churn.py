"""Members of many clients join, leave and are killed while records come: nothing is skipped."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.compat.groups.check import check, handed_over
from tests.compat.groups.crew import Crew, Slot, prepare
from tests.compat.groups.job import MemberJob
from tests.compat.groups.load import Load
from tests.compat.groups.notes import Assigned
from tests.compat.groups.scene import (
    PARTITIONS,
    LoadProcess,
    Scene,
    await_drained,
    await_settled,
    producing,
)

DWELL_S, SHORT_DWELL_S = 2.0, 0.3
STARTED_AT_ONCE = 3
FINDINGS_SHOWN = 12

Round = Sequence[tuple[str, int]]

# Who may share a group: those with an assignor, or the protocol, in common.
FLAVOURS: dict[str, tuple[Slot, ...]] = {
    # No static member here: kafka-python's range assignor drops members that come before one.
    "range": (
        Slot("confluent"),
        Slot("java"),
        Slot("aiokafka"),
        Slot("kafka-python"),
        Slot("kafkajs"),
        Slot("confluent", commits="automatic"),
    ),
    "cooperative": (
        Slot("confluent"),
        Slot("java", static=True),
        Slot("kafka-python"),
        Slot("confluent", commits="async", static=True),
        Slot("java", commits="automatic"),
    ),
    "consumer": (
        Slot("confluent"),
        Slot("java"),
        Slot("confluent", commits="async"),
        Slot("java", static=True),
        Slot("confluent", commits="automatic"),
    ),
    "roundrobin": (Slot("kafkajs"), Slot("kafkajs"), Slot("kafkajs")),
}


def rounds(slots: Sequence[Slot], begin: int, flavour: str) -> Iterator[Round]:
    """Yield what happens, for ever: everybody leaves, is killed, and comes back, in turn."""
    for at in range(begin, len(slots)):
        yield [("start", at)]
    while True:
        for at, slot in enumerate(slots):
            following = (at + 1) % len(slots)
            yield [("leave", at)]
            yield [("start", at), ("kill", following)]
            yield [("start", following)]
            # At once again: a static member takes its old place, any other one a new one. KIP-848
            # keeps the place of a killed static member until its session ends; only leaving it
            # makes it free.
            keeps_place = slot.static and flavour == "consumer"
            yield [("leave" if keeps_place else "kill", at), ("start", at)]


def act(crew: Crew, verb: str, at: int) -> None:
    """Do one thing to one member."""
    match verb:
        case "start":
            crew.start(at)
        case "leave":
            crew.leave(at)
        case _:
            assert verb == "kill", verb
            crew.kill(at)


@dataclass(slots=True)
class MembershipChanges:
    """What happened to a group."""

    count: int = 0
    slowest_s: float = 0.0

    def note(self, count: int, settled_s: float) -> None:
        """Add one round."""
        self.count += count
        self.slowest_s = max(self.slowest_s, settled_s)


def churn(
    scene: Scene,
    flavour: str,
    slots: Sequence[Slot] | None = None,
    script: Sequence[Round] | None = None,
) -> None:
    """Run one flavour: its own topic, producer and group.

    Without a script the members come and go until all records are written.
    """
    chosen = FLAVOURS[flavour] if slots is None else slots
    prepare([slot.client for slot in chosen], scene.folder)
    topic, group = f"churn-{flavour}", f"churn-{flavour}-group"
    scene.admin.create_topic(topic, PARTITIONS, len(scene.cluster.brokers))
    template = MemberJob(
        bootstrap=scene.cluster.bootstrap,
        topic=topic,
        group=group,
        name="",
        flavour=flavour,
        commits="",
        notes="",
        partitions=PARTITIONS,
        session_ms=scene.session_ms,
    )
    crew = Crew(template, chosen, scene.folder)
    load = Load(scene.cluster.bootstrap, topic, PARTITIONS, scene.records, scene.per_second)
    try:
        with producing(load) as producer:
            changes = turn_over(scene, crew, producer, script)
            said = producer.finish()
            if not said.startswith("done"):
                scene.found(f"{topic}: the producer {said}")
        finish(scene, crew, changes)
    finally:
        crew.end()


def turn_over(
    scene: Scene, crew: Crew, producer: LoadProcess, script: Sequence[Round] | None
) -> MembershipChanges:
    """Change the group round by round: by the script, or until all records are written."""
    changes = MembershipChanges()
    begin = min(STARTED_AT_ONCE, len(crew.slots)) if script is None else len(script[0])
    opening = [("start", at) for at in range(begin)] if script is None else script[0]
    for verb, at in opening:
        act(crew, verb, at)
    changes.note(begin, await_settled(scene, crew))
    for each in rounds(crew.slots, begin, crew.template.flavour) if script is None else script[1:]:
        if script is None and producer.is_done():
            break
        for verb, at in each:
            act(crew, verb, at)
        settled_s = await_settled(scene, crew)
        changes.note(len(each), settled_s)
        shown = ", ".join(f"{verb} {crew.slots[at]}" for verb, at in each)
        scene.say(f"{producer.acknowledged:>8} written: {shown}: settled in {settled_s:.1f} s")
        time.sleep(DWELL_S if script is None else SHORT_DWELL_S)
    return changes


def finish(scene: Scene, crew: Crew, changes: MembershipChanges) -> None:
    """Let the group read to the end and leave; then judge what everybody noted."""
    group = crew.template.group
    ends = scene.admin.ends(crew.template.topic, PARTITIONS)
    written = sum(ends.values())
    if scene.records and written != scene.records:
        scene.found(f"{group}: {written} records in the log, {scene.records} were written")
    try:
        drained_s = await_drained(scene, crew, ends)
    except TimeoutError as error:
        scene.found(f"{error}: {scene.admin.committed(group)} of {ends}")
        drained_s = float("nan")
    for wrong in crew.disband():
        scene.found(f"{group}: {wrong}")
    judge(scene, crew, ends)
    lives = crew.lives()
    generations = [
        event.generation or 0
        for life in lives
        for event in life.events
        if isinstance(event, Assigned)
    ]
    if max(generations, default=0) > 2 * changes.count + 1:
        scene.found(f"{group}: {max(generations)} generations for {changes.count} changes")
    scene.say(
        f"{written} records, {handed_over(lives) - written} of them again;"
        f" {changes.count} changes of membership, {max(generations, default=0)} generations,"
        f" slowest settled in {changes.slowest_s:.1f} s, drained in {drained_s:.1f} s"
    )


def judge(scene: Scene, crew: Crew, ends: dict[int, int], *, fenced: bool = False) -> None:
    """Compare what members noted with what the broker has in the end."""
    committed = scene.admin.committed(crew.template.group)
    found = check(crew.lives(), ends, committed, fenced=fenced)
    for finding in found[:FINDINGS_SHOWN]:
        scene.found(f"{crew.template.group}: {finding.fault.value}: {finding.text}")
    if len(found) > FINDINGS_SHOWN:
        scene.found(f"{crew.template.group}: and {len(found) - FINDINGS_SHOWN} more")
