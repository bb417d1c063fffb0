"""The bytes of nodes and facts: stable, bounded, and harmless from whoever they come."""

import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.failures import ConfigError
from lakelog.discovery.node import NodeId, NodeInfo, NodeMetadata, NodeState
from lakelog.discovery.roster import (
    FACTS_MAGIC,
    NODE_IDS_TOTAL_BYTES_MAX,
    NODE_MAGIC,
    AssignmentFacts,
    decode_facts,
    decode_node,
    digest,
    encode_facts,
    encode_node,
    fitting_node_ids,
    roster_hash,
)

NODE = NodeInfo(
    node_id=NodeId("node-1"),
    rpc_address="10.0.0.1:9100",
    raft_address="10.0.0.1:9200",
    metadata=NodeMetadata(
        cores=8,
        memory_bytes=2**35,
        failure_domain="zone-a",
        tags={"b": "2", "a": "1"},
        version="1.2.3",
        custom={"ü": "☃"},
    ),
)
NODE_BYTES = (
    b'LLN\x01{"cores":8,"custom":{"\xc3\xbc":"\xe2\x98\x83"},"domain":"zone-a","id":"node-1",'
    b'"memory":34359738368,"raft":"10.0.0.1:9200","rpc":"10.0.0.1:9100",'
    b'"tags":{"a":"1","b":"2"},"version":"1.2.3"}'
)
FACTS = AssignmentFacts(
    counts={"b": 3, "a": 2},
    roster_hash=b"h" * 16,
    seen=digest(b"me"),
    leader="node-1",
    is_awaited=True,
    member_count=2,
    node_ids=(NodeId("node-1"), NodeId("node-2")),
)

texts = st.text(st.characters(codec="utf-8"), max_size=12)
nodes = st.builds(
    NodeInfo,
    node_id=st.from_regex(r"[a-zA-Z0-9_-]{1,40}", fullmatch=True).map(NodeId),
    rpc_address=texts,
    raft_address=texts,
    metadata=st.builds(
        NodeMetadata,
        cores=st.integers(1, 1_000_000),
        memory_bytes=st.integers(0, 2**63 - 1),
        failure_domain=st.none() | texts.filter(bool),
        tags=st.dictionaries(texts, texts, max_size=4),
        version=texts,
        custom=st.dictionaries(texts, texts, max_size=4),
    ),
    state=st.sampled_from([NodeState.ACTIVE, NodeState.DRAINING]),
)


def test_a_node_has_exactly_these_bytes() -> None:
    assert encode_node(NODE) == NODE_BYTES
    assert decode_node(NODE_BYTES) == NODE


@given(nodes)
def test_a_node_is_read_as_it_was_written(node: NodeInfo) -> None:
    assert decode_node(encode_node(node)) == node


def test_equal_nodes_have_equal_bytes_in_another_process_with_another_hash_seed() -> None:
    program = (
        "import sys; from lakelog.discovery.node import *;"
        "from lakelog.discovery.roster import encode_node;"
        "tags = {text: '1' for text in {'x', 'y', 'z', 'w'}};"
        "node = NodeInfo(NodeId('n'), metadata=NodeMetadata(tags=tags, version='1'));"
        "sys.stdout.buffer.write(encode_node(node))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    tags = dict.fromkeys("wxyz", "1")
    mine = NodeInfo(NodeId("n"), metadata=NodeMetadata(tags=tags, version="1"))
    assert found == {encode_node(mine)}


@pytest.mark.parametrize("state", [NodeState.JOINING, NodeState.ACTIVE, NodeState.SUSPECTED])
def test_what_changes_by_itself_does_not_change_the_bytes(state: NodeState) -> None:
    moved = NodeMetadata(cores=2, owned_partitions=(1, 2, 3))
    one = NodeInfo(NodeId("n"), metadata=moved, state=state)
    assert encode_node(one) == encode_node(NodeInfo(NodeId("n"), metadata=NodeMetadata(cores=2)))


def test_a_node_that_says_too_much_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most 2048 bytes"):
        encode_node(NodeInfo(NodeId("n"), metadata=NodeMetadata(custom={"a": "x" * 2048})))


def test_a_newer_version_is_read_as_ours_and_an_older_one_is_not() -> None:
    newer = NODE_MAGIC + b"\x07" + NODE_BYTES[4:-1] + b',"zeta":[{"a":1}]}'
    assert decode_node(newer) == NODE
    assert decode_node(NODE_MAGIC + b"\x00" + NODE_BYTES[4:]) is None


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"LLN",
        b"LLN\x01",
        b"LLA\x01" + NODE_BYTES[4:],
        NODE_BYTES[:-1],
        b"LLN\x01[]",
        b"LLN\x01{}",
        b'LLN\x01{"id":""}',
        b'LLN\x01{"id":".."}',
        b'LLN\x01{"id":5}',
        b'LLN\x01{"id":"a","cores":0}',
        b'LLN\x01{"id":"a","cores":1000001}',
        b'LLN\x01{"id":"a","cores":1e400}',
        b'LLN\x01{"id":"a","memory":99999999999999999999999}',
        b'LLN\x01{"id":"a","rpc":"' + b"x" * 256 + b'"}',
        b'LLN\x01{"id":"a","tags":{"a":1}}',
        b'LLN\x01{"id":"\xff"}',
        b'LLN\x01{"id":"a","x":' + b"[" * 1900,
        b'LLN\x01{"id":"a","x":"' + b"y" * 4096 + b'"}',
    ],
)
def test_bytes_that_are_no_node_are_nothing(data: bytes | None) -> None:
    assert decode_node(data) is None


@given(st.binary(max_size=200), st.integers(0, 255), st.integers(0, len(NODE_BYTES) - 1))
def test_any_bytes_are_nothing_or_what_can_be_sent_on(noise: bytes, byte: int, place: int) -> None:
    made = noise, NODE_MAGIC + b"\x01" + noise, FACTS_MAGIC + b"\x01" + noise
    damaged = (changed(good, place, byte) for good in (NODE_BYTES, encode_facts(FACTS)))
    for data in (*made, *damaged):
        node, facts = decode_node(data), decode_facts(data)
        assert node is None or decode_node(encode_node(node)) == node
        assert facts is None or decode_facts(encode_facts(facts)) == facts
        assert node is None or facts is None


def changed(data: bytes, place: int, byte: int) -> bytes:
    place %= len(data)
    return data[:place] + bytes([byte]) + data[place + 1 :]


def test_facts_are_read_as_they_were_written() -> None:
    assert decode_facts(encode_facts(FACTS)) == FACTS
    bare = AssignmentFacts(counts={}, roster_hash=bytes(16))
    assert decode_facts(encode_facts(bare)) == bare


def test_node_ids_that_unfold_without_end_are_no_facts() -> None:
    bomb = zlib.compress(b"a\n" * (4 << 20), 9)
    assert len(bomb) < 20_000
    whole = encode_facts(FACTS)
    from_bomb = encode_facts(
        AssignmentFacts(counts={}, roster_hash=bytes(16), node_ids=(NodeId("a\n" * (4 << 20)),))
    )
    assert decode_facts(whole) is not None
    assert decode_facts(from_bomb) is None


def test_node_ids_are_carried_while_all_assignments_together_stay_small() -> None:
    few = [f"node-{number}" for number in range(200)]
    assert fitting_node_ids(reversed(few), 200) == tuple(sorted(few))
    long = [f"{digest(str(number).encode()).hex()}" * 3 for number in range(2000)]
    assert fitting_node_ids(long, 2000) == ()
    carried = encode_facts(
        AssignmentFacts(
            counts={"t": 64}, roster_hash=bytes(16), node_ids=fitting_node_ids(few, 200)
        )
    )
    assert 200 * len(carried) < 1.5 * NODE_IDS_TOTAL_BYTES_MAX


def test_the_hash_depends_on_every_byte_and_on_no_order() -> None:
    members = [("a", b"1"), ("b", b"2"), ("c", b"")]
    expected = roster_hash(members)
    assert roster_hash(reversed(members)) == expected
    for other in (
        [("a", b"1"), ("b", b"2")],
        [("a", b"1"), ("b", b"2"), ("c", b"\0")],
        [("a", b"2"), ("b", b"1"), ("c", b"")],
        [("a1", b""), ("b", b"2"), ("c", b"")],
    ):
        assert roster_hash(other) != expected
