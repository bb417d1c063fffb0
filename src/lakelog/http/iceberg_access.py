"""How engines reach a table's files: what of the object store's settings they are told. Pure.

Where the store is, everybody may know. Its keys are sent only when the operator turned that on, and
then only to a client that asks for them with `X-Iceberg-Access-Delegation: vended-credentials`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "endpoint": ("s3.endpoint",),
    "endpoint_url": ("s3.endpoint",),
    "region": ("s3.region", "client.region"),
    "default_region": ("s3.region", "client.region"),
    "access_key_id": ("s3.access-key-id",),
    "secret_access_key": ("s3.secret-access-key",),
    "session_token": ("s3.session-token",),
    "token": ("s3.session-token",),
}
"""Iceberg's properties for the settings of S3, which may begin with `aws_` too."""

_SECRETS: Final = frozenset(("s3.access-key-id", "s3.secret-access-key", "s3.session-token"))
_TRUE: Final = frozenset(("1", "true", "yes", "on", "y"))
_DELEGATION: Final = "vended-credentials"


@dataclass(frozen=True, slots=True)
class VendOptions:
    """What engines are told, in Iceberg's names, and whether the keys are part of it."""

    vend: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)

    def public(self) -> dict[str, str]:
        """Where the store is, without any key."""
        return {name: text for name, text in self.properties.items() if name not in _SECRETS}

    def told(self, delegation: str) -> tuple[dict[str, str], bool]:
        """The properties for a client that sent this header, and whether keys are in them."""
        wanted = {part.strip().lower() for part in delegation.split(",")}
        if self.vend and _DELEGATION in wanted and not _SECRETS.isdisjoint(self.properties):
            return dict(self.properties), True
        return self.public(), False


def vend_options(url: str, options: Mapping[str, str], *, vend: bool) -> VendOptions:
    """What to tell of the object store at this URL, opened with these settings of obstore."""
    if urlsplit(url).scheme not in ("s3", "s3a"):
        return VendOptions(vend=vend)
    settings = {name.lower().removeprefix("aws_"): text for name, text in options.items()}
    properties: dict[str, str] = {}
    for name, told_as in _NAMES.items():
        if settings.get(name):
            for told in told_as:
                properties.setdefault(told, settings[name])
    if "s3.endpoint" in properties:
        hosted = settings.get("virtual_hosted_style_request", "").lower() in _TRUE
        properties["s3.path-style-access"] = "false" if hosted else "true"
    return VendOptions(vend=vend, properties=properties)
