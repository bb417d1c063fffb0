"""Plain requests become rows; nobody can tell it from any answer."""

import pytest
from tests.server.produce_ways import Conversation, conversation_of, heard
from tests.sides import native

SEEDS = 150


@pytest.fixture(autouse=True)
def _compiled() -> None:
    native()


@pytest.mark.parametrize("first", range(0, SEEDS, 15))
def test_both_ways_answer_alike(first: int) -> None:
    """`python -m tests.server.produce_ways` compares as many as you like."""
    for seed in range(first, first + 15):
        conversation = conversation_of(seed)
        by_rows, _ = heard(conversation, rows=True)
        one_by_one, _ = heard(conversation, rows=False)
        assert by_rows == one_by_one, f"seed {seed}"


def test_most_of_what_clients_send_becomes_rows() -> None:
    """Else the comparison would compare the ordinary way with itself."""
    conversations = [conversation_of(seed) for seed in range(40)]
    requests = sum(conversation.requests for conversation in conversations)
    rows = sum(heard(conversation, rows=True)[1] for conversation in conversations)
    assert rows > requests / 2


@pytest.mark.parametrize("step", [1, 2, 3, 7, 61, 1000])
def test_bytes_may_come_in_pieces_of_any_size(step: int) -> None:
    whole = b"".join(conversation_of(3).pieces)
    pieces = tuple(whole[at : at + step] for at in range(0, len(whole), step))
    in_pieces, _ = heard(Conversation(pieces, 0), rows=True)
    at_once, _ = heard(Conversation((whole,), 0), rows=False)
    assert in_pieces == at_once
    assert in_pieces.sent
