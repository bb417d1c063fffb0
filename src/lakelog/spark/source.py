"""The data source `lakelog`, as Spark finds it: `spark.read.format("lakelog")` and its three kin.

Spark builds this object in two or three processes and ships it with every task, so it holds only
the options, and nothing heavy is imported before a reader or a writer is asked for.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class LakelogSource(DataSource):
    """Topics as data frames and streams, with the options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lakelog"

    def schema(self) -> str:
        """The columns, with headers if they are asked for."""
        from lakelog.spark.batch_reader import schema_of  # noqa: PLC0415 - see above

        return schema_of(self.options)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Reads once."""
        from lakelog.spark.batch_reader import batch_reader  # noqa: PLC0415 - see above

        return batch_reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802 - Spark's
        """Reads in micro-batches."""
        from lakelog.spark.stream_reader import stream_reader  # noqa: PLC0415 - see above

        return stream_reader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        """Writes once."""
        from lakelog.spark.writer import batch_writer  # noqa: PLC0415 - see above

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's
        self, schema: "StructType", overwrite: bool
    ) -> "DataSourceStreamWriter":
        """Writes every micro-batch exactly once."""
        from lakelog.spark.writer import stream_writer  # noqa: PLC0415 - see above

        return stream_writer(self.options, schema, overwrite=overwrite)
