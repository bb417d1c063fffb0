"""The table of the APIs that this broker serves, and the way from a request to its handler.

An API is one module beside this one, named like its key: it says in `API` who answers which
versions. ApiVersions is derived from the table; what is not in it is not advertised. A key that is
not in the table (transactions, what brokers say to each other) and a version that we do not speak
close the connection, as Kafka does, because no answer could be understood; ApiVersions alone
answers in a version that everybody knows (row 25).
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Final

from lakelog import broker as handlers
from lakelog.broker import api_versions
from lakelog.broker.call import Answer, Call, CloseConnection, Endpoint, Later
from lakelog.broker.loop_turn import SLOW_BYTES_MIN, on_thread
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.codec import decode

if TYPE_CHECKING:
    from lakelog.broker.call import Broker, BrokerOptions


def _served() -> dict[ApiKey, Endpoint]:
    """What the modules of this package say that they serve, by key."""
    names = {module.name for module in iter_modules(handlers.__path__)}
    keys = [key for key in ApiKey if key.name.lower() in names]
    modules = {key: import_module(f"{handlers.__name__}.{key.name.lower()}") for key in keys}
    endpoints: dict[ApiKey, Endpoint] = {key: module.API for key, module in modules.items()}
    assert all(key is endpoint.key for key, endpoint in endpoints.items()), endpoints
    return endpoints


ENDPOINTS: Final = _served()


def advertised(options: "BrokerOptions") -> list[ApiKey]:
    """The APIs that clients are told of, by key."""
    return sorted(key for key, endpoint in ENDPOINTS.items() if endpoint.offered(options))


async def dispatch(broker: "Broker", key: int, call: Call, body: memoryview) -> Answer | Later:
    """Decode a request and hand it to its handler.

    Raises `CloseConnection`, or `ProtocolError` when the body is not what its version says.
    """
    api = APIS.get(key)
    endpoint = ENDPOINTS.get(api.key) if api is not None else None
    if api is None or endpoint is None:
        raise CloseConnection(f"API {key} is not served")
    if call.version not in endpoint.versions:
        if api.key is ApiKey.API_VERSIONS:
            return api_versions.unsupported()
        raise CloseConnection(f"{api.name} v{call.version} is not served")
    if endpoint.undecoded is not None:
        outcome = endpoint.undecoded(broker, call, body)
        if outcome is not None:
            return outcome
    if len(body) >= SLOW_BYTES_MIN and api.key is not ApiKey.PRODUCE:
        request, _ = await on_thread(decode, api.request, call.version, body)
    else:
        request, _ = decode(api.request, call.version, body)
    return await endpoint.handler(broker, call, request)
