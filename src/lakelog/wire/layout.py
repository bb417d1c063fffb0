"""One version's view of a message class: which fields stand on the wire, in which order.

The answers are read from the `Field` annotations of the classes; nothing here looks at bytes.
"""

from functools import cache
from typing import Annotated, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields as struct_fields
from msgspec.structs import replace

from lakelog.wire.schema import Field, MessageVersions

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
}
FIXED_SIZES = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "q": 8, "d": 8}
UUID_SIZE = 16


class FieldLayout(Struct, frozen=True):
    """One field in one version.

    Exactly one of `format` (a fixed-width number), `struct` and `primitive` is set; with `array`
    it describes the elements. `blank` says that null is allowed in later versions only, and that a
    null string is therefore written as an empty one.
    """

    name: str
    default: object
    array: bool
    nullable: bool
    blank: bool
    tag: int | None
    format: str | None = None
    struct: type[Struct] | None = None
    primitive: str | None = None


class StructLayout(Struct, frozen=True):
    """One struct in one version: its plain fields in wire order and its tagged fields by tag."""

    struct: type[Struct]
    plain: tuple[FieldLayout, ...]
    tagged: tuple[FieldLayout, ...]
    flexible: bool


class MessageLayout(Struct, frozen=True):
    """A message in one version: what the compiler turns into code."""

    root: type[Struct]
    version: int
    flexible: bool

    def of(self, struct: type[Struct]) -> StructLayout:
        """The layout of a struct that this message holds."""
        rows = [
            (name, field, default)
            for name, field, default in annotated_fields(struct)
            if field.since <= self.version < field.until
        ]
        ordered: list[FieldLayout] = []
        for name, field, default in rows:
            layout = self._field(name, field, default)
            names = [other.name for other in ordered]
            # An old field is declared last, but stands before the field it names.
            place = names.index(field.before) if field.before in names else len(ordered)
            ordered.insert(place, layout)
        return StructLayout(
            struct,
            plain=tuple(field for field in ordered if field.tag is None),
            tagged=tuple(
                sorted((field for field in ordered if field.tag is not None), key=_tag_of)
            ),
            flexible=self.flexible,
        )

    def _field(self, name: str, field: Field, default: object) -> FieldLayout:
        nullable = field.nullable_from is not None and self.version >= field.nullable_from
        layout = FieldLayout(
            name,
            default,
            array=field.array,
            nullable=nullable,
            blank=field.nullable_from is not None and not nullable,
            tag=field.tag,
        )
        if not isinstance(field.kind, str):
            return replace(layout, struct=field.kind)
        if field.kind in FIXED_FORMATS:
            return replace(layout, format=FIXED_FORMATS[field.kind])
        return replace(layout, primitive=field.kind)

    def element_size_min(self, field: FieldLayout) -> int:
        """The fewest bytes that one value (or array element) of a field can take."""
        if field.format is not None:
            return FIXED_SIZES[field.format]
        if field.struct is not None:
            return self.struct_size_min(field.struct)
        if field.primitive == "uuid":
            return UUID_SIZE
        if self.flexible:
            return 1
        return 2 if field.primitive == "string" else 4

    def struct_size_min(self, struct: type[Struct]) -> int:
        """The fewest bytes that a struct can take; never 0, so that counts are always bounded."""
        layout = self.of(struct)
        return sum(map(self.field_size_min, layout.plain)) + (1 if self.flexible else 0)

    def field_size_min(self, field: FieldLayout) -> int:
        """The fewest bytes that a plain field can take."""
        if field.array:
            return 1 if self.flexible else 4
        if field.struct is not None and field.nullable:
            return 1
        return self.element_size_min(field)


def _tag_of(field: FieldLayout) -> int:
    assert field.tag is not None
    return field.tag


@cache
def annotated_fields(struct: type[Struct]) -> tuple[tuple[str, Field, object], ...]:
    """Name, wire description and default of every field of a message class, as declared."""
    hints = get_type_hints(struct, include_extras=True)
    found = []
    for info in struct_fields(struct):
        hint = hints[info.name]
        assert get_origin(hint) is Annotated, (struct, info.name)
        (description,) = [item for item in get_args(hint) if isinstance(item, Field)]
        found.append((info.name, description, info.default))
    return tuple(found)


def message_versions(message: type[Struct]) -> MessageVersions:
    """The versions of a message class; a struct that is only a part of messages has none."""
    versions = getattr(message, "versions", None)
    assert isinstance(versions, MessageVersions), f"{message.__name__} is not a whole message"
    return versions
