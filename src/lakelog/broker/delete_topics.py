"""DeleteTopics (20), versions 1 to 6.

By name, and from v6 on by id: exactly one of the two, else 42. A topic that stands twice gets one
answer, 42. Unknown names are 3, unknown ids 100 with a null name; an answer for a topic that was
found carries both. `timeout_ms` bounds the request. A topic is gone when nobody can see it any
more; what it holds is freed before the answer if that is quick, else after it.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Deadline, Endpoint, Fault
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import ZERO_TOPIC_ID, TopicId
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

_UNKNOWN_NAME: Final = Fault(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
_UNKNOWN_ID: Final = Fault(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")


async def handle(
    broker: "Broker", call: Call, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete each topic, one after another."""
    deadline = Deadline(broker, call, request.timeout_ms)
    asked = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    wanted, results = _sorted_out(asked)
    stale = await deadline.attempt(broker.topics.current) if wanted else None
    if stale is not None:
        results += (_result(state, stale) for state in wanted)
    else:
        results += await _delete_found(broker, deadline, wanted)
    return DeleteTopicsResponse(responses=tuple(results))


def _sorted_out(
    asked: list[DeleteTopicState],
) -> tuple[list[DeleteTopicState], list[DeletableTopicResult]]:
    """The topics that are named well and once, and the answers for the others."""
    times = Counter((state.name, state.topic_id) for state in asked)
    results = [_result(state, fault) for state, fault in _faults(asked, times)]
    wanted = [
        state
        for state in asked
        if (state.name is None) != (state.topic_id == ZERO_TOPIC_ID)
        and times[state.name, state.topic_id] == 1
    ]
    return wanted, results


def _faults(
    asked: list[DeleteTopicState], times: Counter[tuple[str | None, bytes]]
) -> Iterator[tuple[DeleteTopicState, Fault]]:
    for state in asked:
        if state.name is None and state.topic_id == ZERO_TOPIC_ID:
            reason = "Neither topic name nor id were specified."
        elif state.name is not None and state.topic_id != ZERO_TOPIC_ID:
            reason = "You may not specify both topic name and topic id."
        else:
            continue
        yield state, Fault(ErrorCode.INVALID_REQUEST, reason)
    for (name, topic_id), count in times.items():
        if count > 1 and (name is None) != (topic_id == ZERO_TOPIC_ID):
            reason = "Duplicate topic id." if name is None else "Duplicate topic name."
            yield DeleteTopicState(name, topic_id), Fault(ErrorCode.INVALID_REQUEST, reason)


async def _delete_found(
    broker: "Broker", deadline: Deadline, wanted: list[DeleteTopicState]
) -> list[DeletableTopicResult]:
    """Delete what is there; a topic that is named both by name and by id is named twice."""
    found = [
        (state, _find(broker, state))
        async for part in broker.loop_turn.parts(wanted)
        for state in part
    ]
    times = Counter(topic.id for _, topic in found if topic is not None)
    results = []
    async for part in broker.loop_turn.parts(found):
        for state, topic in part:
            if topic is None:
                unknown = _UNKNOWN_ID if state.name is None else _UNKNOWN_NAME
                results.append(_result(state, unknown))
            elif times[topic.id] == 1:
                fault = await deadline.attempt(partial(broker.topics.delete, topic))
                results.append(_result(state, fault, topic))
            elif state.name is not None:
                reason = "The provided topic name maps to an ID that was already supplied."
                results.append(_result(state, Fault(ErrorCode.INVALID_REQUEST, reason), topic))
    return results


def _find(broker: "Broker", state: DeleteTopicState) -> "Topic | None":
    if state.name is None:
        return broker.topics.cached_id(TopicId(state.topic_id))
    return broker.topics.cached(state.name)


def _result(
    state: DeleteTopicState, fault: Fault | None, topic: "Topic | None" = None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name if topic is None else topic.name,
        topic_id=state.topic_id if topic is None else topic.id,
        error_code=ErrorCode.NONE if fault is None else fault.code,
        error_message=None if fault is None else fault.message,
    )


API: Final = Endpoint(ApiKey.DELETE_TOPICS, range(1, 7), handle)
