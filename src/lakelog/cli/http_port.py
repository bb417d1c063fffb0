"""Everything behind the HTTP port, put together: health, a look inside, the index, the catalog.

Imported when the Kafka port already serves, on a thread: its libraries take a while.
"""

import socket

from starlette.routing import BaseRoute

from lakelog.config.options import Options
from lakelog.http.iceberg_messages import vend_options
from lakelog.http.iceberg_routes import IcebergPages, iceberg_routes, open_iceberg
from lakelog.http.service import serve_pages, table_routes
from lakelog.index.broker_index import BrokerIndex
from lakelog.index.broker_services import SnapshotService, WriteService
from lakelog.index.http_server import pipeline_routes, read_routes, snapshot_routes, write_routes
from lakelog.index.ports import StorePlace, public_options
from lakelog.index.table_service import TableList, TableReads
from lakelog.server.node import Node, NodeEnvironment
from lakelog.topics.cluster import PipelineToken


async def serve_http(
    node: Node, world: NodeEnvironment, options: Options, listening: socket.socket
) -> None:
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
    node: Node, world: NodeEnvironment, options: Options, catalog: IcebergPages | None
) -> list[BaseRoute]:
    broker, clock = node.broker, world.clock
    index = BrokerIndex(broker, clock)
    token = PipelineToken(world.store, world.entropy)
    place = StorePlace(world.objects.url, public_options(options.objects.options))
    reads = _table_reads(world, options)
    routes = [
        *pipeline_routes(index, token.get),
        *read_routes(index, place),
        *write_routes(WriteService(broker, clock), place),
        *snapshot_routes(SnapshotService(broker, world.store, reads, clock)),
    ]
    if reads is not None:
        tables = TableList(broker, reads, clock)
        routes += table_routes(tables.listed, tables.described)
    if catalog is not None:
        routes += iceberg_routes(catalog)
    return routes


def _table_reads(world: NodeEnvironment, options: Options) -> TableReads | None:
    """Who reads the tables of topics; None where they have none."""
    tables = options.tables
    if not tables.enabled:
        return None
    return TableReads(
        world.store, world.objects, namespace=tables.namespace, is_builtin=tables.is_builtin()
    )


def _catalog(world: NodeEnvironment, options: Options) -> IcebergPages:
    url, given = options.objects_url(), options.objects.options
    vend = vend_options(url, given, vend=options.tables.vend_credentials)
    namespace = options.tables.namespace
    return open_iceberg(world.store, world.objects, world.clock, vend=vend, namespace=namespace)
