"""Files of a table as objects of the port, for code that blocks. Loads no PyIceberg.

Every file is written once, under a name that nobody else uses, and before anything names it. So a
put whose reply was lost is simply repeated, and one that stays unknown is `Unavailable`: whether
the object is there or not, nothing was changed that anybody can see.
"""

from lakelog.catalog.bridge import Calls
from lakelog.catalog.locations import Locations
from lakelog.model.failures import NotFound, OutcomeUnknown, Unavailable
from lakelog.objects.port import ObjectStore


class ObjectFiles:
    """Whole objects by location; `Refused` for a location outside the store's prefix."""

    def __init__(self, calls: Calls, objects: ObjectStore, *, put_attempts: int) -> None:
        self._calls = calls
        self._objects = objects
        self._locations = Locations.below(objects.url)
        self._put_attempts = put_attempts

    def check(self, location: str) -> None:
        """Refuse the location now if it would be refused later."""
        self._locations.key(location)

    def get(self, location: str) -> memoryview:
        """The bytes of an object; `NotFound` when it is not there."""
        key = self._locations.key(location)
        return self._calls.read(lambda: self._objects.get(key))

    def exists(self, location: str) -> bool:
        """Whether the object is there."""
        try:
            self.get(location)
        except NotFound:
            return False
        return True

    def put(self, location: str, content: bytes) -> None:
        """Store an object that nothing names yet, again when the reply was lost."""
        key = self._locations.key(location)
        said = ""
        for _ in range(self._put_attempts):
            try:
                return self._calls.write(lambda: self._objects.put(key, [content]))
            except OutcomeUnknown as error:
                said = str(error)
        raise Unavailable(f"{key}: may be stored or not, and nothing names it: {said}")

    def delete(self, location: str) -> None:
        """Delete an object; gone already is fine."""
        key = self._locations.key(location)
        self._calls.write(lambda: self._objects.delete([key]))
