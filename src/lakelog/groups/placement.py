"""Which domain's log a group lives in. Pure.

The number of domains is fixed when a cluster is made, and the hash is written down here for ever
(T2): it must not be Python's own, which differs from process to process.
"""

from hashlib import blake2b


def group_domain(group_id: str, domains: int) -> int:
    """The domain of the group."""
    return group_hash(group_id) % domains


def group_hash(group_id: str) -> int:
    """A number that spreads groups evenly, the same everywhere and for ever."""
    return int.from_bytes(blake2b(group_id.encode(), digest_size=8).digest(), "big")
