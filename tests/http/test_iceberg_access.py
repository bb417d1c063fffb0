"""What engines are told of the object store."""

from lakelog.http.iceberg_access import VendOptions, vend_options

OPTIONS = {
    "AWS_ACCESS_KEY_ID": "id",
    "aws_secret_access_key": "hidden",
    "session_token": "also hidden",
    "region": "eu-1",
    "endpoint": "http://s3:9000",
}
PLACE = {
    "s3.endpoint": "http://s3:9000",
    "s3.region": "eu-1",
    "client.region": "eu-1",
    "s3.path-style-access": "true",
}
KEYS = {
    "s3.access-key-id": "id",
    "s3.secret-access-key": "hidden",
    "s3.session-token": "also hidden",
}


def test_settings_of_s3_get_icebergs_names() -> None:
    found = vend_options("s3://bucket/prefix", OPTIONS, vend=True)
    assert found.properties == PLACE | KEYS
    assert found.told("vended-credentials") == (PLACE | KEYS, True)
    assert found.told("remote-signing,Vended-Credentials ") == (PLACE | KEYS, True)


def test_keys_stay_here_unless_turned_on_and_asked_for() -> None:
    off = vend_options("s3://bucket", OPTIONS, vend=False)
    assert off.told("vended-credentials") == (PLACE, False)
    on = vend_options("s3://bucket", OPTIONS, vend=True)
    for header in ("", "remote-signing", "vended-credential", "x-vended-credentials"):
        assert on.told(header) == (PLACE, False)
    assert VendOptions(vend=True, properties=PLACE).told("vended-credentials") == (PLACE, False)


def test_addressing_by_host_is_told_and_amazon_itself_needs_no_endpoint() -> None:
    hosted = {**OPTIONS, "aws_virtual_hosted_style_request": "true"}
    assert vend_options("s3://b", hosted, vend=False).public()["s3.path-style-access"] == "false"
    amazon = vend_options("s3a://b", {"aws_region": "eu-1"}, vend=False)
    assert amazon.public() == {"s3.region": "eu-1", "client.region": "eu-1"}


def test_other_stores_are_told_by_their_urls_alone() -> None:
    for url in ("file:///data", "memory:", "gs://bucket", "az://container"):
        assert vend_options(url, OPTIONS, vend=True) == VendOptions(vend=True)
