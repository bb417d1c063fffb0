"""The pipeline from log to tables: its process, its engine (Spark) and its view of brokers."""
