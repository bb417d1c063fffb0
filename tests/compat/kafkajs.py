"""kafkajs: old and still everywhere. Its consumer works in groups only, so here it produces."""

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peer import cache_directory
from tests.compat.clients import MissingError
from tests.compat.corpus import Ability, HeaderFreedom, Record, blocks

SCRIPT = Path(__file__).with_name("kafkajs_producer.js")
PACKAGES = ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0")
TIMEOUT_S = 300.0
CONSUMER_SKIPPED = (
    "has no lz4 and no zstd without native plug-ins, and these topics hold both;"
    " it reads in groups: python -m tests.compat.groups"
)


class KafkajsProducer:
    """The JavaScript client on Node."""

    name = "kafkajs"
    ability = Ability(
        codecs=("none", "gzip", "snappy"),
        headers=HeaderFreedom.GROUPED,
        null_header_values=False,
    )
    notes: Sequence[str] = (
        "kafkajs: snappy by the plug-in kafkajs-snappy; lz4 and zstd have native plug-ins only",
    )

    def prepare(self) -> None:
        """Find Node and fetch the packages into the cache."""
        if shutil.which("node") is None:
            raise MissingError("no node on the path")
        folder = self._folder()
        if (folder / "node_modules" / "kafkajs-snappy").is_dir():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise MissingError("no npm on the path, and nothing in the cache")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        done = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES],
            cwd=folder,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise MissingError(f"npm failed: {done.stderr.decode(errors='replace')[-300:]}")

    @staticmethod
    def _folder() -> Path:
        return cache_directory() / "kafkajs"

    def write(self, bootstrap: str, topic: str, records: Sequence[Record]) -> None:
        """Write all records in order and return when all are acknowledged."""
        with tempfile.TemporaryDirectory(prefix="lakelog-kafkajs-") as folder:
            job = Path(folder, "job.json")
            content = {
                "bootstrap": bootstrap,
                "topic": topic,
                "blocks": [
                    {"codec": codec, "messages": [as_json(record) for record in block]}
                    for codec, block in blocks(records)
                ],
            }
            job.write_text(json.dumps(content))
            done = subprocess.run(
                ["node", str(SCRIPT), str(job)],
                env={"NODE_PATH": str(self._folder() / "node_modules"), "PATH": "/usr/bin:/bin"},
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace")[-600:])


def as_json(record: Record) -> dict[str, object]:
    """Return a record as the script reads it: bytes in base64, equal header names together."""
    headers: dict[str, list[str]] = {}
    for name, value in record.headers:
        headers.setdefault(name, []).append(encoded(value) or "")
    return {
        "key": encoded(record.key),
        "value": encoded(record.value),
        "partition": record.partition,
        "timestamp": str(record.timestamp_ms),
        "headers": headers,
    }


def encoded(value: bytes | None) -> str | None:
    """Return bytes in base64; null stays null."""
    return None if value is None else base64.b64encode(value).decode()
