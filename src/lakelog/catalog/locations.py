"""Object keys as locations that other engines can open, and back. Pure.

A location is the store's URL and the key. What comes back from a table's metadata may have been
written by somebody else: a location that is not plainly below the store's own prefix is `Refused`,
before anything is read, written or deleted (S3).
"""

from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from lakelog.model.failures import Refused
from lakelog.objects.confinement import is_key

_SAME_SCHEME = {"s3a": "s3", "s3n": "s3"}
"""Names under which Hadoop knows the same store."""


@dataclass(frozen=True, slots=True)
class Locations:
    """The mapping for one object store."""

    root: str
    """Ends with a slash; every location of ours begins with it."""

    @classmethod
    def below(cls, url: str) -> "Locations":
        """Locations below the URL that an object store says it has."""
        if url.startswith("file:"):
            # Engines take what follows the scheme as a path and decode nothing.
            return cls(f"file://{unquote(urlsplit(url).path).rstrip('/')}/")
        if url.rstrip(":/") == "memory":
            return cls("memory:///")
        return cls(f"{url.rstrip('/')}/")

    def location(self, key: str) -> str:
        """Where other engines find the object."""
        assert is_key(key), f"not an object key: {key!r}"
        return self.root + key

    def key(self, location: str) -> str:
        """The object's key; `Refused` when the location is not one below the root."""
        key = self._below(location)
        if key is None or not is_key(key):
            raise Refused(f"{location[:300]!r}: is outside {self.root} and is not touched")
        return key

    def _below(self, location: str) -> str | None:
        scheme, colon, rest = location.partition(":")
        if colon and scheme in _SAME_SCHEME:
            location = f"{_SAME_SCHEME[scheme]}:{rest}"
        if self.root.startswith("file://"):
            path = self.root.removeprefix("file://")
            # Java writes one slash, or encodes what we leave as it is.
            roots = [self.root, f"file:{path}", f"file://{quote(path)}", f"file:{quote(path)}"]
        else:
            roots = [self.root]
        for root in roots:
            if location.startswith(root):
                return location[len(root) :]
        return None
