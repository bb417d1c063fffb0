"""Rule 13: equal positions make equal bytes, and a reloaded state goes on like the live one."""

import pytest
from hypothesis import example, given, note, settings
from tests.domain.dump import dump_state
from tests.domain.scripts import Object, Send, Step, Upkeep, Write, scripts
from tests.domain.test_machine_model import Pair, run
from tests.profiles import examples

from lakelog.domain import pages as pages_module
from lakelog.domain.checkpoint import (
    PageName,
    assemble,
    decode_manifest,
    digest,
    encode_manifest,
    make_manifest,
)
from lakelog.domain.envelope import encode_record
from lakelog.domain.machine import apply
from lakelog.domain.pages import (
    cut_group_pages,
    cut_pages,
    decode_group_page,
    decode_page,
    encode_group_page,
    encode_page,
)
from lakelog.domain.state import DomainState
from lakelog.streams import table as columns_module
from lakelog.streams import table as table_module

Checkpoint = tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]
"""The manifest, the pages of streams, the pages of groups."""


def checkpoint_of(state: DomainState) -> Checkpoint:
    streams = [
        (page.bucket, encode_page(page)) for page in cut_pages(state, state.streams.buckets())
    ]
    groups = [
        (page.bucket, encode_group_page(page))
        for page in cut_group_pages(state.groups, set(state.groups.buckets()))
    ]
    manifest = make_manifest(state, named(streams), named(groups))
    return (
        encode_manifest(manifest),
        tuple(content for _, content in streams),
        tuple(content for _, content in groups),
    )


def named(pages: list[tuple[int, bytes]]) -> list[PageName]:
    return [PageName(bucket, digest(content), len(content)) for bucket, content in pages]


def reloaded(checkpoint: Checkpoint) -> DomainState:
    manifest, streams, groups = checkpoint
    return assemble(
        decode_manifest(manifest),
        [decode_page(page) for page in streams],
        [decode_group_page(page) for page in groups],
    )


TWO_FIT = (Send(1, 1, "giant", 1), Send(1, 1, "next", 3)) + (Send(1, 1, "retry", 2),) * 2
"""Sequences come round within one window, so two of its batches fit the last retry."""


@settings(max_examples=examples(120), deadline=None)
@example([Write("a", "next", (Object(TWO_FIT, 0),))])
@given(scripts)
def test_a_reloaded_state_goes_on_byte_for_byte_like_the_live_one(script: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Two streams a page, so that six streams make several.
        patch.setattr(table_module, "BUCKET_BITS", 1)
        patch.setattr(pages_module, "BUCKET_BITS", 1)
        patch.setattr(columns_module, "DEAD_ROWS_MIN", 2)  # one is packed when the other is not
        follow(script)


def follow(script: list[Step]) -> None:
    pair = Pair(producers_max=100)
    other = reloaded(checkpoint_of(pair.state))
    for number, step in enumerate(script):
        note(repr(step))
        seen = pair.state.position
        pair.step(step)
        for record in pair.written[seen:]:
            apply(other, encode_record(record))
        assert checkpoint_of(other) == checkpoint_of(pair.state)
        if number % 3 == 0 or isinstance(step, Upkeep):
            other = reloaded(checkpoint_of(other))


@settings(max_examples=examples(60), deadline=None)
@given(scripts)
def test_a_checkpoint_keeps_the_meaning(script: list[Step]) -> None:
    state = run(script).state
    assert dump_state(reloaded(checkpoint_of(state))) == dump_state(state)
