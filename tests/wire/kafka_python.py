"""kafka-python as an oracle: its message classes, and Kafka's own definitions that it carries."""

import importlib
import json
import pkgutil
import re
import warnings
from functools import cache
from importlib import resources
from typing import Any

PACKAGES = ("consumer", "producer", "admin", "metadata")


@cache
def message_classes() -> dict[str, Any]:
    """Every message class of kafka-python, by Kafka's name."""
    with warnings.catch_warnings():
        # It reads its definitions with a function that is deprecated from Python 3.11 on.
        warnings.simplefilter("ignore", DeprecationWarning)
        modules = [importlib.import_module("kafka.protocol.sasl")]
        for name in PACKAGES:
            package = importlib.import_module(f"kafka.protocol.{name}")
            modules += [
                importlib.import_module(f"{package.__name__}.{module.name}")
                for module in pkgutil.iter_modules(package.__path__)
            ]
    return {
        name: item
        for module in modules
        for name, item in vars(module).items()
        if isinstance(item, type) and hasattr(item, "_json")
    }


@cache
def definitions() -> dict[str, Any]:
    """Kafka's definition of every message that kafka-python knows, by name."""
    message_classes()  # the first import of the package has to be this one, which allows warnings
    found = {}
    for file in resources.files("kafka.protocol.schemas.resources").iterdir():
        if file.name.endswith(".json"):
            text = re.sub(r"^\s*//.*$", "", file.read_text(), flags=re.MULTILINE)
            found[file.name.removesuffix(".json")] = json.loads(text)
    return found
