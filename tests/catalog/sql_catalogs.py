"""Catalogs of PyIceberg on SQLite that answer badly on order."""

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table


class LosesReplies(SqlCatalog):
    """Commits and drops, and the connection breaks before the answer."""

    def commit_table(self, table: Table, *updates: Any) -> CommitTableResponse:
        super().commit_table(table, *updates)
        raise ConnectionResetError("the reply was lost")

    def drop_table(self, identifier: Any) -> None:
        super().drop_table(identifier)
        raise ConnectionResetError("the reply was lost")


class LosesCreations(SqlCatalog):
    """Makes a table, and the connection breaks before the answer."""

    def create_table(self, *arguments: Any) -> Table:
        super().create_table(*arguments)
        raise ConnectionResetError("the reply was lost")


class LosesRequests(SqlCatalog):
    """Never hears of a commit."""

    def commit_table(self, table: Table, *updates: Any) -> CommitTableResponse:
        raise ConnectionResetError("the request was lost")


class IsDown(SqlCatalog):
    """Answers nothing."""

    def load_table(self, identifier: Any) -> Table:
        raise ConnectionRefusedError("nobody is there")

    def list_tables(self, namespace: Any) -> Any:
        raise ConnectionRefusedError("nobody is there")


class Unopened(SqlCatalog):
    """Cannot even be opened."""

    def __init__(self, name: str, **properties: str) -> None:
        raise ConnectionRefusedError(name)
