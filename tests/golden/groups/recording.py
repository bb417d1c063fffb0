"""Recordings: one line of JSON per step, and what differs when a script is played again."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from tests.golden.groups.normal import Normal, Plain, differences
from tests.golden.groups.script import Played
from tests.golden.groups.stage import Step

from lakelog.wire.apis import APIS, ApiKey, response_header_version
from lakelog.wire.codec import decode, encode
from lakelog.wire.framing import decode_response
from lakelog.wire.messages.create_topics import CreateTopicsResponse
from lakelog.wire.messages.list_groups import ListGroupsResponse

FOLDER = Path(__file__).parent
CORRELATION_BYTES = 4


@dataclass(frozen=True, slots=True)
class Recorded:
    """One step as a real broker answered it; the bytes are a request's body, an answer's frame."""

    script: str
    step: int
    on: str
    api: str
    version: int
    request: bytes
    response: bytes

    @property
    def key(self) -> ApiKey:
        """The API that was asked."""
        return next(api.key for api in APIS.values() if api.name == self.api)

    def asked(self) -> Struct:
        """The request."""
        kind = APIS[self.key].request
        found, end = decode(kind, self.version, memoryview(self.request))
        assert end == len(self.request)
        return found

    def answered(self) -> Struct | None:
        """The answer; None if the script did not wait for it."""
        if not self.response:
            return None
        return decode_response(APIS[self.key].response, self.version, memoryview(self.response))[1]


def load(profile: str) -> dict[str, list[Recorded]]:
    """The recorded steps of every script of a profile."""
    found: dict[str, list[Recorded]] = {}
    for line in (FOLDER / f"{profile}.jsonl").read_text().splitlines():
        row: dict[str, Any] = json.loads(line)
        row["request"] = bytes.fromhex(row["request"])
        row["response"] = bytes.fromhex(row["response"])
        one = Recorded(**row)
        found.setdefault(one.script, []).append(one)
    return found


def save(profile: str, scripts: dict[str, list[Recorded]]) -> Path:
    """Write the recording of a profile, replacing the one before."""
    path = FOLDER / f"{profile}.jsonl"
    rows = [_row(each) for name in sorted(scripts) for each in scripts[name]]
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def _row(one: Recorded) -> str:
    return json.dumps(
        {
            "script": one.script,
            "step": one.step,
            "on": one.on,
            "api": one.api,
            "version": one.version,
            "request": one.request.hex(),
            "response": one.response.hex(),
        },
        separators=(",", ":"),
    )


def recorded(script: str, steps: Iterable[Step]) -> list[Recorded]:
    """The steps of a run as they are written down."""
    return [
        Recorded(
            script=script,
            step=step.number,
            on=step.connection,
            api=step.api.name,
            version=step.version,
            request=step.request_bytes,
            response=_short(script, step),
        )
        for step in steps
    ]


def _short(script: str, step: Step) -> bytes:
    """The answer as it came, but a list of groups without those of other scripts, and no configs.

    Only lists are shortened: what stands in them is as Kafka wrote it.
    """
    found = step.response
    match found:
        case ListGroupsResponse():
            groups = tuple(each for each in found.groups if each.group_id.startswith(script))
            shorter: Struct = replace(found, groups=groups)
        case CreateTopicsResponse():
            topics = tuple(replace(each, configs=None) for each in found.topics)
            shorter = replace(found, topics=topics)
        case _:
            return step.response_bytes
    head = CORRELATION_BYTES + response_header_version(step.api, step.version)
    parts = encode(shorter, step.version)
    return step.response_bytes[:head] + b"".join(bytes(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Difference:
    """A step that went otherwise than recorded."""

    script: str
    step: int
    about: str
    request: Plain
    values: dict[str, tuple[Plain, Plain]]
    """By the path to the value: recorded, and now."""

    def __str__(self) -> str:
        lines = [f"{self.script}, step {self.step}: {self.about}", f"    asked     {self.request}"]
        for path, (theirs, ours) in self.values.items():
            lines += [f"  {path}", f"    recorded  {theirs!r}", f"    now       {ours!r}"]
        return "\n".join(lines)


def compare(script: str, rows: list[Recorded], now: Played) -> list[Difference]:
    """All differences of a run from the recording."""
    then, later = Normal(script), Normal(script)
    # By the order in which answers came an id may first be seen in a later step: a request that was
    # parked. Steps are compared in the order in which they were asked, on both sides alike.
    found = []
    for row, step in zip(rows, now.steps, strict=False):
        about = f"{row.api} v{row.version} on {row.on}"
        asked = then.request(row.asked())
        values = differences(asked, later.request(_seen(step)), "request")
        theirs = then.response(row.key, row.answered())
        ours = later.response(step.api.key, step.response)
        values |= differences(theirs, ours)
        if values:
            found.append(Difference(script, row.step, about, asked, values))
    if len(rows) != len(now.steps):
        last = min(len(rows), len(now.steps))
        reason = now.failure or "another number of steps: record again"
        values = {"steps": (len(rows), len(now.steps))}
        found.append(Difference(script, last, reason, None, values))
    return found


def _seen(step: Step) -> Struct:
    """The request as its version carries it, without the fields that it does not have."""
    return decode(step.api.request, step.version, memoryview(step.request_bytes))[0]
