"""Two brokers, several groups of several clients: one broker dies or stops, and they go on.

Rules: a broker is killed while everybody reads and commits. Members must have records again within
their session time-out, and what a commit's acknowledgement promised must be read from the survivor.
"""

import time
from collections.abc import Sequence

from tests.compat.groups.check import longest_gap_ms
from tests.compat.groups.churn import judge
from tests.compat.groups.clusters import await_true
from tests.compat.groups.crew import Crew, Slot, prepare
from tests.compat.groups.hand import judge_committed, probe_pause
from tests.compat.groups.job import MemberJob
from tests.compat.groups.load import Load
from tests.compat.groups.look import UnansweredError, find_coordinator
from tests.compat.groups.scene import (
    PARTITIONS,
    Scene,
    await_drained,
    await_settled,
    producing,
)
from tests.compat.groups.witness import Witness

PER_SECOND = 1_200.0
WATCH_S = 20.0
# Longer than clients keep metadata: they must know both brokers before one dies.
DWELL_S = 8.0
WHOLE_TIMEOUT_S = 90.0
READ_AGAIN_S = 20.0

FAILOVER: dict[str, tuple[Slot, ...]] = {
    "range": (
        Slot("confluent", commits="automatic"),
        Slot("aiokafka"),
        Slot("kafka-python"),
        Slot("java"),
    ),
    "cooperative": (Slot("confluent"), Slot("java", commits="automatic")),
    "consumer": (Slot("confluent", commits="automatic"), Slot("java")),
    # Alone: it starts anew under another id when a connection breaks, and the group has to wait
    # until the session of the old id is over.
    "roundrobin": (Slot("kafkajs"), Slot("kafkajs")),
}
PATIENCE = {"roundrobin": 2.0}
PAUSE: dict[str, tuple[Slot, ...]] = {
    "range": (Slot("confluent"), Slot("aiokafka"), Slot("java")),
    "consumer": (Slot("confluent"), Slot("java")),
}


def make_crews(scene: Scene, topic: str, flavours: dict[str, tuple[Slot, ...]]) -> dict[str, Crew]:
    """Create the topic and return a crew for each flavour, not started."""
    prepare([slot.client for slots in flavours.values() for slot in slots], scene.folder)
    scene.admin.create_topic(topic, PARTITIONS, len(scene.cluster.brokers))
    crews = {}
    for flavour, slots in flavours.items():
        template = MemberJob(
            bootstrap=scene.cluster.bootstrap,
            topic=topic,
            group=f"{topic}-{flavour}",
            name="",
            flavour=flavour,
            commits="",
            notes="",
            partitions=PARTITIONS,
            session_ms=scene.session_ms,
        )
        crews[flavour] = Crew(template, slots, scene.folder)
    return crews


def start_all(scene: Scene, crews: Sequence[Crew]) -> None:
    """Start all members of all crews and wait until every group is settled."""
    for crew in crews:
        for at in range(len(crew.slots)):
            crew.start(at)
    for crew in crews:
        await_settled(scene, crew)


def coordinators(scene: Scene, crews: Sequence[Crew], node_id: int) -> dict[str, int]:
    """Ask one broker who coordinates each group."""
    port = scene.cluster.port(node_id)
    return {crew.template.group: find_coordinator(port, crew.template.group) for crew in crews}


def failover(scene: Scene) -> None:
    """Kill the coordinating broker, start it again, kill the other."""
    crews = make_crews(scene, "failover", FAILOVER)
    every = list(crews.values())
    load = Load(scene.cluster.bootstrap, "failover", PARTITIONS, 0, PER_SECOND)
    witness = Witness(
        scene.cluster.bootstrap, "failover", PARTITIONS, scene.folder / "witness.notes"
    )
    try:
        with producing(load) as producer:
            start_all(scene, every)
            first = coordinators(scene, every, 1)[every[0].template.group]
            for victim in (first, 3 - first):
                time.sleep(DWELL_S)
                kill_and_watch(scene, every, witness, victim)
            said = producer.finish()
            if not said.startswith("done"):
                scene.found(f"the producer {said}")
        witness.stop()
        read_witness(scene, witness)
        scene.say(f"witness: {witness.acknowledged()} commits acknowledged in all")
        wind_up(scene, every)
    finally:
        for crew in every:
            crew.end()


def kill_and_watch(scene: Scene, crews: Sequence[Crew], witness: Witness, victim: int) -> None:
    """Kill a broker, see everybody go on, and start it again."""
    held = coordinators(scene, crews, 3 - victim)
    before = witness.acknowledged()
    scene.cluster.kill(victim)
    killed_ms = time.time_ns() // 1_000_000
    mine = [group for group, node_id in held.items() if node_id == victim]
    scene.say(f"kill -9 of broker {victim}, coordinator of {', '.join(mine) or 'no group'}")
    read_witness(scene, witness)
    left_s = WATCH_S - (time.time_ns() // 1_000_000 - killed_ms) / 1000
    time.sleep(max(left_s, 0.0))
    for crew in crews:
        watch_gaps(scene, crew, killed_ms)
    scene.say(f"witness: {witness.acknowledged() - before} commits since")
    for crew in crews:
        await_settled(scene, crew)
    took_s = scene.cluster.start(victim)
    whole_s = await_true("whole again", lambda: scene.admin.is_whole(2), WHOLE_TIMEOUT_S)
    scene.say(f"broker {victim} again: serves after {took_s:.1f} s, whole after {whole_s:.1f} s")
    for crew in crews:
        await_settled(scene, crew)


def read_witness(scene: Scene, witness: Witness) -> None:
    """Read what is committed as soon as anybody answers, and judge it."""
    wrong: list[str] = []

    def answered() -> bool:
        try:
            wrong[:] = witness.judge(scene.admin)
        except UnansweredError:
            return False
        return True

    await_true("the survivor tells what is committed", answered, READ_AGAIN_S)
    for text in wrong:
        scene.found(text)


def watch_gaps(scene: Scene, crew: Crew, since_ms: int) -> None:
    """Say how long each member went without records, and find who went too long."""
    until_ms = time.time_ns() // 1_000_000
    gaps = {
        member.job.name: longest_gap_ms(member.life(), since_ms, until_ms)
        for member in crew.running.values()
    }
    shown = ", ".join(f"{name} {gap_ms / 1000:.1f} s" for name, gap_ms in gaps.items())
    scene.say(f"{crew.template.group}: longest without records: {shown}")
    for name, gap_ms in gaps.items():
        if gap_ms > scene.session_ms * PATIENCE.get(crew.template.flavour, 1.0):
            scene.found(f"{crew.template.group}: {name} had nothing for {gap_ms / 1000:.1f} s")


def wind_up(scene: Scene, crews: Sequence[Crew], *, fenced: bool = False) -> None:
    """Let all groups read to the end and leave; then judge what everybody noted."""
    for crew in crews:
        ends = scene.admin.ends(crew.template.topic, PARTITIONS)
        drained_s = await_drained(scene, crew, ends)
        for wrong in crew.disband():
            scene.found(f"{crew.template.group}: {wrong}")
        judge(scene, crew, ends, fenced=fenced)
        scene.say(f"{crew.template.group}: {sum(ends.values())} records, drained {drained_s:.1f} s")


def pause(scene: Scene) -> None:
    """Stop a broker for longer than any session, let it go on; then the other."""
    crews = make_crews(scene, "pause", PAUSE)
    every = list(crews.values())
    load = Load(scene.cluster.bootstrap, "pause", PARTITIONS, 0, PER_SECOND)
    try:
        with producing(load) as producer:
            start_all(scene, every)
            for victim in (1, 2):
                time.sleep(DWELL_S)
                held = coordinators(scene, every, victim)
                mine = [group for group, node_id in held.items() if node_id == victim]
                scene.say(f"SIGSTOP of broker {victim}, coordinator of {', '.join(mine) or '-'}")
                probed = probe_pause(scene, victim)
                await_true("whole again", lambda: scene.admin.is_whole(2), WHOLE_TIMEOUT_S)
                judge_committed(scene, probed)
                settled_s = max(await_settled(scene, crew) for crew in every)
                scene.say(f"broker {victim} goes on: all settled after {settled_s:.1f} s")
            said = producer.finish()
            if not said.startswith("done"):
                scene.found(f"the producer {said}")
        wind_up(scene, every, fenced=True)
    finally:
        for crew in every:
            crew.end()
