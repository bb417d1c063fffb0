"""What Spark is told, and which stores its executors can see."""

import pytest

from lakelog.model.failures import Refused
from lakelog.pipeline.spark.settings import SparkOptions, check_reach, environment_of, settings_of


@pytest.mark.parametrize(
    ("master", "full"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_master_tries_again_when_a_worker_is_lost(master: str, full: str) -> None:
    assert SparkOptions(master=master).full_master() == full


@pytest.mark.parametrize(
    ("options", "local"),
    [
        (SparkOptions(), True),
        (SparkOptions(master="local-cluster[2,1,1024]"), True),
        (SparkOptions(master="k8s://https://host"), False),
        (SparkOptions(remote="sc://localhost:15002"), True),
        (SparkOptions(remote="sc://[::1]"), True),
        (SparkOptions(remote="sc://spark.example"), False),
    ],
)
def test_a_directory_is_for_executors_of_this_machine_alone(
    options: SparkOptions, local: bool
) -> None:
    assert options.is_local is local
    check_reach(options, "s3://bucket")
    if local:
        check_reach(options, "file:data")
    else:
        with pytest.raises(Refused, match=r"runs on other machines.*s3://BUCKET"):
            check_reach(options, "file:data")


def test_objects_in_memory_are_for_nobody() -> None:
    with pytest.raises(Refused, match="memory of one process"):
        check_reach(SparkOptions(), "memory:")


def test_a_local_session_listens_on_loopback_alone_and_writes_below_one_directory() -> None:
    settings = settings_of(SparkOptions(), "/place")
    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.local.dir"] == "/place"
    assert settings["spark.scheduler.mode"] == "FAIR"
    assert settings["spark.driver.memory"] == "1024m"
    assert environment_of(SparkOptions(), "/python") == {
        "PYSPARK_PYTHON": "/python",
        "PYSPARK_DRIVER_PYTHON": "/python",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def test_a_cluster_keeps_its_own_addresses_directories_and_python() -> None:
    options = SparkOptions(master="spark://host:7077", settings={"spark.ui.enabled": "true"})
    settings = settings_of(options, "/place")
    assert not {"spark.driver.host", "spark.local.dir"} & set(settings)
    assert settings["spark.ui.enabled"] == "true"
    assert environment_of(options, "/python") == {}
