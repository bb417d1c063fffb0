"""Lakelog: a Kafka-compatible log in object storage, in which every topic is a table."""

__version__ = "0.1.0"
