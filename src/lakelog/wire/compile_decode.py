"""Turns the layout of a message into the source of a straight-line decoder.

The decoder reads `data[position:end]`, where `end` is the length of `data`, and returns the message
and the position behind it. It checks every length against the bytes that remain before it makes
anything of that length: an array needs at least (count x least element size) bytes. Reads of fixed
width need no check of their own: beyond the end they raise `IndexError` or `struct.error`, which
`codec.decode` turns into `ProtocolError`.

Objects cost many times their bytes, so a request may hold `ELEMENTS_MAX` array elements in all, far
more than any client sends: what a hostile one can make of its bytes stays below 32 MiB.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from lakelog.wire.compile_parts import SourceWriter
from lakelog.wire.layout import (
    FIXED_SIZES,
    UUID_SIZE,
    FieldLayout,
    MessageLayout,
    StructLayout,
    annotated_fields,
)

HEAD = "def decode(data, position, end):"
ELEMENTS_MAX = 131_072
"""Elements of all arrays of one request together, but for those of plain numbers."""

SIZES = FIXED_SIZES | {"B": 1, "16s": UUID_SIZE}


class DecoderSource:
    """Writes the decoder of one message in one version."""

    def __init__(self, layout: MessageLayout) -> None:
        self.layout = layout
        self.out = SourceWriter()
        # An answer comes from a broker that its reader chose; a request comes from anybody.
        self._counted = layout.root.__name__.endswith("Request")
        # Fixed-width reads wait here, so that neighbours share one call.
        self._waiting: list[tuple[str, str]] = []

    def build(self) -> tuple[str, dict[str, object]]:
        """The source, and the names it refers to."""
        self.out.line("elements = 0")
        root = self._struct(self.layout.root)
        self.out.line(f"return {root}, position")
        return self.out.function(HEAD), self.out.namespace

    def _take(self, format_code: str, stem: str) -> str:
        name = self.out.name(stem)
        self._waiting.append((format_code, name))
        return name

    def _flush(self) -> None:
        if not self._waiting:
            return
        codes = "".join(code for code, _ in self._waiting)
        size = sum(SIZES[code] for code, _ in self._waiting)
        names = ", ".join(name for _, name in self._waiting)
        self._waiting.clear()
        if codes == "B":
            self.out.line(f"{names} = data[position]")
        else:
            self.out.line(f"({names},) = {self.out.unpacker(codes)}(data, position)")
        self.out.line(f"position += {size}")

    def _struct(self, struct: type[Struct]) -> str:
        """Read a struct into a fresh local."""
        layout = self.layout.of(struct)
        values = {}
        for field in layout.plain:
            values[field.name] = self._field(field, f"{struct.__name__}.{field.name}")
        if layout.flexible:
            values |= self._tags(layout)
        self._flush()
        arguments = [
            values.get(name) or self.out.constant(default)
            for name, _, default in annotated_fields(struct)
        ]
        while arguments and annotated_fields(struct)[len(arguments) - 1][0] not in values:
            arguments.pop()  # the class fills in what this version lacks
        result = self.out.name("made")
        self.out.line(f"{result} = {self.out.constant(struct)}({', '.join(arguments)})")
        return result

    def _field(self, field: FieldLayout, what: str) -> str:
        if field.array:
            return self._array(field, what)
        if field.struct is None:
            return self._value(field, what)
        if not field.nullable or field.tag is not None:
            return self._struct(field.struct)
        mark = self._take("b", "mark")
        self._flush()
        result = self.out.name("value")
        with self.out.block(f"if {mark} < 0:"):
            self.out.line(f"{result} = None")
        with self.out.block("else:"):
            self.out.line(f"{result} = {self._struct(field.struct)}")
        return result

    def _value(self, field: FieldLayout, what: str) -> str:
        """Read a primitive, or one element of an array of primitives."""
        if field.format is not None:
            return self._take(field.format, "value")
        if field.primitive == "uuid":
            return self._take("16s", "value")
        result = self.out.name("value")
        length = self._length("h" if field.primitive == "string" else "i")
        with self._present(field, length, result, what):
            self.out.line(f"stop = position + {length}")
            self.out.line(f"if stop > end: raise too_short({what!r})")
            self.out.line(f"{result} = {_slice_source(field)}")
            self.out.line("position = stop")
        return result

    def _length(self, format_code: str) -> str:
        """Read a length or count; -1 stands for null."""
        length = self._take("B" if self.layout.flexible else format_code, "length")
        self._flush()
        if self.layout.flexible:
            self._finish_varint(length)
            self.out.line(f"{length} -= 1")
        return length

    def _finish_varint(self, name: str) -> None:
        self.out.line(f"if {name} > 127: {name}, position = read_tail(data, position, {name})")

    @contextmanager
    def _present(self, field: FieldLayout, length: str, result: str, what: str) -> Iterator[None]:
        """A block for the case that the value is there; null and bad lengths are settled."""
        with self.out.block(f"if {length} >= 0:"):
            yield
        if field.nullable:
            with self.out.block(f"elif {length} == -1:"):
                self.out.line(f"{result} = None")
        with self.out.block("else:"):
            self.out.line(f"raise bad_length({what!r}, {length})")

    def _array(self, field: FieldLayout, what: str) -> str:
        result = self.out.name("value")
        count = self._length("i")
        with self._present(field, count, result, what):
            size_min = self.layout.element_size_min(field)
            assert size_min > 0, f"nothing bounds the count of {what}"
            self.out.line(f"if {count} * {size_min} > end - position: raise too_short({what!r})")
            if field.format is not None:
                codes = f'f">{{{count}}}{field.format}"'
                self.out.line(f"{result} = unpack_from({codes}, data, position)")
                self.out.line(f"position += {count} * {size_min}")
            else:
                self._elements(field, count, result, what)
        return result

    def _elements(self, field: FieldLayout, count: str, result: str, what: str) -> None:
        items = self.out.name("items")
        if self._counted:
            self.out.line(f"elements += {count}")
            self.out.line(f"if elements > {ELEMENTS_MAX}: raise too_many({what!r})")
        self.out.line(f"{items} = []")
        with self.out.block(f"for _ in range({count}):"):
            element = self._field(replace(field, array=False, nullable=False), what)
            self._flush()
            self.out.line(f"{items}.append({element})")
        self.out.line(f"{result} = tuple({items})")

    def _tags(self, layout: StructLayout) -> dict[str, str]:
        """Read the tagged fields; those that are not sent keep their defaults."""
        count = self._take("B", "tags")
        self._flush()
        values = {}
        for field in layout.tagged:
            values[field.name] = self.out.name("value")
            self.out.line(f"{values[field.name]} = {self.out.constant(field.default)}")
        with self.out.block(f"if {count}:"):
            if layout.tagged:
                self._known_tags(layout, count, values)
            else:
                self.out.line(f"position = skip_tags(data, position, end, {count})")
        return values

    def _known_tags(self, layout: StructLayout, count: str, values: dict[str, str]) -> None:
        what = layout.struct.__name__
        previous, tag, stop = (self.out.name(stem) for stem in ("previous", "tag", "stop"))
        self._finish_varint(count)
        self.out.line(f"if {count} * 2 > end - position: raise too_short({what!r})")
        self.out.line(f"{previous} = -1")
        with self.out.block(f"for _ in range({count}):"):
            self.out.line(f"{tag}, position = read_varint(data, position)")
            self.out.line(f"{stop}, position = read_varint(data, position)")
            self.out.line(f"{stop} += position")
            self.out.line(f"if {tag} <= {previous}: raise bad_tag({what!r}, {tag})")
            self.out.line(f"if {stop} > end: raise too_short({what!r})")
            self.out.line(f"{previous} = {tag}")
            for index, field in enumerate(layout.tagged):
                with self.out.block(f"{'elif' if index else 'if'} {tag} == {field.tag}:"):
                    value = self._field(field, f"{what}.{field.name}")
                    self._flush()
                    self.out.line(f"{values[field.name]} = {value}")
                    self.out.line(f"if position != {stop}: raise bad_tag({what!r}, {tag})")
            with self.out.block("else:"):
                self.out.line(f"position = {stop}")


def _slice_source(field: FieldLayout) -> str:
    if field.primitive == "string":
        return 'str(data[position:stop], "utf-8")'
    # Records stay a view of the frame: they are copied where they are stored, and only there.
    return "data[position:stop]" if field.primitive == "records" else "bytes(data[position:stop])"
