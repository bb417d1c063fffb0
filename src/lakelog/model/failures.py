"""Failures of the world, named for what the caller does next.

Three of them describe a write to a store. The difference between `Unavailable` and
`OutcomeUnknown` is a promise: the first says that certainly nothing was written. Any error after
the first byte of a request left, and any cancellation, is the second (rule 5).
"""


class Failure(Exception):  # noqa: N818 - the subclasses read as what happened, not as "...Error"
    """The base of every named failure of the world."""


class Conflict(Failure):
    """Nothing was written, because the key changed meanwhile: read again and decide again."""


class Unavailable(Failure):
    """Certainly nothing was written: try again later."""


class OutcomeUnknown(Failure):
    """The write may or may not have happened: find out before acting on either."""


class NotFound(Failure):
    """The object or key named is not there."""


class Corrupt(Failure):
    """Stored bytes are not what was written: never serve them, never skip them, raise an alarm."""


class WentBack(Failure):
    """The store lost what it had acknowledged: stop and let a human look (A5)."""


class WriterFenced(Failure):
    """Another process has taken this one's place: end it, nothing it writes counts any more."""


class Refused(Failure):
    """The configuration or the stored data forbids starting; the text says what to do."""
