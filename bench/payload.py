"""Record values for load: a seeded pool, part random and part constant."""

import random

POOL_SIZE = 1_000


def payloads(record_bytes: int, random_ratio: float, seed: int) -> list[bytes]:
    """Return a pool of values of one size, of which a share is random bytes."""
    source = random.Random(seed)
    random_bytes = int(record_bytes * random_ratio)
    rest = b"x" * (record_bytes - random_bytes)
    return [source.randbytes(random_bytes) + rest for _ in range(POOL_SIZE)]
