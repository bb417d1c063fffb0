"""The catalog's answers, asked over its application."""

import pytest
from tests.catalog.kit import Fault
from tests.http.iceberg_client import COMMENT, TABLE, Client, over
from tests.http.iceberg_kit import NAMESPACE, Stores, nothing, plain_batches

from lakelog.http.iceberg_messages import VendOptions


async def many(stores: Stores) -> None:
    for number in range(7):
        await stores.create(f"t{number}")


def test_what_is_announced_is_what_is_served() -> None:
    async def work(client: Client, _: Stores) -> None:
        config = (await client.ask("GET", "/v1/config", query="warehouse=anything")).json
        assert config["defaults"] == {}
        assert config["overrides"] == {}
        assert len(config["endpoints"]) == 8
        for endpoint in config["endpoints"]:
            method, _, path = endpoint.partition(" ")
            path = path.replace("/{prefix}", "").format(namespace=NAMESPACE, table="orders")
            body = {"report-type": "scan-report"} if path.endswith("metrics") else COMMENT
            answer = await client.ask(method, path, body=body)
            assert answer.status in (200, 204), endpoint

    over(work)


def test_namespaces_are_those_with_tables_and_the_one_of_topics() -> None:
    async def work(client: Client, _: Stores) -> None:
        assert (await client.ask("GET", "/v1/namespaces")).json == {
            "namespaces": [[NAMESPACE]],
            "next-page-token": None,
        }
        inner = await client.ask("GET", "/v1/namespaces", query=f"parent={NAMESPACE}&pageToken=")
        assert inner.json["namespaces"] == []
        missing = await client.ask("GET", "/v1/namespaces", query="parent=other")
        assert missing.error[:2] == (404, "NoSuchNamespaceException")
        found = await client.ask("GET", f"/v1/namespaces/{NAMESPACE}")
        assert found.json == {"namespace": [NAMESPACE], "properties": {}}
        head = await client.ask("HEAD", f"/v1/namespaces/{NAMESPACE}")
        assert (head.status, head.body) == (204, b"")
        empty = await client.ask("GET", f"/v1/namespaces/{NAMESPACE}/tables")
        assert empty.json == {"identifiers": [], "next-page-token": None}
        for absent in ("other", f"{NAMESPACE}%1Fnested", "%E2%82%AC", "a+b"):
            for method, path in (("GET", ""), ("HEAD", ""), ("GET", "/tables")):
                answer = await client.ask(method, f"/v1/namespaces/{absent}{path}")
                assert answer.status == 404, absent
                if answer.body:
                    assert answer.error[1] == "NoSuchNamespaceException"

    over(work, setup=nothing)


def test_tables_come_in_pages_or_all_at_once() -> None:
    async def work(client: Client, stores: Stores) -> None:
        path = f"/v1/namespaces/{NAMESPACE}/tables"
        names = [f"t{number}" for number in range(7)]

        async def listed(query: str) -> tuple[list[str], str | None]:
            answer = (await client.ask("GET", path, query=query)).json
            assert all(one["namespace"] == [NAMESPACE] for one in answer["identifiers"])
            return [one["name"] for one in answer["identifiers"]], answer["next-page-token"]

        assert await listed("") == (names, None)
        assert await listed("pageToken=") == (names, None)
        assert await listed("pageSize=7") == (names, None)
        first, token = await listed("pageSize=3&pageToken=")
        assert first == names[:3]
        await stores.create("t2-new")  # what is behind the token is found, what is before it not
        second, token = await listed(f"pageSize=3&pageToken={token}")
        assert second == ["t2-new", "t3", "t4"]
        assert await listed(f"pageSize=3&pageToken={token}") == (["t5", "t6"], None)
        for query in (
            "pageSize=0",
            "pageSize=-1",
            "pageSize=x",
            "pageSize=",
            "pageSize=9999999999",
        ):
            assert (await client.ask("GET", path, query=query)).error[0] == 400
        for token in ("!", "%FF", "YWI", "/w==", "-w==", "%00"):
            answer = await client.ask("GET", path, query=f"pageToken={token}")
            assert answer.error[0] == 400, token

    over(work, setup=many)


def test_a_table_is_answered_with_the_bytes_that_are_stored() -> None:
    async def work(client: Client, stores: Stores) -> None:
        answer = await client.ask("GET", TABLE, headers={"Authorization": "Bearer None"})
        assert answer.headers["content-type"] == "application/json"
        place = answer.json["metadata-location"]
        stored = await stores.objects.get(place.removeprefix("memory:///"))
        assert bytes(stored) in answer.body
        assert answer.json["metadata"]["properties"]["lakelog.topic"] == "orders"
        assert answer.json["config"] == {}
        assert "storage-credentials" not in answer.json
        head = await client.ask("HEAD", TABLE)
        assert (head.status, head.body) == (204, b"")
        for path in (f"/v1/namespaces/{NAMESPACE}/tables/other", "/v1/namespaces/n/tables/orders"):
            assert (await client.ask("GET", path)).error[:2] == (404, "NoSuchTableException")
            assert (await client.ask("HEAD", path)).status == 404
        # Spark asks so for `lakelog.orders.snapshots`, and goes on only after this error.
        nested = await client.ask("GET", f"/v1/namespaces/{NAMESPACE}%1Forders/tables/snapshots")
        assert nested.error[:2] == (404, "NoSuchTableException")

    over(work)


def test_only_the_snapshots_that_something_names_are_sent_when_asked_for() -> None:
    async def work(client: Client, _: Stores) -> None:
        everything = (await client.ask("GET", TABLE, query="snapshots=all")).json["metadata"]
        assert len(everything["snapshots"]) == 2
        referenced = await client.ask("GET", TABLE, query="snapshots=refs")
        metadata = referenced.json["metadata"]
        newest = everything["current-snapshot-id"]
        assert [one["snapshot-id"] for one in metadata["snapshots"]] == [newest]
        assert {**metadata, "snapshots": everything["snapshots"]} == everything
        old = next(
            one["snapshot-id"] for one in everything["snapshots"] if one["snapshot-id"] != newest
        )
        tag = {"action": "set-snapshot-ref", "ref-name": "t", "type": "tag", "snapshot-id": old}
        tagged = await client.ask("POST", TABLE, body={"requirements": [], "updates": [tag]})
        assert tagged.status == 200
        referenced = await client.ask("GET", TABLE, query="snapshots=refs")
        assert len(referenced.json["metadata"]["snapshots"]) == 2
        assert (await client.ask("GET", TABLE, query="snapshots=some")).error[0] == 400

    over(work)


def test_a_tag_names_one_answer_until_the_table_moves() -> None:
    async def work(client: Client, stores: Stores) -> None:
        first = await client.ask("GET", TABLE)
        tag = first.headers["etag"]
        refs = await client.ask("GET", TABLE, query="snapshots=refs")
        assert refs.headers["etag"] != tag
        for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = await client.ask("GET", TABLE, headers={"If-None-Match": sent})
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag), sent
        for sent in ('"other"', refs.headers["etag"], "", tag.strip('"')):
            assert (await client.ask("GET", TABLE, headers={"If-None-Match": sent})).status == 200
        await stores.append("orders", await stores.rows(2, plain_batches(5), start=0, end=5))
        moved = await client.ask("GET", TABLE, headers={"If-None-Match": tag})
        assert moved.status == 200
        assert moved.headers["etag"] != tag

    over(work)


def test_metadata_is_read_once_for_each_version() -> None:
    async def work(client: Client, stores: Stores) -> None:
        for _ in range(3):
            assert (await client.ask("GET", TABLE)).status == 200
        assert [kind for kind, _ in stores.weather.asked].count("get") == 1

    over(work)


def test_keys_are_sent_only_when_turned_on_and_asked_for() -> None:
    place = {"s3.endpoint": "http://s3:1", "s3.region": "r", "client.region": "r"}
    secret = {"s3.access-key-id": "id", "s3.secret-access-key": "hidden"}
    asking = {"X-Iceberg-Access-Delegation": "remote-signing, vended-credentials"}

    async def off(client: Client, _: Stores) -> None:
        for headers in ({}, asking):
            answer = await client.ask("GET", TABLE, headers=headers)
            assert answer.json["config"] == place
            assert b"hidden" not in answer.body

    async def on(client: Client, _: Stores) -> None:
        plain = await client.ask("GET", TABLE)
        assert plain.json["config"] == place
        assert b"hidden" not in plain.body
        answer = await client.ask("GET", TABLE, headers=asking)
        assert answer.json["config"] == place | secret
        assert answer.json["storage-credentials"] == [
            {"prefix": below, "config": place | secret}
            for below in ("memory:///", "memory:///tables/")
        ]
        assert answer.headers["etag"] != plain.headers["etag"]

    over(off, vend=VendOptions(vend=False, properties=place | secret))
    over(on, vend=VendOptions(vend=True, properties=place | secret))


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "/v1/namespaces", 403),
        ("DELETE", f"/v1/namespaces/{NAMESPACE}", 403),
        ("POST", f"/v1/namespaces/{NAMESPACE}/properties", 403),
        ("POST", f"/v1/namespaces/{NAMESPACE}/tables", 403),
        ("POST", f"/v1/namespaces/{NAMESPACE}/register", 403),
        ("DELETE", TABLE, 403),
        ("POST", "/v1/tables/rename", 403),
        ("POST", "/v1/transactions/commit", 403),
        ("PUT", TABLE, 405),
        ("POST", "/v1/config", 405),
        ("GET", f"/v1/namespaces/{NAMESPACE}/views", 404),
        ("GET", "/v1/oauth/tokens", 404),
        ("GET", "/v2/config", 404),
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/namespaces//tables", 404),
        ("GET", f"{TABLE}/", 200),
    ],
)
def test_what_is_never_done_is_refused_with_a_reason(method: str, path: str, code: int) -> None:
    async def work(client: Client, stores: Stores) -> None:
        answer = await client.ask(method, path, body=b"{}")
        assert answer.status == code
        if code != 200:
            assert answer.error[0] == code
        assert (await client.ask("HEAD", TABLE)).status == 204

    over(work)


def test_stores_that_are_down_are_a_503_and_broken_metadata_a_500() -> None:
    async def work(client: Client, stores: Stores) -> None:
        stores.weather.fate = lambda kind, _: Fault.UNAVAILABLE
        answer = await client.ask("POST", TABLE, body=COMMENT)
        assert answer.error[:2] == (503, "ServiceUnavailableException")
        place = (await client.ask("GET", TABLE)).json["metadata-location"]
        await stores.objects.put(place.removeprefix("memory:///"), [b"not JSON"])
        assert (await client.ask("GET", TABLE)).status == 200  # it never changes, so it is kept
        fresh = Client(stores.pages())
        assert (await fresh.ask("GET", TABLE)).error[0] == 500
        await stores.objects.delete([place.removeprefix("memory:///")])
        assert (await fresh.ask("GET", TABLE)).error[0] == 500
        assert (await fresh.ask("POST", TABLE, body=COMMENT)).error[0] == 500

    over(work)
