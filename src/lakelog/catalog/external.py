"""Tables of topics in a catalog that is not ours, through PyIceberg: REST, SQL, Glue, Hive.

Rules:

- The catalog keeps the pointer, and nothing else: what PyIceberg writes goes through the object
  port, whatever file system the catalog or a table's property names.
- Names are written as `escape` says, except where the catalog takes any (REST). With
  `lakelog.table-names` one chooses: `verbatim`, or `escaped` as a REST front of Glue needs it.
- A catalog's error is `Unavailable` where nothing was asked to change and `OutcomeUnknown` where
  something was, unless it says clearly that nothing did.
- A name is dropped without compare-and-swap, because PyIceberg has none: only one process, the
  pipeline that holds the lease, may drop tables here.

Properties are PyIceberg's, with a `type`:

    type=sql   uri=postgresql+psycopg2://user@host/db          (needs SQLAlchemy and the driver)
    type=rest  uri=https://host/api  warehouse=...  token=... or credential=...
    type=glue  glue.region=eu-central-1  glue.id=<account>     (needs boto3)

Glue takes its credentials from the environment or from `glue.access-key-id`,
`glue.secret-access-key`, `glue.session-token`; its tables' metadata is written by the object port
with the object store's own credentials, so that Glue itself needs no access to the bucket.
`glue.skip-archive=true` (the default) keeps Glue from holding a version for every commit. SQL is
tested; Glue and Hive were not run.

Names of topics, for catalogs that know lower-case letters, digits and underscores alone: no two
names become one, also where the catalog ignores case; and a name of lower-case words with single
underscores between them stays as it is. Two underscores begin what stands for another character:
`__d` is a dot, `__h` a hyphen, `__uo` a capital O, and `__s` an underscore that is followed by any
of these.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Lock, local
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier, Properties

from lakelog.catalog.file_io import ObjectFileIO
from lakelog.catalog.threads import Calls, ObjectFiles
from lakelog.model.failures import (
    Corrupt,
    Failure,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from lakelog.objects.port import ObjectStore

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortOrder
    from requests import Session

LENGTH_MAX: Final = 255
"""Of a name in Glue, in Hive, and in PyIceberg's SQL tables."""

_WORDS: Final = {".": "__d", "-": "__h"}
_PLAIN: Final = re.compile(r"[a-z0-9]|_(?=[a-z0-9]|\Z)")
_ESCAPED: Final = re.compile(r"([a-z0-9]|_(?=[a-z0-9]|\Z))|__(?:u([a-z])|([dhs]))")
_LETTERS: Final = {"d": ".", "h": "-", "s": "_"}


def escape(name: str) -> str:
    """The name as such a catalog takes it; `Refused` when it is too long or no topic's."""
    written = "".join(_escaped(name, place) for place in range(len(name)))
    if not written or len(written) > LENGTH_MAX:
        raise Refused(
            f"{name!r}: is written as {len(written)} characters in this catalog, "
            f"which takes 1 to {LENGTH_MAX}"
        )
    return written


def unescape(text: str) -> str | None:
    """The name that is written so, or None when no name is."""
    if len(text) > LENGTH_MAX:
        return None
    letters = []
    place = 0
    while place < len(text):
        found = _ESCAPED.match(text, place)
        if found is None:
            return None
        plain, capital, other = found.groups()
        letters.append(plain or (capital.upper() if capital else _LETTERS[other]))
        place = found.end()
    name = "".join(letters)
    # Only what we write ourselves is ours: `__s` before a plain letter, for one, is not.
    return name if name and escape(name) == text else None


def _escaped(name: str, place: int) -> str:
    letter = name[place]
    if _PLAIN.match(name, place):
        return letter
    if letter == "_":
        return "__s"
    if "A" <= letter <= "Z":
        return f"__u{letter.lower()}"
    if letter not in _WORDS:
        raise Refused(f"{name!r}: has {letter!r} in it, which no topic's name has")
    return _WORDS[letter]


NAMES_PROPERTY: Final = "lakelog.table-names"
LOAD_ATTEMPTS: Final = 5
REQUEST_S: Final = 30.0
"""How long a REST catalog may be silent; PyIceberg itself would wait for ever."""

_CATALOG: Final = "lakelog"
_RUNS_CODE: Final = "write.py-location-provider.impl"
_STYLES: Final = ("escaped", "verbatim")

_here = local()
"""The files of the operation that runs in this thread, for a class that PyIceberg makes itself."""


class PortFileIO(ObjectFileIO):
    """What PyIceberg makes when it is told to use our files by the name of a class."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(_here.files)


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose every request has a time limit."""

    def _create_session(self) -> "Session":
        session = super()._create_session()
        vars(session)["request"] = partial(session.request, timeout=REQUEST_S)
        return session


class CatalogConnections:
    """The catalog of each thread: they are dear to open, and not all are made for two threads."""

    def __init__(
        self, properties: Mapping[str, str], objects: ObjectStore, *, put_attempts: int
    ) -> None:
        self._properties = dict(properties)
        self._objects = objects
        self._put_attempts = put_attempts
        self._mine = local()
        self._lock = Lock()
        self._opened: list[Catalog] = []
        self._is_escaped = _is_escaped(properties)

    def connect(self, calls: Calls) -> "ExternalCatalog":
        """The catalog for one operation in this thread."""
        _here.files = ObjectFiles(calls, self._objects, put_attempts=self._put_attempts)
        catalog: Catalog | None = getattr(self._mine, "catalog", None)
        if catalog is None:
            # One at a time: a SQL catalog makes its own tables when it is opened first.
            with self._lock:
                catalog = self._mine.catalog = _open(self._properties)
                self._opened.append(catalog)
        return ExternalCatalog(catalog, is_escaped=self._is_escaped)

    def close(self) -> None:
        """Close what was opened."""
        with self._lock:
            for catalog in self._opened:
                catalog.close()
            self._opened.clear()


def _is_escaped(properties: Mapping[str, str]) -> bool:
    style = properties.get(NAMES_PROPERTY)
    if style is None:
        return properties.get("type", "").lower() != "rest"
    if style not in _STYLES:
        raise Refused(f"{NAMES_PROPERTY}={style!r}: is neither {' nor '.join(_STYLES)}")
    return style == "escaped"


def _open(properties: Mapping[str, str]) -> Catalog:
    given = {key: value for key, value in properties.items() if key != NAMES_PROPERTY}
    given["py-io-impl"] = f"{PortFileIO.__module__}.{PortFileIO.__qualname__}"
    if given.get("type", "").lower() == "rest":
        del given["type"]
        given["py-catalog-impl"] = f"{__name__}.{TimedRestCatalog.__qualname__}"
    elif "type" not in given and "py-catalog-impl" not in given:
        raise Refused("the catalog's properties have no type, such as type=rest or type=sql")
    try:
        catalog = load_catalog(_CATALOG, **given)
    except (ValueError, NotInstalledError) as error:
        raise Refused(f"the catalog cannot be opened: {error}") from error
    except Exception as error:  # of whichever library speaks to it
        raise Unavailable(f"the catalog does not answer: {_said(error)}") from error
    # Neither the catalog's nor a table's properties decide which code touches files.
    vars(catalog)["_load_file_io"] = _files
    return catalog


def _files(properties: Properties | None = None, location: str | None = None) -> FileIO:
    return PortFileIO({})


class ExternalCatalog:
    """A catalog of PyIceberg, with our names, our failures and our files."""

    def __init__(self, inner: Catalog, *, is_escaped: bool) -> None:
        self._inner = inner
        self._is_escaped = is_escaped

    def create_table(
        self,
        identifier: Identifier,
        schema: "Schema",
        location: str,
        partition_spec: "PartitionSpec",
        sort_order: "SortOrder",
        properties: Properties,
    ) -> Table:
        """Make a table, and its namespace before it."""
        theirs = self._written(identifier)
        with _asking(identifier, lost=OutcomeUnknown):
            try:
                if not self._inner.namespace_exists(theirs[:1]):
                    self._inner.create_namespace(theirs[:1])
            except NamespaceAlreadyExistsError:
                pass  # somebody was faster
            made = self._inner.create_table(
                theirs, schema, location, partition_spec, sort_order, properties
            )
        return self._ours(identifier, made)

    def load_table(self, identifier: Identifier) -> Table:
        """The table at its newest metadata."""
        for _ in range(LOAD_ATTEMPTS):
            try:
                with _asking(identifier, lost=Unavailable):
                    return self._ours(identifier, self._inner.load_table(self._written(identifier)))
            except NotFound:
                continue  # C8: many commits later this metadata was deleted; there is another
        raise Unavailable(f"{'/'.join(identifier)}: its metadata is not where the catalog says")

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Apply the updates if the requirements hold; errors are the catalog's own."""
        theirs = Table(
            self._written(table.name()),
            table.metadata,
            table.metadata_location,
            table.io,
            self._inner,
            table.config,
        )
        return self._inner.commit_table(theirs, requirements, updates)

    def drop_table(self, identifier: Identifier) -> None:
        """Forget the table, not its files."""
        with _asking(identifier, lost=OutcomeUnknown):
            self._inner.drop_table(self._written(identifier))

    def list_tables(self, namespace: Identifier) -> list[Identifier]:
        """The tables of a namespace whose names are such as we write."""
        (space,) = namespace
        with _asking(namespace, lost=Unavailable):
            try:
                found = self._inner.list_tables(self._written(namespace))
            except NoSuchNamespaceError:
                return []
        read = unescape if self._is_escaped else str
        ours = [read(identifier[-1]) for identifier in found]
        return [(space, name) for name in ours if name is not None]

    def _written(self, identifier: Identifier) -> Identifier:
        return tuple(escape(part) if self._is_escaped else part for part in identifier)

    def _ours(self, identifier: Identifier, table: Table) -> Table:
        if _RUNS_CODE in table.properties:
            raise Refused(f"{'/'.join(identifier)}: remove its property {_RUNS_CODE}")
        place, files = table.metadata_location, _files()
        # The library wants its own kind of catalog there, and calls nothing but `commit_table`.
        mine: Catalog = self  # type: ignore[assignment]  # see above
        return Table(identifier, table.metadata, place, files, mine, table.config)


@contextmanager
def _asking(identifier: Identifier, *, lost: Callable[[str], Failure]) -> Iterator[None]:
    """Where a catalog is asked: whatever it says that is no clear answer becomes `lost`."""
    name = "/".join(identifier)
    try:
        yield
    except (Failure, NoSuchTableError, TableAlreadyExistsError, CommitStateUnknownException):
        raise
    except NoSuchNamespaceError as error:
        raise NoSuchTableError(f"{name}: {error}") from error
    except ForbiddenError as error:
        raise Refused(f"{name}: {error}") from error
    except ValidationError as error:
        raise Corrupt(f"{name}: {error}") from error
    except Exception as error:  # of whichever library speaks to the catalog
        raise lost(f"{name}: {_said(error)}") from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"
