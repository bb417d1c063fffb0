"""The broker: one file per Kafka API, and the table that names them all."""
