"""The pytest plugin: a broker for your own tests."""
