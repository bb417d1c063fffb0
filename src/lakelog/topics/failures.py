"""Why a change of a topic is refused: each kind carries the code that a client gets."""

from typing import ClassVar

from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure


class TopicFailure(Failure):
    """A change that cannot be made as asked; the text is for the person who asked."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


class TopicExists(TopicFailure):
    """A topic of that name is there already."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class UnknownTopic(TopicFailure):
    """There is no such topic, or it is another one than was meant."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class InvalidTopic(TopicFailure):
    """The name is not allowed, or differs from another topic's only in `.` and `_`."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class InvalidPartitions(TopicFailure):
    """The number of partitions makes no sense."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplication(TopicFailure):
    """The replication factor makes no sense."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidAssignment(TopicFailure):
    """A manual assignment names brokers or partitions that it must not."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfig(TopicFailure):
    """A config is unknown, malformed, out of bounds, or one that Lakelog cannot honour."""

    code = ErrorCode.INVALID_CONFIG


class InvalidChange(TopicFailure):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class TooLarge(TopicFailure):
    """The request is well-formed, but larger than this cluster allows."""

    code = ErrorCode.POLICY_VIOLATION
