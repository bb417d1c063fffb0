"""What one member of a group does, as `name=value` arguments that every language can read."""

from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class MemberJob:
    """What one member process does.

    `flavour` is range, cooperative, roundrobin or consumer (KIP-848); `commits` is sync, async or
    automatic; `instance` makes a static member.
    """

    bootstrap: str
    topic: str
    group: str
    name: str
    flavour: str
    commits: str
    notes: str
    partitions: int
    instance: str = ""
    session_ms: int = 6_000
    heartbeat_ms: int = 500
    commit_every_ms: int = 250
    metadata_ms: int = 4_000

    @property
    def client_id(self) -> str:
        """Return what an administrator sees: a static member keeps its name over its lives."""
        return self.instance or self.name

    def arguments(self) -> list[str]:
        """Return the job as arguments of a command."""
        return [f"{field.name}={getattr(self, field.name)}" for field in fields(self)]


def parse_job(arguments: Sequence[str]) -> MemberJob:
    """Return the job that the arguments describe."""
    given = dict(argument.split("=", 1) for argument in arguments)
    kinds = {field.name: field.type for field in fields(MemberJob)}
    assert set(given) <= set(kinds), f"unknown: {sorted(set(given) - set(kinds))}"
    values = {name: int(text) if kinds[name] is int else text for name, text in given.items()}
    return MemberJob(**values)  # type: ignore[arg-type]  # the names and kinds are the fields' own
