"""Everything behind the HTTP port, put together: health, a look inside, the index, the catalog.

Imported when the Kafka port already serves, on a thread: its libraries take a while.
"""

import socket

from starlette.routing import BaseRoute

from lakelog.config.options import Options
from lakelog.http.iceberg_messages import vend_options
from lakelog.http.iceberg_routes import IcebergPages, iceberg_routes, open_iceberg
from lakelog.http.pipeline import pipeline_routes
from lakelog.http.reading import StorePlace, reading_routes
from lakelog.http.reading_messages import public_options
from lakelog.http.service import serve_pages, table_routes
from lakelog.http.snapshots import snapshot_routes
from lakelog.http.writing import writing_routes
from lakelog.server.node import Node, World
from lakelog.server.pipeline_index import BrokerIndex
from lakelog.server.read_index import ReadIndex
from lakelog.server.snapshot_index import SnapshotIndex
from lakelog.server.table_list import TableList
from lakelog.server.table_metadata import TableReads
from lakelog.server.write_index import WriteIndex
from lakelog.topics.cluster import PipelineToken


async def serve_http(node: Node, world: World, options: Options, listening: socket.socket) -> None:
    """Serve until cancelled."""
    catalog = _catalog(world, options) if options.tables.is_builtin() else None
    try:
        await serve_pages(
            listening,
            checks=node.checks(),
            registry=node.metrics.registry,
            index_of=node.index_of,
            clock=world.clock,
            routes=_routes(node, world, options, catalog),
        )
    finally:
        if catalog is not None:
            await catalog.close()


def _routes(
    node: Node, world: World, options: Options, catalog: IcebergPages | None
) -> list[BaseRoute]:
    token = PipelineToken(world.store, world.entropy)
    routes = pipeline_routes(BrokerIndex(node.broker, world.clock), token.get)
    place = StorePlace(world.objects.url, public_options(options.objects.options))
    routes += reading_routes(ReadIndex(node.broker, world.clock), place)
    routes += writing_routes(WriteIndex(node.broker, world.clock), place)
    snapshots = SnapshotIndex(node.broker, world.store, _table_reads(world, options), world.clock)
    routes += snapshot_routes(snapshots)
    if options.tables.enabled:
        tables = TableList(
            node.broker,
            world.store,
            world.objects,
            world.clock,
            namespace=options.tables.namespace,
            is_builtin=options.tables.is_builtin(),
        )
        routes += table_routes(tables.listed, tables.described)
    if catalog is not None:
        routes += iceberg_routes(catalog)
    return routes


def _table_reads(world: World, options: Options) -> TableReads | None:
    """Who reads tables for `lakelog.tables`; None where topics have none."""
    tables = options.tables
    if not tables.enabled:
        return None
    return TableReads(
        world.store, world.objects, namespace=tables.namespace, is_builtin=tables.is_builtin()
    )


def _catalog(world: World, options: Options) -> IcebergPages:
    url, given = options.objects_url(), options.objects.options
    vend = vend_options(url, given, vend=options.tables.vend_credentials)
    namespace = options.tables.namespace
    return open_iceberg(world.store, world.objects, world.clock, vend=vend, namespace=namespace)
