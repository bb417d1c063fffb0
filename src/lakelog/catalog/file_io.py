"""PyIceberg's files as objects of the port, so that they are durable, counted and confined.

What PyIceberg writes for a commit goes the same way as everything else that is stored, whichever
catalog the table is in. A location outside of the store's prefix is `Refused`.
"""

import io

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from lakelog.catalog.threads import ObjectFiles
from lakelog.model.failures import Failure


class ObjectInput(InputFile):
    """An object to read, whole: manifests and metadata are small and read from end to end."""

    def __init__(self, location: str, files: ObjectFiles) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        return len(self._files.get(self.location))

    def exists(self) -> bool:
        """Whether the object is there."""
        return self._files.exists(self.location)

    def open(self, seekable: bool = True) -> InputStream:
        """The object's bytes; `NotFound` when it is not there."""
        return io.BytesIO(self._files.get(self.location))


class _Writing(io.BytesIO):
    """Bytes that become an object when they are closed, unless what made them failed."""

    def __init__(self, output: "ObjectOutput") -> None:
        super().__init__()
        self._output = output

    def __exit__(self, failed: object, *rest: object) -> None:
        if failed is not None:
            super().close()
        self.close()

    def close(self) -> None:
        """Put the object, once."""
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._output.put(content)


class ObjectOutput(OutputFile):
    """An object to write, whole, durable when its stream is closed."""

    def __init__(self, location: str, files: ObjectFiles) -> None:
        super().__init__(location)
        self._files = files
        self._size_bytes: int | None = None

    def __len__(self) -> int:
        if self._size_bytes is None:
            return len(self.to_input_file())
        return self._size_bytes

    def exists(self) -> bool:
        """Whether the object is there."""
        return self._files.exists(self.location)

    def to_input_file(self) -> ObjectInput:
        """The object to read."""
        return ObjectInput(self.location, self._files)

    def create(self, overwrite: bool = False) -> OutputStream:
        """A stream to write to; names are unique, so that nothing is looked for there before."""
        return _Writing(self)

    def put(self, content: bytes) -> None:
        """Store the object."""
        self._files.put(self.location, content)
        self._size_bytes = len(content)


class ObjectFileIO(FileIO):
    """PyIceberg's files as objects of the port, confined to its prefix."""

    def __init__(self, files: ObjectFiles) -> None:
        super().__init__()
        self._files = files

    def new_input(self, location: str) -> ObjectInput:
        """An object to read."""
        self._files.check(location)
        return ObjectInput(location, self._files)

    def new_output(self, location: str) -> ObjectOutput:
        """An object to write."""
        self._files.check(location)
        return ObjectOutput(location, self._files)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete an object; `OSError` when it may still be there, as PyIceberg expects it."""
        place = location if isinstance(location, str) else location.location
        try:
            self._files.delete(place)
        except Failure as error:
            raise OSError(f"{place}: {error}") from error
