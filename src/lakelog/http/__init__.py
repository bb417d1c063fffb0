"""The HTTP port of a broker: pages for people and probes, and an Iceberg REST catalog.

- `service` serves: the pages (health, metrics, a look at the index, tables), whatever routes others
  bring, and the server inside the broker's own loop. Its `Health` decides whether the broker is fit
  to serve, from the checks of its parts.
- `iceberg_routes` is the REST catalog of the tables: it answers from the catalog's tables by way of
  `iceberg_tables`, in the values of `iceberg_messages`.

The routes of the index (`lakelog.index.http_server`) are put beside these by `lakelog.cli`.
"""
