"""Turns the layout of a message into the source of a straight-line encoder.

The encoder appends the bytes of `message` to the list `run` through `put`, its bound append.
Where records are met, the run so far is joined into one part, the record buffers follow it
uncopied, and a new run begins: a response is few parts, and record bytes are never copied.
"""

from msgspec import Struct
from msgspec.structs import replace

from lakelog.wire.compile_parts import SourceWriter
from lakelog.wire.layout import FieldLayout, MessageLayout, StructLayout

HEAD = "def encode(message, parts, run, put):"


class EncoderSource:
    """Writes the encoder of one message in one version."""

    def __init__(self, layout: MessageLayout) -> None:
        self.layout = layout
        self.out = SourceWriter()
        # Fixed-width writes wait here, so that neighbours share one call.
        self._codes: list[str] = []
        self._arguments: list[str] = []

    def build(self) -> tuple[str, dict[str, object]]:
        """The source, and the names it refers to."""
        self._struct(self.layout.root, "message")
        self._flush()
        self.out.line("return")  # a message may have no fields at all
        return self.out.function(HEAD), self.out.namespace

    def _give(self, format_code: str, argument: str) -> None:
        self._codes.append(format_code)
        self._arguments.append(argument)

    def _flush(self) -> None:
        if not self._codes:
            return
        codes = "".join(self._codes)
        if codes == "x":
            self.out.line(r'put(b"\0")')
        else:
            self.out.line(f"put({self.out.packer(codes)}({', '.join(self._arguments)}))")
        self._codes.clear()
        self._arguments.clear()

    def _struct(self, struct: type[Struct], source: str) -> None:
        layout = self.layout.of(struct)
        for field in layout.plain:
            self._field(field, f"{source}.{field.name}")
        if not layout.flexible:
            return
        if layout.tagged:
            self._flush()
            self._tags(layout, source)
        else:
            self._codes.append("x")  # a zero byte: no tagged fields

    def _field(self, field: FieldLayout, source: str) -> None:
        if field.array:
            self._array(field, source)
        elif field.struct is None:
            self._value(field, source)
        elif not field.nullable or field.tag is not None:
            self._struct(field.struct, self._local(source))
        else:
            self._flush()
            value = self._local(source)
            with self.out.block(f"if {value} is None:"):
                self.out.line(r'put(b"\xff")')
            with self.out.block("else:"):
                self._give("b", "1")
                self._struct(field.struct, value)
                self._flush()

    def _local(self, source: str) -> str:
        """The value of an expression in a local, so that it is looked up once."""
        if source.isidentifier():
            return source
        name = self.out.name("value")
        self.out.line(f"{name} = {source}")
        return name

    def _value(self, field: FieldLayout, source: str) -> None:
        if field.format is not None:
            self._give(field.format, source)
        elif field.primitive == "uuid":
            self._give("16s", f"id_bytes({source})")
        elif field.nullable:
            self._flush()
            value = self._local(source)
            with self.out.block(f"if {value} is None:"):
                self.out.line(f"put({_null_source(field, flexible=self.layout.flexible)})")
            with self.out.block("else:"):
                self._sized(field, value)
                self._flush()
        else:
            self._sized(field, source)

    def _sized(self, field: FieldLayout, source: str) -> None:
        """Write a length and the bytes behind it."""
        if field.primitive == "records":
            self._records(source)
            return
        if field.primitive == "string":
            # Where older versions have no null, an empty string says it.
            blank = f'({source} or "")' if field.blank else source
            source = f"{blank}.encode()"
        value = self._local(source)
        self._length("h" if field.primitive == "string" else "i", f"len({value})")
        self._flush()
        self.out.line(f"put({value})")

    def _length(self, format_code: str, source: str) -> None:
        if not self.layout.flexible:
            self._give(format_code, source)
            return
        self._flush()
        length = self._local(f"{source} + 1")
        self.out.line(f"put(one_byte[{length}] if {length} < 128 else write_varint({length}))")

    def _records(self, source: str) -> None:
        self._flush()
        size = "compact_size" if self.layout.flexible else "plain_size"
        self.out.line(f"put_records({source}, {size}, parts, run)")

    def _array(self, field: FieldLayout, source: str) -> None:
        value = self._local(source)
        if not field.nullable:
            self._elements(field, value)
            return
        self._flush()
        with self.out.block(f"if {value} is None:"):
            self.out.line(f"put({_null_source(field, flexible=self.layout.flexible)})")
        with self.out.block("else:"):
            self._elements(field, value)
            self._flush()

    def _elements(self, field: FieldLayout, value: str) -> None:
        self._length("i", f"len({value})")
        self._flush()
        if field.format is not None:
            self.out.line(f'put(pack(f">{{len({value})}}{field.format}", *{value}))')
            return
        element = self.out.name("element")
        with self.out.block(f"for {element} in {value}:"):
            self._field(replace(field, array=False, nullable=False), element)
            self._flush()

    def _differs(self, value: str, field: FieldLayout) -> str:
        default = self.out.constant(field.default)
        if field.struct is None or field.array:
            return f"{value} != {default}"
        # Nearly always it is the default object itself, which is quicker to see than equality.
        return f"({value} is not {default} and {value} != {default})"

    def _tags(self, layout: StructLayout, source: str) -> None:
        """Write the tagged fields that differ from their defaults, in rising order."""
        values = [self._local(f"{source}.{field.name}") for field in layout.tagged]
        tests = [
            self._differs(value, field) for value, field in zip(values, layout.tagged, strict=True)
        ]
        with self.out.block(f"if {' or '.join(tests)}:"):
            # The size of a tagged field comes before it, so each is written apart.
            outer, tags = self.out.name("outer"), self.out.name("tags")
            self.out.line(f"{outer} = put")
            self.out.line(f"{tags} = []")
            for field, value, test in zip(layout.tagged, values, tests, strict=True):
                with self.out.block(f"if {test}:"):
                    apart = self.out.name("apart")
                    self.out.line(f"{apart} = []")
                    self.out.line(f"put = {apart}.append")
                    self._field(field, value)
                    self._flush()
                    self.out.line(f"{tags}.append(tagged({field.tag}, {apart}))")
            self.out.line(f"put = {outer}")
            self.out.line(f"put(write_varint(len({tags})))")
            self.out.line(f'put(b"".join({tags}))')
        with self.out.block("else:"):
            self.out.line(r'put(b"\0")')


def _null_source(field: FieldLayout, *, flexible: bool) -> str:
    if flexible:
        return r'b"\0"'
    narrow = field.primitive == "string" and not field.array
    return r'b"\xff\xff"' if narrow else r'b"\xff\xff\xff\xff"'
