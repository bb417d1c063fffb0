"""The session and the broker of the tests with Spark, and a broker's topics for each example."""

from tests.spark.conftest import broker, spark

__all__ = ["broker", "spark"]
