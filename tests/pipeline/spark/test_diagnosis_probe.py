"""Executors that do not fit are named with what they need."""

import importlib
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lakelog.model.failures import Refused
from lakelog.pipeline.spark.diagnosis import asking, explain, judge, this_process

HERE = replace(this_process(), host="worker-1", process=7)

ELSEWHERE = """
import pickle, sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("lakelog", "lz4"):
            raise ModuleNotFoundError(name)

import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in ("lakelog", "lz4") else found(name)
sys.meta_path.insert(0, Nowhere())
function = pickle.loads(sys.stdin.buffer.read())
(batch,) = function(iter(()))
(row,) = batch.to_pylist()
print(row["lakelog"], row["lacks"], row["python"], bool(row["pyarrow"]), sep="|")
"""


def test_executors_like_this_process_fit() -> None:
    judge([HERE, HERE], this_process())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lakelog": ""}, "worker-1 has no lakelog"),
        ({"lakelog": "0.0.1"}, "has lakelog 0.0.1, and this is"),
        ({"python": "3.9"}, "has Python 3.9, and this is"),
        ({"pyarrow": "3.0.0"}, "has pyarrow 3.0.0, and this is"),
        ({"lacks": "msgspec,lz4"}, "lacks msgspec,lz4"),
    ],
)
def test_one_that_differs_is_refused_with_the_remedy(
    change: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(Refused, match=complaint) as refused:
        judge([HERE, replace(HERE, **change)], this_process())
    assert "spark.archives" in str(refused.value)


def test_the_question_travels_to_a_machine_without_lakelog() -> None:
    spark_pickle = importlib.import_module("pyspark.cloudpickle")
    function: bytes = spark_pickle.dumps(asking(("numpy", "lz4")))
    assert pickle.loads(function)
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=function, capture_output=True, check=True
    )
    assert ran.stdout.decode().strip() == f"|lz4|{this_process().python}|True"


def test_what_an_executor_cannot_even_answer_to_is_explained() -> None:
    assert "executors have no pyarrow" in str(explain("x No module named 'pyarrow.lib' y"))
    assert "PYSPARK_PYTHON" in str(explain("[PYTHON_VERSION_MISMATCH] Python in worker has"))
    assert explain("Job aborted") is None
