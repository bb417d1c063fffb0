"""The copy of the keys against a plain account of what was learnt, in any order."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakelog.meta import keys
from lakelog.meta.port import KeyValue
from lakelog.model.ids import TopicId
from lakelog.topics.config_values import ConfigSource
from lakelog.topics.key_cache import TopicCache
from lakelog.topics.settings import ConfigLayer, settings
from lakelog.topics.topic import StreamSpan, Topic, TopicState, encode

NAMES = ("a.b", "a_b", "c")


def topic(name: str, version: int, state: TopicState = TopicState.LIVE) -> Topic:
    return Topic(
        name=name,
        id=TopicId(version.to_bytes(16, "big")),
        spans=(StreamSpan(0, version, 1),),
        replication_factor=1,
        configs={},
        settings=settings({}),
        state=state,
        version=version,
    )


def key_value(made: Topic) -> KeyValue:
    return KeyValue(keys.topic(made.name), encode(made, change=b""), made.version)


class Store:
    """One version counter, and the keys as they are."""

    def __init__(self) -> None:
        self.version = 0
        self.keys: dict[str, Topic] = {}

    def put(self, name: str, state: TopicState) -> Topic:
        self.version += 1
        self.keys[name] = topic(name, self.version, state)
        return self.keys[name]


def check(known: TopicCache, store: Store) -> None:
    live = {name: made for name, made in store.keys.items() if made.state is TopicState.LIVE}
    assert {made.name: made for made in known.all()} == live
    assert [made.name for made in known.all()] == sorted(live)
    assert {made.name for made in known.unfinished()} == set(store.keys) - set(live)
    for name in NAMES:
        made = live.get(name)
        assert known.visible(name) == made
        if made is not None:
            assert known.visible_id(made.id) == made
    dotted, lined = store.keys.get("a.b"), store.keys.get("a_b")
    taken = dotted is not None and dotted.state is not TopicState.DELETING
    assert known.collider("a_b") == ("a.b" if taken else None)
    assert known.collider("c") is None
    del lined


@given(st.data())
def test_whatever_was_learnt_in_whatever_order_the_newest_counts(data: st.DataObject) -> None:
    store, known = Store(), TopicCache({})
    late: list[Topic] = []  # readings that arrive after newer ones
    for _ in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(NAMES))
        match data.draw(st.sampled_from(["put", "delete", "late", "full"])):
            case "put":
                made = store.put(name, data.draw(st.sampled_from(TopicState)))
                late.append(made)
                known.learn(made)
            case "delete":
                gone = store.keys.pop(name, None)
                if gone is not None:
                    known.forget(name, version=gone.version)
                    late = [old for old in late if old.name != name]
            case "late" if late:
                known.learn(data.draw(st.sampled_from(late)))
            case _:
                with known.scan() as scan:
                    found = [key_value(made) for made in store.keys.values()]
                    if data.draw(st.booleans()):
                        known.learn(store.put(name, TopicState.LIVE))
                    known.install(scan, found)
        check(known, store)


def test_a_topic_made_while_all_are_read_is_not_forgotten() -> None:
    known = TopicCache({})
    with known.scan() as scan:
        known.learn(topic("c", 5))
        known.install(scan, [])
    assert known.visible("c") is not None


def test_a_topic_deleted_while_all_are_read_does_not_come_back() -> None:
    known = TopicCache({})
    known.learn(topic("c", 5))
    with known.scan() as scan:
        known.forget("c", version=5)
        known.install(scan, [key_value(topic("c", 5))])
    assert known.visible("c") is None


def test_a_topic_made_again_while_all_are_read_is_the_new_one() -> None:
    known = TopicCache({})
    with known.scan() as scan:
        known.forget("c", version=5)
        known.install(scan, [key_value(topic("c", 9))])
    found = known.visible("c")
    assert found is not None
    assert found.version == 9


def test_a_reading_that_failed_changes_nothing() -> None:
    known = TopicCache({})
    known.learn(topic("c", 5))
    with known.scan():
        pass
    assert known.visible("c") is not None


def test_keys_of_known_versions_are_not_decoded_again() -> None:
    known = TopicCache({})
    made = topic("c", 5)
    known.learn(made)
    with known.scan() as scan:
        known.install(scan, [replace(key_value(made), value=b"not looked at")])
    assert known.visible("c") is made


def test_a_change_of_what_can_be_seen_is_told_once_and_nothing_else_is() -> None:
    known, store = TopicCache({}), Store()
    told: list[tuple[str, ...]] = []
    known.listeners.append(lambda: told.append(tuple(made.name for made in known.all())))
    known.learn(store.put("c", TopicState.CREATING))
    assert told == []
    seen = store.put("c", TopicState.LIVE)
    known.learn(seen)
    known.learn(seen)
    assert told == [("c",)]
    other = store.put("a.b", TopicState.LIVE)
    with known.scan() as scan:
        known.install(scan, [key_value(seen), key_value(other)])
    assert told == [("c",), ("a.b", "c")]
    with known.scan() as scan:
        known.install(scan, [key_value(seen), key_value(other)])
    known.forget("c", version=store.version + 1)
    assert told == [("c",), ("a.b", "c"), ("a.b",)]


def test_a_change_that_was_worked_out_before_the_defaults_moved_follows_them() -> None:
    known = TopicCache({})
    before = topic("c", 5)
    known.learn(before)
    altered = {"retention.ms": "7"}
    known.use((ConfigLayer(ConfigSource.DEFAULT_BROKER, altered),))
    known.learn(replace(before, version=6))
    found = known.visible("c")
    assert found is not None
    assert (found.version, found.settings.retention_ms) == (6, 7)
