"""How much a node may say about itself. Pure.

What a node announces is in the group's one record on the broker with what all others announce, so
it is small: 2 KiB a node leaves room for several hundred nodes in Kafka's 1 MiB.
"""

from collections.abc import Mapping
from typing import Final

from lakelog.discovery.failures import ConfigError
from lakelog.discovery.node import NodeMetadata

CORES_MAX: Final = 1_000_000
MEMORY_BYTES_MAX: Final = 2**63 - 1
TEXT_CHARACTERS_MAX: Final = 255
"""Of an address, a failure domain or a version."""
NODE_BYTES_MAX: Final = 2048
"""Of everything a node announces, encoded."""


def check_metadata(metadata: NodeMetadata) -> None:
    """Raise ConfigError if this cannot be announced."""
    _check_number(metadata.cores, "metadata.cores", 1, CORES_MAX)
    _check_number(metadata.memory_bytes, "metadata.memory_bytes", 0, MEMORY_BYTES_MAX)
    _check_text(metadata.version, "metadata.version")
    if metadata.failure_domain is not None:
        _check_text(metadata.failure_domain, "metadata.failure_domain")
        if not metadata.failure_domain:
            raise ConfigError("metadata.failure_domain must not be empty: leave it out")
    _check_texts(metadata.tags, "metadata.tags")
    _check_texts(metadata.custom, "metadata.custom")


def _check_number(value: object, name: str, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{name} must be a number from {least} to {most}, not {value!r}")


def _check_text(value: object, name: str) -> None:
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX or not _is_utf8(value):
        raise ConfigError(f"{name} must be a text of at most {TEXT_CHARACTERS_MAX} characters")


def _check_texts(value: object, name: str) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be a mapping of texts to texts")
    for pair in value.items():
        if not all(isinstance(part, str) and _is_utf8(part) for part in pair):
            raise ConfigError(f"{name} must be a mapping of texts to texts")


def _is_utf8(text: str) -> bool:
    """A lone surrogate is a text in Python and nowhere else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
