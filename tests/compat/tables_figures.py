"""What is compared of a table: per partition a count, sums and a hash, the same in every engine.

The hash is of whole rows: each row is written as one text, whose MD5 gives two numbers of 48 bits,
and those of all rows are added up. So it does not depend on the order of rows, but on each column
of each row, and on how often a row is there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

DIGITS = 12
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Figures:
    """One partition as an engine read it."""

    rows: int
    offsets: int
    """The sum of all offsets."""
    bytes: int
    """The bytes of keys and values."""
    hash: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """The functions that engines name differently."""

    microseconds: str
    header: str
    number: str
    quoted: str


SPARK = Dialect(
    microseconds="unix_micros(timestamp)",
    header=(
        "concat_ws(',', transform(headers, h -> concat(hex(h.key), '=', coalesce(hex(h.value), "
        f"'{ABSENT}'))))"
    ),
    number="cast(conv(substr(digest, {start}, {digits}), 16, 10) as decimal(20, 0))",
    quoted="`offset`",
)
DUCKDB = Dialect(
    microseconds="epoch_us(timestamp)",
    header=(
        "array_to_string(list_transform(headers, lambda h: hex(h.key) || '=' || "
        f"coalesce(hex(h.value), '{ABSENT}')), ',')"
    ),
    number="cast('0x' || substr(digest, {start}, {digits}) as bigint)",
    quoted='"offset"',
)


def statement(dialect: Dialect, table: str) -> str:
    """The query for the figures of all partitions."""
    columns = (
        "cast(partition as string)",
        f"cast({dialect.quoted} as string)",
        f"cast({dialect.microseconds} as string)",
        *(f"coalesce(hex({name}), '{ABSENT}')" for name in ("key", "value")),
        dialect.header,
        "cast(attributes as string)",
        f"coalesce(hex(raw), '{ABSENT}')",
    )
    first, second = (dialect.number.format(start=start, digits=DIGITS) for start in (1, DIGITS + 1))
    return (
        f"SELECT partition, count(*), sum({dialect.quoted}), sum(size), sum({first}), "
        f"sum({second}) FROM (SELECT partition, {dialect.quoted}, "
        "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) AS size, "
        f"md5(concat_ws('|', {', '.join(columns)})) AS digest FROM {table}) AS digests "
        "GROUP BY partition ORDER BY partition"
    )


def figures(rows: Iterable[Sequence[object]]) -> dict[int, Figures]:
    """Read the answer of the query."""
    found = {}
    for row in rows:
        partition, count, offsets, size, first, second = (int(str(cell)) for cell in row)
        found[partition] = Figures(count, offsets, size, f"{first:x}-{second:x}")
    return found


@dataclass(frozen=True, slots=True)
class Report:
    """What each engine read, and which engines could not be had."""

    engines: Mapping[str, Mapping[int, Figures]]
    skipped: Mapping[str, str]

    def differences(self) -> list[str]:
        """Each partition that two engines read differently; empty when all agree."""
        names = sorted(self.engines)
        partitions = sorted({number for read in self.engines.values() for number in read})
        found = []
        for number in partitions:
            read = {name: self.engines[name].get(number) for name in names}
            if len(set(read.values())) > 1:
                found.append(f"partition {number}: {read}")
        return found

    def rows(self) -> int:
        """How many rows the table has, if all engines agree."""
        assert self.engines, "no engine has read anything"
        assert not self.differences(), self.differences()
        return sum(one.rows for one in next(iter(self.engines.values())).values())
