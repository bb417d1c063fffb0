"""ApiVersions (18), versions 0 to 4.

A version we do not speak is answered in version 0 with 35 and the one entry of ApiVersions itself
(KIP-511), so that the client can ask again. From v3 on the client names its software; a name that
does not match Kafka's pattern is 42 with an empty list. Features are those of row 100: a feature
whose minimum is 0 is left out up to v3 (clients of that time took 0 for an error), and one that we
do not serve is left out always. Ignored: nothing.
"""

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ADVERTISED_FROM, APIS, ApiKey
from lakelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

METADATA_VERSION: Final = 30  # Kafka 4.3
METADATA_VERSION_MIN: Final = 7
FEATURES_EPOCH: Final = 0
FIRST_VERSION_WITH_SOFTWARE: Final = 3
FIRST_VERSION_WITH_ZERO: Final = 4
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def entry(key: ApiKey) -> ApiVersion:
    """The range of one API as it is advertised."""
    versions = APIS[key].versions
    return ApiVersion(int(key), ADVERTISED_FROM.get(key, versions[0]), versions[-1])


def unsupported() -> ApiVersionsResponse:
    """What a client hears that asked in a version we do not speak."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(entry(ApiKey.API_VERSIONS),)
    )


def answer(
    version: int, request: ApiVersionsRequest, keys: Collection[ApiKey]
) -> ApiVersionsResponse:
    """The ranges of these APIs, and the features."""
    if version >= FIRST_VERSION_WITH_SOFTWARE and not _is_sound(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    groups = ApiKey.CONSUMER_GROUP_HEARTBEAT in keys
    supported = _supported(groups=groups)
    if version < FIRST_VERSION_WITH_ZERO:
        supported = [feature for feature in supported if feature.min_version > 0]
    return ApiVersionsResponse(
        api_keys=tuple(entry(key) for key in sorted(keys)),
        supported_features=tuple(supported),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=tuple(_finalized(groups=groups)),
    )


def _is_sound(request: ApiVersionsRequest) -> bool:
    said = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(part) for part in said)


def _supported(*, groups: bool) -> Sequence[SupportedFeatureKey]:
    kafka = [
        SupportedFeatureKey("kraft.version", 0, 1),
        SupportedFeatureKey("metadata.version", METADATA_VERSION_MIN, METADATA_VERSION),
    ]
    return [SupportedFeatureKey("group.version", 0, 1), *kafka] if groups else kafka


def _finalized(*, groups: bool) -> Sequence[FinalizedFeatureKey]:
    kafka = [FinalizedFeatureKey("metadata.version", METADATA_VERSION, METADATA_VERSION)]
    return [FinalizedFeatureKey("group.version", 1, 1), *kafka] if groups else kafka


async def handle(broker: "Broker", call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The APIs that this broker serves."""
    from lakelog.broker.api import advertised  # noqa: PLC0415 - it imports every handler

    return answer(call.version, request, advertised(broker.options))


API: Final = Endpoint(ApiKey.API_VERSIONS, range(5), handle)
