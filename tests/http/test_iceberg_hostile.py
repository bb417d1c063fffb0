"""Whatever a stranger sends is answered with a reason, and leaves the table as it was."""

from typing import Any

import pytest
from tests.http.iceberg_client import COMMENT, TABLE, Client, over
from tests.http.iceberg_kit import NAMESPACE, Stores, nothing

from lakelog.http.iceberg_routes import BODY_BYTES_MAX, DRAINED_BYTES_MAX


@pytest.mark.parametrize(
    "path",
    [
        "/v1/namespaces/%FF/tables",
        "/v1/namespaces/%ED%A0%80",
        "/v1/namespaces/" + "x" * 501,
        "/v1/%80",
    ],
)
def test_a_path_that_is_no_text_is_a_bad_request(path: str) -> None:
    async def work(client: Client, _: Stores) -> None:
        assert (await client.ask("GET", path)).error[:2] == (400, "BadRequestException")

    over(work, setup=nothing)


@pytest.mark.parametrize("path", ["%2e%2e", "..%2f..", "%00", "a%2Fb", "%25", "%", "%zz", "a%0Ab"])
def test_a_strange_name_is_that_of_no_table(path: str) -> None:
    async def work(client: Client, _: Stores) -> None:
        for full in (f"/v1/namespaces/{path}/tables/t", f"/v1/namespaces/n/tables/{path}"):
            assert (await client.ask("GET", full)).status == 404

    over(work, setup=nothing)


BODIES: list[Any] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"{}",
    b'{"requirements":[],"updates":',
    b'{"requirements":[],"updates":{}}',
    b'{"requirements":null,"updates":[]}',
    b'{"requirements":[],"updates":[1]}',
    b'{"requirements":[],"updates":[{"action":1}],"identifier":7}',
    b'{"requirements":[],"updates":["\xff"]}',
    b'{"requirements":[{"type":"\\ud800"}],"updates":[]}',
    b'{"requirements":[],"updates":[{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}]}",
    b"[" * 100_000,
    {"requirements": [{"type": "assert-nothing"}], "updates": []},
    {"requirements": [{}], "updates": []},
    {"requirements": [{"type": "assert-table-uuid", "uuid": "no"}], "updates": []},
    {"requirements": [{"type": "assert-ref-snapshot-id", "ref": 5}], "updates": []},
    {**COMMENT, "identifier": {"namespace": [NAMESPACE], "name": "other"}},
    {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": None}}]},
    {"requirements": [], "updates": [{"action": "set-properties", "updates": 5}]},
    {"requirements": [], "updates": [{"action": "set-current-schema", "schema-id": 9}]},
    {"requirements": [], "updates": [{"action": "set-current-schema", "schema-id": -1}]},
    {
        "requirements": [],
        "updates": [
            {"action": "set-snapshot-ref", "ref-name": "t", "type": "tag", "snapshot-id": 1}
        ],
    },
]


def test_a_body_that_is_no_commit_is_a_bad_request_and_changes_nothing() -> None:
    async def work(client: Client, _: Stores) -> None:
        before = (await client.ask("GET", TABLE)).body
        for body in BODIES:
            answer = await client.ask("POST", TABLE, body=body)
            assert answer.error[:2] == (400, "BadRequestException"), (str(body)[:100], answer.body)
            assert len(answer.error[2]) <= 1000
        for body in BODIES[:14]:
            answer = await client.ask("POST", f"{TABLE}/metrics", body=body)
            assert answer.error[0] == 400, str(body)[:100]
        assert (await client.ask("GET", TABLE)).body == before

    over(work)


@pytest.mark.parametrize("size", [BODY_BYTES_MAX + 1, DRAINED_BYTES_MAX + 100_000])
def test_a_body_that_is_too_large_is_a_bad_request_that_says_how_large_one_may_be(
    size: int,
) -> None:
    async def work(client: Client, _: Stores) -> None:
        for path in (TABLE, f"{TABLE}/metrics"):
            answer = await client.ask("POST", path, body=b" " * size)
            assert answer.error[0] == 400
            assert f"{BODY_BYTES_MAX} bytes" in answer.error[2]

    over(work, setup=nothing)
