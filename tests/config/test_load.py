"""File, environment and flags become options, or everything that is wrong with them."""

from pathlib import Path

import pytest

from lakelog.config.keys import KAFKA_NAMES, known
from lakelog.config.load import BadConfiguration, load
from lakelog.server.options import Address


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "lakelog.toml"
    file.write_text(text)
    return file


def test_without_anything_the_defaults_stand() -> None:
    options = load(None, {}, {})
    assert options.broker.listen == Address("127.0.0.1", 9092)
    assert options.metadata_url() == "sqlite:.lakelog/metadata.db"
    assert options.objects_url() == "file:.lakelog/objects"
    assert options.sources == {}


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, '[broker]\nid = 1\nzone = "a"\ndata = "here"\n')
    environment = {"LAKELOG_BROKER__ID": "2", "LAKELOG_BROKER__ZONE": "b", "PATH": "/bin"}
    options = load(file, environment, {"broker.id": "3"})
    assert (options.broker.id, options.broker.zone, options.broker.data) == (3, "b", "here")
    assert options.sources == {
        "broker.id": "flag",
        "broker.zone": "environment LAKELOG_BROKER__ZONE",
        "broker.data": str(file),
    }


def test_everything_that_is_wrong_is_said_at_once_with_where_and_what_was_meant(
    tmp_path: Path,
) -> None:
    file = written(
        tmp_path,
        '[broker]\nlistn = "127.0.0.1:1"\nid = "x"\n[log]\nlinger_ms = true\n[server]\nbacklog=0\n',
    )
    with pytest.raises(BadConfiguration) as refused:
        load(file, {"LAKELOG_OBJECTS__UR": "s3://b"}, {"broker.listen": "nowhere"})
    assert refused.value.problems == (
        f"broker.listn ({file}) is not a key; did you mean broker.listen?",
        f"broker.id ({file}) needs a number, not 'x'",
        f"log.linger_ms ({file}) needs a number, not True",
        "objects.ur (environment LAKELOG_OBJECTS__UR) is not a key; did you mean objects.url?",
        "broker.listen (flag) is 'nowhere', but must be host:port, for example 127.0.0.1:9092",
        f"[server] backlog must be greater than 0 (server.backlog from {file})",
    )
    assert "6 problems" in str(refused.value)


def test_a_file_that_is_not_there_or_not_toml_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="cannot be read: No such file"):
        load(tmp_path / "none.toml", {}, {})
    with pytest.raises(BadConfiguration, match="is not TOML"):
        load(written(tmp_path, "[broker\n"), {}, {})


def test_kafka_s_names_mean_the_same(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "num.partitions = 6\nauto.create.topics.enable = false\nlog.retention.ms = 1000\n"
        'message.max.bytes = 2048\nlisteners = "PLAINTEXT://127.0.0.1:1234"\nnode.id = 4\n',
    )
    options = load(file, {}, {})
    assert options.topics.num_partitions == 6
    assert options.topics.auto_create is False
    assert options.topics.defaults().configs() == {
        "max.message.bytes": "2048",
        "retention.ms": "1000",
    }
    assert options.broker.listen == Address("127.0.0.1", 1234)
    assert options.broker.id == 4


def test_every_kafka_name_stands_for_a_key() -> None:
    assert set(KAFKA_NAMES.values()) <= set(known())


def test_sizes_and_times_may_carry_a_unit() -> None:
    options = load(
        None,
        {"LAKELOG_SERVER__IDLE_TIMEOUT_S": "10m"},
        {"log.object_bytes_max": "4MiB", "topics.retention_ms": "7d", "log.linger_ms": "1s"},
    )
    assert options.log.object_bytes_max == 4 << 20
    assert options.topics.retention_ms == 7 * 86_400_000
    assert options.log.linger_ms == 1000
    assert options.server.idle_timeout_s == 600.0


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("log.linger_ms", "5MiB", "has the unit 'MiB'"),
        ("log.linger_ms", "1.5", "needs a whole number"),
        ("features.idempotence", "maybe", "needs true or false"),
        ("broker.id", "-1", "id must be a number from 0"),
        ("broker.id", "3 apples", "has the unit 'apples', but takes no unit"),
        ("broker.zone", "a/b", "zone is 'a/b'"),
        ("broker.advertised", "0.0.0.0:9092", "an address that clients reach"),
        ("topics.cleanup_policy", "sometimes", "cleanup.policy"),
        ("topics.num_partitions", "0", "must be greater than 0"),
        ("metadata.domains", "0", "domains must be a number from 1"),
        ("tables.namespace", "a/b", "namespace is 'a/b'"),
        ("tables.catalog", "hive", "must be one of: builtin, rest, sql, glue"),
        ("tables.options.uri", "x", "options are for catalogs other than 'builtin'"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(key: str, value: str, reason: str) -> None:
    with pytest.raises(BadConfiguration, match=reason):
        load(None, {}, {key: value})


def test_an_empty_value_unsets_what_may_be_unset() -> None:
    assert load(None, {"LAKELOG_HTTP__LISTEN": ""}, {}).http.listen is None


def test_a_table_takes_names_of_the_user_s_own() -> None:
    options = load(
        None,
        {"LAKELOG_OBJECTS__OPTIONS__SECRET_ACCESS_KEY": "s"},
        {"objects.options.region": "eu-1", "objects.url": "s3://bucket/prefix"},
    )
    assert options.objects.options == {"secret_access_key": "s", "region": "eu-1"}
    assert options.sources["objects.options.region"] == "flag"


def test_brokers_keep_tables_unless_they_are_off_or_another_catalog_s() -> None:
    assert load(None, {}, {}).tables.is_builtin()
    assert not load(None, {}, {"tables.enabled": "false"}).tables.is_builtin()
    elsewhere = load(None, {}, {"tables.catalog": "rest", "tables.options.uri": "http://c"})
    assert not elsewhere.tables.is_builtin()
    assert elsewhere.tables.options == {"uri": "http://c"}
