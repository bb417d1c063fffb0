"""What a script is, and the table of all scripts.

A script is a function that plays its steps on a stage. It uses group ids and topics that begin with
its own name, so that all scripts of a profile share one broker, in any order.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.golden.groups.stage import NoAnswerError, Stage, Step

Play: TypeAlias = Callable[[Stage], Awaitable[None]]

PROMPT: Final = "prompt"
SHORT: Final = "short"

PROFILES: Final[dict[str, dict[str, str]]] = {
    PROMPT: {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.migration.policy": "disabled",
        # At once and before the answer, so that a heartbeat tells what its own change led to.
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.assignor.offload.enable": "false",
    },
    SHORT: {
        "group.initial.rebalance.delay.ms": "300",
        "group.consumer.migration.policy": "disabled",
        "group.min.session.timeout.ms": "500",
        "group.max.size": "3",
        "group.consumer.max.size": "3",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.assignment.interval.ms": "500",
    },
}
"""How the broker is set up, by Kafka's names: at once, or with short times and small groups."""


@dataclass(frozen=True, slots=True)
class Script:
    """One script: its name, the profile of its broker, its steps."""

    name: str
    profile: str
    play: Play


SCRIPTS: Final[dict[str, Script]] = {}
"""Every script by its name, filled by `script`."""


def script(profile: str = PROMPT) -> Callable[[Play], Play]:
    """Enter a function into the table under its own name."""

    def enter(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        assert name not in SCRIPTS, name
        SCRIPTS[name] = Script(name, profile, play)
        return play

    return enter


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a script: its steps, and why it ended early if it did."""

    steps: list[Step]
    failure: str = ""


async def played(found: Script, host: str, port: int) -> Played:
    """Play a script on fresh connections."""
    stage = Stage(found.name, host, port)
    try:
        await found.play(stage)
    except (NoAnswerError, OSError) as reason:
        return Played(stage.steps, str(reason))
    finally:
        await stage.close()
    return Played(stage.steps)
