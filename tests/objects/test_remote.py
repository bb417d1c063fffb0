"""What obstore's errors mean, how they read, and that no call waits for ever."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.model.failures import Corrupt, Failure, NotFound, OutcomeUnknown, Refused, Unavailable
from lakelog.model.ids import ByteRange
from lakelog.objects.remote import (
    RemoteLimits,
    RemoteObjectStore,
    failure,
    one_line,
    open_remote,
    public_url,
)

IMPATIENT = RemoteLimits(call_total_s=0.2)
QUICK = RemoteLimits(
    connect_timeout_s=0.2,
    request_timeout_s=0.2,
    retries=1,
    retry_first_pause_s=0.01,
    retry_total_s=0.3,
    call_total_s=0.5,
)
DENIED = (
    "The operation lacked the necessary privileges to complete for path x: Error performing PUT "
    "http://127.0.0.1:1/b/x in 8µs - Server returned non-2xx status code: 403 Forbidden: "
    '<?xml version="1.0"?>\n<Error><Code>SignatureDoesNotMatch</Code><Message>The request\n'
    "signature is wrong</Message></Error>\n\nDebug source:\nGeneric {\n  secret: 1\n}"
)
GCS_KEY = (
    '{"disable_oauth": true, "gcs_base_url": "http://127.0.0.1:1",'
    ' "client_email": "", "private_key": "", "private_key_id": ""}'
)
UNSENT = (
    "Generic S3 error: Error performing PUT http://127.0.0.1:1/b/x in 149ms, after 2 retries - "
    "HTTP error: error sending request\n\nDebug source:\nGeneric {"
)


def test_an_error_becomes_one_line() -> None:
    assert one_line(PermissionDeniedError(DENIED)) == (
        "403 Forbidden, SignatureDoesNotMatch (The request signature is wrong)"
    )
    assert one_line(GenericError(UNSENT)) == "HTTP error: error sending request"
    assert one_line(GenericError("x" * 10_000)) == "x" * 300
    assert one_line(GenericError("")) == "GenericError"


@pytest.mark.parametrize(
    ("error", "writes", "kind"),
    [
        (PermissionDeniedError(DENIED), True, Unavailable),
        (PermissionDeniedError(DENIED), False, Unavailable),
        (GenericError(UNSENT), True, OutcomeUnknown),
        (GenericError(UNSENT), False, Unavailable),
        (GenericError("status code: 416 Range Not Satisfiable: x"), False, Corrupt),
        (GenericError("Wanted range starting at 10, but object was only 10"), False, Corrupt),
        (FileNotFoundError("Object at location nope not found: NoSuchKey"), False, NotFound),
        (FileNotFoundError("not found: <Code>NoSuchBucket</Code>"), False, Unavailable),
        (OSError("something else"), True, OutcomeUnknown),
    ],
)
def test_an_error_means_what_the_caller_may_conclude(
    error: Exception, writes: bool, kind: type[Failure]
) -> None:
    meant = failure("s3://b/x", error, writes=writes)
    assert type(meant) is kind
    assert str(meant).startswith("s3://b/x: ")
    assert "\n" not in str(meant)


def test_a_url_is_shown_without_secrets() -> None:
    assert public_url("s3://user:secret@bucket/prefix/?token=secret") == "s3://bucket/prefix"
    assert public_url("memory:") == "memory:"


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("ftp://host/x", {}, "ftp://host/x: .*Unable to recognise"),
        ("s3://bucket", {"no_such_option": "1"}, "no_such_option"),
    ],
)
def test_wrong_settings_are_refused(url: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        open_remote(url, options, clock=SystemClock(), entropy=SystemEntropy())


def opened(port: int, limits: RemoteLimits = QUICK) -> RemoteObjectStore:
    options = {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": "canary-id",
        "secret_access_key": "canary-secret",
    }
    return open_remote(
        "s3://bucket/p", options, clock=SystemClock(), entropy=SystemEntropy(), limits=limits
    )


@pytest.fixture
def silent() -> Iterator[int]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("limits", [QUICK, IMPATIENT], ids=["by-request", "by-call"])
def test_a_silent_server_costs_a_bounded_time(silent: int, limits: RemoteLimits) -> None:
    async def run() -> None:
        store = opened(silent, limits)
        async with asyncio.timeout(60):  # what hangs hangs for ever; the machine may be busy
            with pytest.raises(OutcomeUnknown):
                await store.put("k", [b"x"])
            for work in (store.get("k"), store.get_ranges("k", [ByteRange(0, 1)])):
                with pytest.raises(Unavailable) as caught:
                    await work
                assert "canary-secret" not in str(caught.value)
            with pytest.raises(Unavailable):
                async for _ in store.list(""):
                    pass
            with pytest.raises(OutcomeUnknown):
                await store.clock_skew_ms()
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("url", "address", "others"),
    [
        ("s3://bucket/p", "aws_endpoint_url", {"region": "us-east-1", "skip_signature": "true"}),
        ("gs://bucket/p", "base_url", {"service_account_key": GCS_KEY}),
        ("az://bucket/p", "endpoint", {"account_name": "a", "account_key": "a2V5"}),
    ],
)
def test_an_address_without_tls_is_spoken_to_as_it_is_named(
    url: str, address: str, others: dict[str, str]
) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        settings = {address: f"http://127.0.0.1:{port}", **others}
        store = open_remote(
            url, settings, clock=SystemClock(), entropy=SystemEntropy(), limits=QUICK
        )
        with pytest.raises(Unavailable, match="error sending request"):
            await store.get("k")
        await store.close()

    asyncio.run(run())


def test_an_absent_server_is_unavailable_for_reads_and_unknown_for_puts() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        store = opened(port)
        with pytest.raises(Unavailable):
            await store.get("k")
        with pytest.raises(OutcomeUnknown):
            await store.put("k", [b"x"])
        await store.close()

    asyncio.run(run())
