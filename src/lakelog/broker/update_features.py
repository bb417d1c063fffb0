"""UpdateFeatures (57), versions 0 to 2.

No level of a feature can be set: it follows from the versions of the brokers. Every update is 95
with the reason, for each feature and (v2, which has no results) for the request. A request without
updates is done.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

NO_LEVELS: Final = "Lakelog sets the levels of features itself, by the versions of its brokers."


async def handle(
    broker: "Broker", call: Call, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """That nothing can be updated."""
    del broker, call
    if not request.feature_updates:
        return UpdateFeaturesResponse(error_message=None)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=NO_LEVELS,
        results=tuple(
            UpdatableFeatureResult(update.feature, ErrorCode.INVALID_UPDATE_VERSION, NO_LEVELS)
            for update in request.feature_updates
        ),
    )


API: Final = Endpoint(ApiKey.UPDATE_FEATURES, range(3), handle)
