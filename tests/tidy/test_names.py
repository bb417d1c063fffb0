"""Modules and classes are named with words that a newcomer knows or can look up.

A word is in the glossary, or it is one of the field: Kafka's, Iceberg's, Spark's, a database's,
Python's. Those stand in `vocabulary.txt`. Whoever needs a word that is in neither says in the
glossary what it means; a word that is not used any more leaves the list.
"""

from collections.abc import Iterator
from pathlib import Path

from tests.tidy.modules import modules, words_of
from tests.tidy.test_documents import glossary_words

VOCABULARY = Path(__file__).parent / "vocabulary.txt"


def used() -> Iterator[str]:
    """The words of module names, and the last word of each public class: what it is."""
    for module in modules().values():
        if module.is_generated or module.is_handler:
            continue
        yield from words_of(module.name.rpartition(".")[2])
        for name in module.classes:
            if not name.startswith("_"):
                yield words_of(name)[-1]


def defined() -> set[str]:
    return {word for term in glossary_words() for word in words_of(term)}


def test_a_name_is_made_of_words_of_the_field_or_of_the_glossary() -> None:
    field = VOCABULARY.read_text().split()
    assert field == sorted(set(field))
    assert set(used()) - defined() == set(field)
