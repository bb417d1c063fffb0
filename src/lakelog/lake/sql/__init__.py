"""SQL over topics, data files and tail together, run by DuckDB in the caller's process.

`sql_query` is what users call (`lakelog.sql`): it pins the topics of a statement to one offset
vector and returns the result as Arrow. `topic_views` finds the topics that a statement names and
writes the view for each: a scan of data files, and a relation `tail` for all rows that are in none
(pure). `duckdb_engine` parses a statement (`Statement`), binds its names to planned ranges
(`BoundStatement`) and runs it (`QueryRun`); DuckDB asks `TopicRows`, an Arrow dataset, for the
tail. A data file that is deleted during a run raises `DataFileGone`, and `sql_query` runs the
statement again at the same offsets without scanning files.
"""
