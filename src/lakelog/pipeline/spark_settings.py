"""The settings and the files that Spark is started with. Pure.

Rules: nothing but loopback for a local master; nothing on the terminal, for Spark's words go to a
file; nothing that grows with the number of jobs; Python workers that stay; and jobs that share the
slots instead of waiting for each other.
"""

from collections.abc import Mapping
from typing import Final

from lakelog.pipeline.options import SparkOptions

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
