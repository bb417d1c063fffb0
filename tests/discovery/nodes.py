"""Nodes in this process, and waiting for what they are to agree on."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.discovery.node_process import status
from tests.discovery.stands import Stand

from lakelog.discovery import KafkaDiscovery, KafkaDiscoveryConfig, NodeMetadata, NodeState

WAIT_S_MAX = 30.0
LOOK_AGAIN_S = 0.01
SESSION_S = 2.0
HEARTBEAT_S = 0.2
TOPICS_CHECK_S = 0.3


def settings(stand: Stand, node_id: str, group: str, topics: Sequence[str]) -> dict[str, Any]:
    """A node's configuration with short times, as JSON can hold it."""
    return {
        "node_id": node_id,
        "bootstrap_servers": stand.bootstrap,
        "group_id": group,
        "topics": tuple(topics),
        "session_timeout": SESSION_S,
        "heartbeat_interval": HEARTBEAT_S,
        "max_poll_interval": 10.0,
    }


def configured(
    stand: Stand, node_id: str, group: str, topics: Sequence[str], **more: Any
) -> KafkaDiscoveryConfig:
    """The same as a configuration, and more of it; `cores` is the metadata's."""
    metadata = more.pop("metadata", NodeMetadata(cores=more.pop("cores", 1)))
    return KafkaDiscoveryConfig(
        **{**settings(stand, node_id, group, topics), "metadata": metadata, **more}
    )


@contextmanager
def started(
    stand: Stand,
    group: str,
    topics: Sequence[str],
    *node_ids: str,
    topics_check_s: float = TOPICS_CHECK_S,
    **more: Any,
) -> Iterator[list[KafkaDiscovery]]:
    """Nodes that were told to start; they stop at the end, and leave no thread behind."""
    before = set(threading.enumerate())
    with ExitStack() as stack:
        nodes = []
        for node_id in node_ids:
            made = KafkaDiscovery(
                configured(stand, node_id, group, topics, **more), topics_check_s=topics_check_s
            )
            stack.callback(made.stop)
            made.start()
            nodes.append(made)
        yield nodes
    left = [each.name for each in set(threading.enumerate()) - before if "lakelog-d" in each.name]
    assert not left, left


def eventually(what: Callable[[], object], about: Callable[[], object] = lambda: "") -> float:
    """Look again and again until that is true; the seconds that it took."""
    began_s = time.monotonic()
    while not what():
        assert time.monotonic() - began_s < WAIT_S_MAX, about()
        time.sleep(LOOK_AGAIN_S)
    return time.monotonic() - began_s


def agree(nodes: Sequence[KafkaDiscovery], partitions: int, others: Sequence[str] = ()) -> bool:
    """Whether all see each other, and each partition is one's and only one's.

    The others are nodes elsewhere; what is theirs is not known here.
    """
    names = sorted([*(str(node.node_id) for node in nodes), *others])
    views = [sorted(str(each.node_id) for each in node.members().value) for node in nodes]
    held = [partition for node in nodes for partition in node.assigned_partitions()]
    is_shared = len(set(held)) == len(held) and set(held) <= set(range(partitions))
    return (
        all(view == names for view in views)
        and len({(node.generation, node.leader) for node in nodes}) == 1
        and all(node.state is NodeState.ACTIVE for node in nodes)
        and is_shared
        and (bool(others) or len(held) == partitions)
    )


def await_agreement(
    nodes: Sequence[KafkaDiscovery], partitions: int, others: Sequence[str] = ()
) -> float:
    """Wait until they agree; the seconds that it took."""
    return eventually(
        lambda: agree(nodes, partitions, others), lambda: [status(node) for node in nodes]
    )
