"""The Java distribution's own tools, and the admin calls of other clients, on groups of ours.

`kafka-consumer-groups`, `kafka-groups`, `kafka-topics`, `kafka-get-offsets` and the console
consumer run as programs; what they print is taken apart and compared, column by column.
"""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.peer import Peer, PeerAbsentError, find_peer
from tests.compat.clients import MissingError
from tests.compat.groups.admin_calls import admin_calls
from tests.compat.groups.crew import Crew, Slot
from tests.compat.groups.job import MemberJob
from tests.compat.groups.load import Load
from tests.compat.groups.scene import (
    PARTITIONS,
    Scene,
    await_drained,
    await_settled,
    producing,
)

TOPIC = "tools"
PER_PARTITION = 100
TOOL_TIMEOUT_S = 90.0
PACKAGE = "org.apache.kafka.tools."
GROUPS = PACKAGE + "consumer.group.ConsumerGroupCommand"
CLASSIC, CONSUMER, CONSOLE = "tools-classic", "tools-consumer", "tools-console"
ALL = dict.fromkeys(range(PARTITIONS), PER_PARTITION)

Rows = list[dict[str, str]]


def parse_table(text: str) -> Rows:
    """Return the rows of what a tool printed, by column; every header line starts a new table."""
    rows: Rows = []
    columns: list[re.Match[str]] = []
    for line in text.splitlines():
        if line.startswith("GROUP "):
            columns = list(re.finditer(r"\S+", line))
        elif columns and line.strip():
            # A cell may be empty, but it begins below its header.
            ends = [*(each.start() for each in columns[1:]), len(line)]
            cells = (line[each.start() : end] for each, end in zip(columns, ends, strict=True))
            names = (each.group() for each in columns)
            rows.append({name: cell.strip() for name, cell in zip(names, cells, strict=True)})
    return rows


class Tools:
    """Runs programs against the brokers and keeps what differs."""

    def __init__(self, scene: Scene, peer: Peer) -> None:
        self._scene = scene
        self._peer = peer
        self.count = 0

    def run(self, program: str, *arguments: str) -> str:
        """Run a program and return all that it printed, errors too."""
        command = self._peer.command(
            program, "--bootstrap-server", self._scene.cluster.bootstrap, *arguments
        )
        done = subprocess.run(
            [command[0], "-XX:TieredStopAtLevel=1", *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        self.count += 1
        return done.stdout.decode(errors="replace")

    def groups(self, *arguments: str) -> str:
        """Run kafka-consumer-groups."""
        return self.run(GROUPS, *arguments)

    def same(self, what: str, got: object, wanted: object) -> None:
        """Keep what differs."""
        if got != wanted:
            self._scene.found(f"{what}: {got}, not {wanted}")

    def has(self, what: str, text: str, *words: str) -> None:
        """Keep what is missing in a text."""
        missing = [word for word in words if word not in text]
        if missing:
            self._scene.found(f"{what}: {missing} is not in {' / '.join(text.splitlines())[:600]}")

    def committed(self, what: str, group: str, wanted: dict[int, int]) -> None:
        """Compare what is committed now."""
        self.same(f"{what}: committed", self._scene.admin.committed(group), wanted)


def make_crew(scene: Scene, group: str, flavour: str, slots: Sequence[Slot]) -> Crew:
    """Start a group and wait until it has read everything."""
    template = MemberJob(
        bootstrap=scene.cluster.bootstrap,
        topic=TOPIC,
        group=group,
        name="",
        flavour=flavour,
        commits="",
        notes="",
        partitions=PARTITIONS,
    )
    crew = Crew(template, slots, scene.folder)
    for at in range(len(slots)):
        crew.start(at)
    await_settled(scene, crew)
    await_drained(scene, crew, ALL)
    return crew


def tools(scene: Scene) -> None:
    """Run every tool on live groups, on empty ones, and on none."""
    try:
        found = Tools(scene, find_peer())
    except PeerAbsentError as absent:
        raise MissingError(str(absent)) from absent
    scene.admin.create_topic(TOPIC, PARTITIONS, 1)
    load = Load(scene.cluster.bootstrap, TOPIC, PARTITIONS, PARTITIONS * PER_PARTITION, 1e6)
    with producing(load) as producer:
        found.same("the producer", producer.finish(), f"done {PARTITIONS * PER_PARTITION}")
    static = Slot("confluent", static=True)
    crews = [make_crew(scene, CLASSIC, "range", (Slot("confluent"), static))]
    try:
        crews.append(make_crew(scene, CONSUMER, "consumer", (Slot("confluent"),)))
        listing(found)
        for crew in crews:
            live(found, crew)
        admin_calls(scene, found, live=True)
        for crew in crews:
            for wrong in crew.disband():
                scene.found(wrong)
        # A static member stays for its session: remove_group_members of the admin calls ends it.
        admin_calls(scene, found, live=False)
    finally:
        for crew in crews:
            crew.end()
    for group in (CLASSIC, CONSUMER):
        reset(found, group, scene.folder)
    console(found)
    deletion(found)
    topics(found)
    scene.say(f"{found.count} runs of Java tools")


def listing(found: Tools) -> None:
    """List groups with states and types, and filtered by them."""
    found.same("--list", sorted(found.groups("--list").split()), sorted((CLASSIC, CONSUMER)))
    states = {row["GROUP"]: row["STATE"] for row in parse_table(found.groups("--list", "--state"))}
    found.same("--list --state", states, {CLASSIC: "Stable", CONSUMER: "Stable"})
    types = {row["GROUP"]: row["TYPE"] for row in parse_table(found.groups("--list", "--type"))}
    found.same("--list --type", types, {CLASSIC: "Classic", CONSUMER: "Consumer"})
    only = parse_table(found.groups("--list", "--type", "consumer"))
    found.same("--list --type consumer", [row["GROUP"] for row in only], [CONSUMER])
    empty = parse_table(found.groups("--list", "--state", "Empty"))
    found.same("--list --state Empty", [row["GROUP"] for row in empty], [])
    every = parse_table(found.run(PACKAGE + "GroupsCommand", "--list"))
    kinds = {row["GROUP"]: (row["TYPE"], row["PROTOCOL"]) for row in every}
    wanted = {CLASSIC: ("Classic", "consumer"), CONSUMER: ("Consumer", "consumer")}
    found.same("kafka-groups --list", kinds, wanted)


def live(found: Tools, crew: Crew) -> None:
    """Describe a group with members, and see it protected."""
    group = crew.template.group
    rows = parse_table(found.groups("--describe", "--group", group))
    offsets = {
        int(row["PARTITION"]): (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"])
        for row in rows
    }
    full = str(PER_PARTITION)
    found.same(f"{group} --describe", offsets, dict.fromkeys(ALL, (full, full, "0")))
    clients = {row["CLIENT-ID"] for row in rows}
    found.same(f"{group} --describe, clients", clients, crew.names())
    found.same(f"{group} --describe, hosts", {row["HOST"] for row in rows}, {"/127.0.0.1"})
    members = parse_table(found.groups("--describe", "--group", group, "--members", "--verbose"))
    counts = sorted(int(row["#PARTITIONS"]) for row in members)
    share = PARTITIONS // len(crew.slots)
    found.same(f"{group} --members", counts, [share] * len(crew.slots))
    shown = " ".join(" ".join(row.values()) for row in members)
    found.has(f"{group} --members --verbose", shown, f"{TOPIC}:", "11")
    (state,) = parse_table(found.groups("--describe", "--group", group, "--state")) or [{}]
    found.same(f"{group} --state", state.get("STATE"), "Stable")
    found.same(f"{group} --state, members", state.get("#MEMBERS"), str(len(crew.slots)))
    wanted = "range" if group == CLASSIC else "uniform"
    found.same(f"{group} --state, strategy", state.get("ASSIGNMENT-STRATEGY"), wanted)
    refused = found.groups("--delete", "--group", group)
    found.has(f"{group} --delete while in use", refused, "GroupNotEmptyException")
    refused = found.groups(*reset_arguments(group, "--to-earliest", execute=True))
    found.has(f"{group} --reset-offsets while in use", refused, "inactive", "Stable")
    refused = found.groups("--delete-offsets", "--group", group, "--topic", TOPIC)
    found.has(f"{group} --delete-offsets while in use", refused, "GroupSubscribedToTopicException")
    found.committed(f"{group}, nothing changed", group, ALL)


def reset_arguments(
    group: str, *specification: str, execute: bool, topic: str = TOPIC
) -> list[str]:
    """Return the arguments of a reset."""
    how = "--execute" if execute else "--dry-run"
    return ["--reset-offsets", "--group", group, "--topic", topic, *specification, how]


def reset(found: Tools, group: str, folder: Path) -> None:
    """Reset offsets in every way, and see only what was executed take effect."""
    state = found.groups("--describe", "--group", group, "--state")
    found.has(f"{group} after all left", state, "no active members", "Empty")
    found.groups(*reset_arguments(group, "--to-latest", execute=True))
    found.committed(f"{group} --to-latest", group, ALL)
    printed = found.groups(*reset_arguments(group, "--to-earliest", execute=False))
    shown = {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in parse_table(printed)}
    found.same(f"{group} --to-earliest --dry-run", shown, dict.fromkeys(ALL, 0))
    found.committed(f"{group} after a dry run", group, ALL)
    ways: list[tuple[list[str], int]] = [
        (["--to-earliest"], 0),
        (["--shift-by", "30"], 30),
        (["--shift-by", "-10"], 20),
        (["--to-offset", "55"], 55),
        (["--to-offset", "1000"], PER_PARTITION),
        (["--by-duration", "PT1H"], 0),
        (["--to-datetime", "2100-01-01T00:00:00.000"], PER_PARTITION),
        (["--to-current"], PER_PARTITION),
    ]
    for specification, wanted in ways:
        found.groups(*reset_arguments(group, *specification, execute=True))
        what = f"{group} {' '.join(specification)}"
        found.committed(what, group, dict.fromkeys(ALL, wanted))
    found.groups(*reset_arguments(group, "--to-offset", "7", execute=True, topic=f"{TOPIC}:0,1"))
    found.committed(f"{group} two partitions", group, {**ALL, 0: 7, 1: 7})
    exported = found.groups(*reset_arguments(group, "--to-current", "--export", execute=False))
    plan = folder / f"{group}.csv"
    rows = [line for line in exported.splitlines() if line.count(",") == 2]
    found.same(f"{group} --export", len(rows), PARTITIONS)
    plan.write_text("".join(f"{line.rpartition(',')[0]},9\n" for line in rows))
    found.groups("--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    found.committed(f"{group} --from-file", group, dict.fromkeys(ALL, 9))
    found.groups("--delete-offsets", "--group", group, "--topic", f"{TOPIC}:0")
    left = {each: 9 for each in ALL if each != 0}
    found.committed(f"{group} --delete-offsets", group, left)


def console(found: Tools) -> None:
    """Read with the console consumer in a group, both protocols, in two goes."""
    for protocol in ("classic", "consumer"):
        group = f"{CONSOLE}-{protocol}"
        for goes in (1, 2):
            printed = found.run(
                PACKAGE + "consumer.ConsoleConsumer",
                *("--topic", TOPIC, "--group", group, "--from-beginning"),
                *("--max-messages", str(PARTITIONS * PER_PARTITION // 2), "--timeout-ms", "30000"),
                *("--command-property", f"group.protocol={protocol}"),
            )
            found.has(f"{group}, go {goes}", printed, "Processed a total of 600 messages")
        found.committed(group, group, ALL)


def deletion(found: Tools) -> None:
    """Delete groups, one twice."""
    groups = [CLASSIC, CONSUMER, *(f"{CONSOLE}-{each}" for each in ("classic", "consumer"))]
    for group in groups:
        printed = found.groups("--delete", "--group", group)
        found.has(f"{group} --delete", printed, "was successful")
    printed = found.groups("--delete", "--group", CLASSIC)
    found.has("--delete again", printed, "GroupIdNotFoundException")
    found.same("--list at the end", found.groups("--list").split(), [])


def topics(found: Tools) -> None:
    """Describe the topic and read its ends."""
    described = found.run(PACKAGE + "TopicCommand", "--describe", "--topic", TOPIC)
    found.has("kafka-topics --describe", described, f"PartitionCount: {PARTITIONS}", "Leader: 1")
    listed = found.run(PACKAGE + "TopicCommand", "--list", "--exclude-internal")
    found.same("kafka-topics --list", listed.split(), [TOPIC])
    offsets = found.run(PACKAGE + "GetOffsetShell", "--topic", TOPIC).split()
    wanted = sorted(f"{TOPIC}:{each}:{PER_PARTITION}" for each in ALL)
    found.same("kafka-get-offsets", sorted(offsets), wanted)
