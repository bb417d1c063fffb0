"""What `lakelog up` says when it serves: every address, and lines to paste. Pure."""

from collections.abc import Sequence
from typing import Final

TOPIC: Final = "greetings"


def box(lines: Sequence[str]) -> str:
    """The lines in a frame."""
    width = max(len(line) for line in lines)
    edge = "─" * (width + 2)
    inside = "\n".join(f"│ {line.ljust(width)} │" for line in lines)
    return f"╭{edge}╮\n{inside}\n╰{edge}╯"


def banner(  # noqa: PLR0913 - one for each line
    *,
    version: str,
    kafka: str,
    http: str | None,
    metadata: str,
    objects: str,
    took_s: float,
    pipeline: bool = False,
) -> str:
    """The box and the paste-ready lines."""
    lines = [
        f"Lakelog {version}   ready in {took_s:.2f} s",
        "",
        f"Kafka     {kafka}",
        f"HTTP      http://{http}/readyz  /metrics" if http else "HTTP      off",
        f"Metadata  {metadata}",
        f"Objects   {objects}",
        f"Pipeline  {'starts now, beside' if pipeline else 'off'}",
        "",
        "Press Ctrl+C to stop; the data stays.",
    ]
    own = "" if kafka.endswith(":9092") and kafka.startswith("127.0.0.1") else f" -b {kafka}"
    python = (
        f'python -c "from confluent_kafka import Producer;'
        f" p = Producer({{'bootstrap.servers': '{kafka}'}});"
        f" p.produce('{TOPIC}', 'hello from Python'); p.flush()\""
    )
    java = f"--bootstrap-server {kafka} --topic {TOPIC} --partition 0 --offset earliest"
    pasted = [
        "Try it, in another terminal:",
        "",
        f"  echo hello | lakelog records produce {TOPIC}{own}",
        f"  lakelog records consume {TOPIC} --offset :end{own}",
        "",
        f"  echo hello | kcat -b {kafka} -t {TOPIC} -P",
        f"  kcat -b {kafka} -t {TOPIC} -C -e",
        "",
        f"  {python}",
        "",
        f"  kafka-console-producer.sh --bootstrap-server {kafka} --topic {TOPIC}",
        f"  kafka-console-consumer.sh {java}",
    ]
    return "\n".join([box(lines), "", *pasted, ""])


def open_to_all(address: str) -> str:
    """The warning when others can reach a broker that asks nobody who he is."""
    return (
        f"WARNING: {address} can be reached from other machines, and this broker asks nobody who"
        " he is:\n"
        "         everyone who can connect may read, write and delete everything.\n"
        "         Listen on 127.0.0.1, or put a firewall in front of it."
    )
