"""The table of APIs says what Kafka 4.3 says."""

import pytest
from kio.schema.index import api_key_map
from tests.wire.kio_oracle import kio_class

from lakelog.wire.apis import APIS, ApiKey, request_header_version, response_header_version

STABLE = {
    0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6),
    11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 29: (1, 3),
    30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2),
    37: (0, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0),
    48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2),
    61: (0, 0), 64: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1), 69: (0, 1), 74: (0, 1),
    75: (0, 0),
}  # fmt: skip


def test_the_versions_are_the_stable_ones_of_kafka_4_3() -> None:
    ours = {key: (api.versions[0], api.versions[-1]) for key, api in APIS.items()}
    assert ours == STABLE


def test_a_name_goes_with_its_number() -> None:
    for key, api in APIS.items():
        assert ApiKey(key).name.replace("_", "").lower() == api.name.lower()
        assert api_key_map[key] == ApiKey(key).name.lower()


@pytest.mark.parametrize("key", APIS)
def test_headers_are_those_that_kio_knows(key: int) -> None:
    api = APIS[key]
    for version in api.versions:
        request = kio_class(api.request, version).__header_schema__.__version__
        response = kio_class(api.response, version).__header_schema__.__version__
        assert request_header_version(api, version) == request
        assert response_header_version(api, version) == response


def test_an_answer_about_versions_always_has_the_oldest_header() -> None:
    api = APIS[ApiKey.API_VERSIONS]
    assert [response_header_version(api, version) for version in (0, 3, 4, 99)] == [0, 0, 0, 0]
