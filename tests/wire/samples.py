"""Random messages of any class and version, made from the same field tables as the codec.

Only fields that the version has are filled, so a round trip must give back an equal message.
"""

import random
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from lakelog.wire.apis import APIS
from lakelog.wire.compile import message_layout
from lakelog.wire.layout import FieldLayout

LIMITS = {
    "b": (-(1 << 7), (1 << 7) - 1),
    "h": (-(1 << 15), (1 << 15) - 1),
    "H": (0, (1 << 16) - 1),
    "i": (-(1 << 31), (1 << 31) - 1),
    "q": (-(1 << 63), (1 << 63) - 1),
}
LETTERS = "aZ9.é漢😀"


def messages() -> Iterator[tuple[type[Struct], int]]:
    """Every message class with every version it has."""
    for api in APIS.values():
        for kind in (api.request, api.response):
            for version in api.versions:
                yield kind, version


def random_message(chance: random.Random, kind: type[Struct], version: int) -> Struct:
    """A message with random values in every field of the version."""
    return Samples(chance, kind, version).message()


class Samples:
    """A source of random messages of one class and version."""

    def __init__(self, chance: random.Random, kind: type[Struct], version: int) -> None:
        layout = message_layout(kind, version)
        assert layout is not None
        self.chance = chance
        self.layout = layout
        self.of = cache(layout.of)

    def message(self) -> Struct:
        return self.struct(self.layout.root)

    def struct(self, kind: type[Struct]) -> Struct:
        layout = self.of(kind)
        values = {}
        for field in (*layout.plain, *layout.tagged):
            if field.tag is None or self.chance.random() < 0.5:
                values[field.name] = self.field(field)
        return kind(**values)

    def field(self, field: FieldLayout) -> object:
        if field.nullable and self.chance.random() < 0.3:
            return None
        if not field.array:
            return self.element(field)
        # One array in ten is so long that its compact count takes two bytes.
        many = self.chance.random() < 0.1 and field.struct is None
        count = 130 if many else self.chance.choice((0, 1, 2, 3))
        return tuple(self.element(field) for _ in range(count))

    def element(self, field: FieldLayout) -> object:
        if field.struct is not None:
            return self.struct(field.struct)
        if field.format is not None:
            return self.number(field)
        size = self.chance.choice((0, 1, 5, 50, 126, 127, 128, 300))
        if field.primitive == "uuid":
            return self.chance.randbytes(16)
        if field.primitive == "string":
            return "".join(self.chance.choices(LETTERS, k=min(size, 130)))
        body = self.chance.randbytes(size)
        return memoryview(body) if field.primitive == "records" else body

    def number(self, field: FieldLayout) -> object:
        if field.format == "?":
            return self.chance.random() < 0.5
        if field.format == "d":
            return self.chance.uniform(-1e9, 1e9)
        assert field.format is not None
        low, high = LIMITS[field.format]
        return self.chance.choice((low, high, 0, 1, self.chance.randint(low, high)))
