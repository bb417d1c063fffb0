"""What Spark is told: where it runs, its size, its settings, the files it starts with. Pure.

Rules: nothing but loopback for a local master; nothing on the terminal, for Spark's words go to a
file; nothing that grows with the number of jobs; Python workers that stay; and jobs that share the
slots instead of waiting for each other. What cannot work, executors that do not see the objects, is
refused before anything is started.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from lakelog.model.failures import Refused

ATTEMPTS: Final = 4
"""How often Spark tries a task whose process was lost; the same as on a cluster."""

_LOCAL: Final = re.compile(r"local(\[(?P<cores>\d+|\*)(\s*,\s*(?P<attempts>\d+))?\])?")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """A Spark session: of a master that this process drives, or a remote one."""

    master: str = "local[*]"
    remote: str = ""
    """Of Spark Connect, `sc://HOST:PORT`; then the master is the server's business."""
    driver_memory_bytes: int = 1 << 30
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark; they win over ours."""

    jobs_max: int = 16
    """The most jobs at the same time; further ones wait."""
    probe_s: float = 40.0
    """How often executors are looked at. Spark ends Python workers after 60 s without work, and a
    new one takes seconds to load what it needs: this also keeps them."""
    cancel_s: float = 10.0
    """How long a job that was cancelled is waited for."""

    @property
    def is_connect(self) -> bool:
        """Whether somebody else runs the driver."""
        return bool(self.remote)

    @property
    def is_local(self) -> bool:
        """Whether every executor is on this machine, and sees its files."""
        if self.remote:
            server = urlsplit(self.remote)
            return self.remote.startswith("local") or server.hostname in _LOOPBACK
        return self.master.startswith("local")

    def full_master(self) -> str:
        """The master as Spark is told it.

        Spark gives up at once on a lost Python worker for `local[N]` but not for `local[N,F]`.
        """
        found = _LOCAL.fullmatch(self.master)
        if found is None or found["attempts"]:
            return self.master
        return f"local[{found['cores'] or 1},{ATTEMPTS}]"


def check_reach(options: SparkOptions, objects_url: str) -> None:
    """Raises `Refused` when executors could not see the objects."""
    scheme = objects_url.partition(":")[0]
    where = options.remote or options.master
    if scheme == "memory":
        raise Refused(
            "the objects are in the memory of one process, and Spark's workers are others:"
            " set objects.url to a directory (file:PATH) or a bucket (s3://BUCKET)"
        )
    if scheme == "file" and not options.is_local:
        raise Refused(
            f"{where} runs on other machines, and {objects_url} is a directory of this one:"
            " set objects.url to a bucket (s3://BUCKET), or use --master 'local[*]'"
        )


LOG_FILE: Final = "spark.log"
LOG_SETTINGS_FILE: Final = "log4j2.properties"
POOLS_FILE: Final = "pools.xml"

LOG_SETTINGS: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""

POOLS: Final = """\
<?xml version="1.0"?>
<allocations>
  <pool name="default">
    <schedulingMode>FAIR</schedulingMode>
  </pool>
</allocations>
"""
"""Within a pool jobs wait for each other, also with a fair scheduler, unless it is told this."""

KILL_MS: Final = 250
"""How long the Python worker of a cancelled task may go on."""

QUICK_START: Final = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Java optimises what is hot ten times later, so that a start and the first job take 10 s of
processor time and not 15; little of our work is done by Java."""

_ALWAYS: Final = {
    "spark.app.name": "lakelog-pipeline",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.ui.retainedDeadExecutors": "5",
    "spark.ui.dagGraph.retainedRootRDDs": "20",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.python.task.killTimeout": f"{KILL_MS}ms",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
}


def settings_of(options: SparkOptions, directory: str) -> dict[str, str]:
    """Every setting of a session that this process drives; its files are in `directory`."""
    java = f"-Dlog4j2.configurationFile=file:{directory}/{LOG_SETTINGS_FILE}"
    if options.is_local:
        java = f"{java} {QUICK_START}"
    local = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": directory,
        "spark.executor.extraJavaOptions": QUICK_START,
    }
    return {
        **_ALWAYS,
        **(local if options.is_local else {}),
        "spark.master": options.full_master(),
        "spark.driver.memory": f"{options.driver_memory_bytes >> 20}m",
        "spark.driver.extraJavaOptions": java,
        "spark.scheduler.allocation.file": f"file:{directory}/{POOLS_FILE}",
        "spark.sql.warehouse.dir": f"file:{directory}/warehouse",
        **options.settings,
    }


def environment_of(options: SparkOptions, python: str) -> Mapping[str, str]:
    """What the environment must say when Spark starts."""
    if not options.is_local:
        return {}
    return {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",  # else executors listen on every interface
    }
