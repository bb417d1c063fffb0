"""Names of topics for catalogs that know lower-case letters, digits and underscores alone. Pure.

No two names become one, also where the catalog ignores case; and a name of lower-case words with
single underscores between them stays as it is. Two underscores begin what stands for another
character: `__d` is a dot, `__h` a hyphen, `__uo` a capital O, and `__s` an underscore that is
followed by any of these.
"""

import re
from typing import Final

from lakelog.model.failures import Refused

LENGTH_MAX: Final = 255
"""Of a name in Glue, in Hive, and in PyIceberg's SQL tables."""

_WORDS: Final = {".": "__d", "-": "__h"}
_PLAIN: Final = re.compile(r"[a-z0-9]|_(?=[a-z0-9]|\Z)")
_ESCAPED: Final = re.compile(r"([a-z0-9]|_(?=[a-z0-9]|\Z))|__(?:u([a-z])|([dhs]))")
_LETTERS: Final = {"d": ".", "h": "-", "s": "_"}


def escape(name: str) -> str:
    """The name as such a catalog takes it; `Refused` when it is too long or no topic's."""
    written = "".join(_escaped(name, place) for place in range(len(name)))
    if not written or len(written) > LENGTH_MAX:
        raise Refused(
            f"{name!r}: is written as {len(written)} characters in this catalog, "
            f"which takes 1 to {LENGTH_MAX}"
        )
    return written


def unescape(text: str) -> str | None:
    """The name that is written so, or None when no name is."""
    if len(text) > LENGTH_MAX:
        return None
    letters = []
    place = 0
    while place < len(text):
        found = _ESCAPED.match(text, place)
        if found is None:
            return None
        plain, capital, other = found.groups()
        letters.append(plain or (capital.upper() if capital else _LETTERS[other]))
        place = found.end()
    name = "".join(letters)
    # Only what we write ourselves is ours: `__s` before a plain letter, for one, is not.
    return name if name and escape(name) == text else None


def _escaped(name: str, place: int) -> str:
    letter = name[place]
    if _PLAIN.match(name, place):
        return letter
    if letter == "_":
        return "__s"
    if "A" <= letter <= "Z":
        return f"__u{letter.lower()}"
    if letter not in _WORDS:
        raise Refused(f"{name!r}: has {letter!r} in it, which no topic's name has")
    return _WORDS[letter]
