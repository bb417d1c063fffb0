"""Record the group scripts from a real Kafka, or compare a running broker with the recordings.

    python -m tests.golden.record_groups                       # record both profiles
    python -m tests.golden.record_groups --script NAME ...     # these scripts, the others stay
    python -m tests.golden.record_groups --show --script NAME  # what is recorded
    python -m tests.golden.record_groups --check               # a fresh Kafka is compared with them
    python -m tests.golden.record_groups --ours                # our broker, in this process
    python -m tests.golden.record_groups --against HOST:PORT --profile prompt

`--against` prints every difference of that broker: what was asked, what Kafka answered, what it
answered. It has to run with the options of the profile (`PROFILES` in groups/script.py), and on
fresh data: groups and topics of an earlier run are in the way.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.broker import HOST, Launch, ProcessBroker, free_ports
from bench.peer import CLUSTER_ID, FORMAT_TIMEOUT_S, PROPERTIES, Peer, find_peer
from msgspec import Struct
from tests.golden.groups import scripts
from tests.golden.groups.asks import beat, find
from tests.golden.groups.different import DIFFERENT
from tests.golden.groups.embedded import embedded
from tests.golden.groups.recording import Recorded, compare, load, recorded, save
from tests.golden.groups.script import PROFILES, Script, played
from tests.golden.groups.stage import Stage

READY_S_MAX = 60.0
UNKNOWN_MEMBER = 25
HEAP = "512m"
LONG = 60
# One partition: then one question tells that all groups are loaded.
OURS = "offsets.topic.num.partitions=1\nauto.create.topics.enable=false\n"


@contextmanager
def kafka(peer: Peer, profile: str) -> Iterator[ProcessBroker]:
    """A fresh Kafka with the options of a profile."""
    with tempfile.TemporaryDirectory(prefix="lakelog-golden-") as folder:
        port, controller_port = free_ports(2)
        data, properties = Path(folder, "data"), Path(folder, "server.properties")
        data.mkdir()
        chosen = "".join(f"{name}={value}\n" for name, value in PROFILES[profile].items())
        given = {"host": HOST, "port": port, "controller_port": controller_port, "data": data}
        properties.write_text(PROPERTIES.format(**given) + OURS + chosen)
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(properties))
        subprocess.run(
            peer.command("kafka.tools.StorageTool", *arguments),
            check=True,
            capture_output=True,
            timeout=FORMAT_TIMEOUT_S,
        )
        command = peer.command("kafka.Kafka", str(properties), heap=HEAP)
        log = Path(folder, "kafka.log")
        broker = ProcessBroker(Launch("kafka", command, port, log, ready_timeout_s=READY_S_MAX))
        try:
            broker.wait_ready()
            yield broker
        finally:
            broker.stop()


async def ready(host: str, port: int) -> None:
    """Wait until the broker coordinates groups."""
    stage = Stage("ready", host, port)
    try:
        await stage.until(
            lambda: find("ready"), lambda found: found.coordinators[0].error_code == 0
        )
        await stage.until(
            lambda: beat("ready", 1, "nobody"), lambda found: found.error_code == UNKNOWN_MEMBER
        )
    finally:
        await stage.close()


async def record(chosen: list[Script], port: int) -> dict[str, list[Recorded]]:
    """Play scripts, and return what was asked and answered."""
    await ready(HOST, port)
    found = {}
    for one in chosen:
        run = await played(one, HOST, port)
        found[one.name] = recorded(one.name, run.steps)
        if run.failure:
            print(shown(found.pop(one.name)))
            print(f"{one.name} is not recorded: {run.failure}", flush=True)
    return found


async def check(chosen: list[Script], profile: str, host: str, port: int) -> int:
    """Play scripts and print what differs from the recordings; how many steps do."""
    await ready(host, port)
    recordings = load(profile)
    count = 0
    for one in chosen:
        found = compare(one.name, recordings.get(one.name, []), await played(one, host, port))
        for each in found:
            reason, _ = DIFFERENT.get((each.script, each.step), ("", {}))
            print(each)
            if reason:
                print(f"  on purpose: {reason}")
        count += len(found)
    print(f"{profile}: {len(chosen)} scripts, {count} differences")
    return count


def shown(rows: list[Recorded]) -> str:
    """Recorded steps for reading."""
    lines = []
    for row in rows:
        lines.append(f"{row.script} {row.step} on {row.on}: v{row.version} {brief(row.asked())}")
        lines.append(f"    {brief(row.answered())}")
    return "\n".join(lines)


def brief(value: object) -> str:
    """A message without the fields that have their default value."""
    if isinstance(value, Struct):
        usual = type(value)()
        said = {name: getattr(value, name) for name in value.__struct_fields__}
        kept = [
            f"{name}={brief(part)}" for name, part in said.items() if part != getattr(usual, name)
        ]
        return f"{type(value).__name__}({', '.join(kept)})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(brief, value))}]"
    if isinstance(value, str) and len(value) > LONG:
        return f"{value[:LONG]!r}..({len(value)})"
    return repr(value)


def main(arguments: list[str]) -> int:
    """Run the command line; 1 if a check found differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record_groups")
    parser.add_argument("--script", action="append", help="only this script, may be repeated")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="only scripts of this profile")
    parser.add_argument("--against", metavar="HOST:PORT", help="compare a running broker")
    parser.add_argument("--ours", action="store_true", help="compare a broker of ours")
    parser.add_argument("--check", action="store_true", help="compare a fresh Kafka")
    parser.add_argument("--show", action="store_true", help="print the recordings")
    parser.add_argument("--list", action="store_true", help="name the scripts")
    options = parser.parse_args(arguments)
    count = 0
    for profile in [options.profile] if options.profile else sorted(PROFILES):
        chosen = scripts.of(profile, options.script)
        if not chosen:
            continue
        if options.list:
            print("\n".join(f"{profile}  {one.name}" for one in chosen))
        elif options.show:
            print("\n".join(shown(load(profile)[one.name]) for one in chosen))
        elif options.against:
            host, _, port = options.against.rpartition(":")
            count += asyncio.run(check(chosen, profile, host, int(port)))
        elif options.ours:
            with embedded(profile) as broker:
                count += asyncio.run(check(chosen, profile, HOST, broker.address.port))
        else:
            count += with_kafka(chosen, profile, checking=options.check)
    return 1 if count else 0


def with_kafka(chosen: list[Script], profile: str, *, checking: bool) -> int:
    """Record or check with a Kafka of our own."""
    peer = find_peer()
    with kafka(peer, profile) as broker:
        if checking:
            return asyncio.run(check(chosen, profile, HOST, broker.port))
        found = asyncio.run(record(chosen, broker.port))
    path = scripts.recording_path(profile)
    kept = load(profile) if path.exists() else {}
    known = {one.name for one in scripts.of(profile)}
    kept = {name: rows for name, rows in kept.items() if name in known}
    save(profile, kept | found)
    print(f"{path.name}: {len(found)} scripts from Kafka {peer.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
