"""A metadata store in memory: for tests and simulations."""
