"""Answers without what belongs to one run: so that two runs of one script can be compared.

- Ids that the broker made up (member ids, topic ids) become `<1>`, `<2>` in the order in which the
  script met them; what stands before the random part of a member id (client or instance id) stays.
- Lists of an answer are sorted: their order means nothing to clients.
- The texts of error messages are ours or Kafka's; what counts is whether an error has one.
- Ports, and what other scripts have left on the same broker, go.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from lakelog.wire.apis import ApiKey

Plain = Any  # a message as dicts and lists

MEMBER_FIELDS: Final = frozenset({"member_id", "leader"})
TOPIC_FIELD: Final = "topic_id"
LEAST_RANDOM_ID: Final = bytes(15) + b"\xff"  # ids below are made up by scripts
UUID_BEHIND: Final = re.compile(r"^(.*-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
NEW: Final = "<new>"
GROUP_APIS: Final = frozenset(
    {
        *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP),
        *(ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS),
        *(ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE),
        *(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
    }
)


class Normal:
    """The view of one run of one script: it learns names as the steps go by."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._names: dict[str | bytes, str] = {}
        self._said: set[str] = set()  # member ids that the script made up itself

    def request(self, message: Struct) -> Plain:
        """A request; member ids in it that no answer gave are the script's own."""
        found = plain(message)
        self._listen(found)
        return self._named(found)

    def response(self, key: ApiKey, message: Struct | None) -> Plain:
        """An answer; None if there is none."""
        if message is None:
            return None
        found = self._own(key, plain(message))
        found = _without_texts(found)
        return self._named(self._sorted(found))

    def _own(self, key: ApiKey, found: Plain) -> Plain:
        """Without what the broker says about itself or about other scripts."""
        if key == ApiKey.LIST_GROUPS:
            found["groups"] = [g for g in found["groups"] if self._mine(g["group_id"])]
        elif key == ApiKey.LIST_CONFIG_RESOURCES:
            found["config_resources"] = [
                r for r in found["config_resources"] if self._mine(r["resource_name"])
            ]
        elif key == ApiKey.FIND_COORDINATOR:
            for each in (found, *found["coordinators"]):
                each["port"] = min(each["port"], 1)
        elif key == ApiKey.CREATE_TOPICS:
            kept = ("name", TOPIC_FIELD, "error_code")
            return [{name: each[name] for name in kept} for each in found["topics"]]
        elif key == ApiKey.API_VERSIONS:
            return _group_versions(found)
        elif key == ApiKey.DESCRIBE_CONFIGS:
            for result in found["results"]:
                result["configs"] = [
                    c for c in result["configs"] if c["name"].startswith("consumer.")
                ]
        return found

    def _mine(self, name: str) -> bool:
        return name == self._script or name.startswith(f"{self._script}.")

    def _listen(self, value: Plain) -> None:
        if isinstance(value, dict):
            for name, part in value.items():
                if name in MEMBER_FIELDS and part and part not in self._names:
                    self._said.add(part)
                self._listen(part)
        elif isinstance(value, list):
            for part in value:
                self._listen(part)

    def _sorted(self, value: Plain) -> Plain:
        """Lists in an order that does not depend on ids that are new."""
        if isinstance(value, dict):
            return {name: self._sorted(part) for name, part in value.items()}
        if isinstance(value, list):
            parts = [self._sorted(part) for part in value]
            return sorted(parts, key=lambda part: repr(self._named(part, learn=False)))
        return value

    def _named(self, value: Plain, *, learn: bool = True, field: str = "") -> Plain:
        if isinstance(value, dict):
            return {
                name: self._named(part, learn=learn, field=name) for name, part in value.items()
            }
        if isinstance(value, list):
            return [self._named(part, learn=learn, field=field) for part in value]
        if field in MEMBER_FIELDS and value and value not in self._said:
            return self._member(value, learn=learn)
        if field == TOPIC_FIELD and value > LEAST_RANDOM_ID:
            return self._name(value, learn=learn)
        return value

    def _member(self, value: str, *, learn: bool) -> str:
        matched = UUID_BEHIND.match(value)
        before = (matched.group(1) or "") if matched else ""
        return before + self._name(value, learn=learn)

    def _name(self, value: str | bytes, *, learn: bool) -> str:
        if value not in self._names:
            if not learn:
                return NEW
            self._names[value] = f"<{len(self._names) + 1}>"
        return self._names[value]


def plain(message: Struct) -> Plain:
    """A message as dicts and lists."""
    return _plain(msgspec.to_builtins(message, builtin_types=(bytes,)))


def _plain(value: Plain) -> Plain:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _group_versions(found: Plain) -> Plain:
    """The versions of group APIs, and whether the newer group protocol is said to be there."""
    return {
        "error_code": found["error_code"],
        "api_keys": [each for each in found["api_keys"] if each["api_key"] in GROUP_APIS],
        "finalized_features": [
            each for each in found["finalized_features"] if each["name"] == "group.version"
        ],
    }


def _without_texts(value: Plain) -> Plain:
    """Error messages reduced to whether there is one; without an error there is none."""
    if isinstance(value, list):
        return [_without_texts(part) for part in value]
    if not isinstance(value, dict):
        return value
    found = {name: _without_texts(part) for name, part in value.items()}
    if "error_message" in found:
        found["error_message"] = bool(found["error_message"]) and found["error_code"] != 0
    return found


def differences(theirs: Plain, ours: Plain, at: str = "") -> dict[str, tuple[Plain, Plain]]:
    """Where two normal messages differ: by the path to the value, theirs and ours."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        return {
            path: pair
            for name, part in theirs.items()
            for path, pair in differences(part, ours[name], f"{at}.{name}" if at else name).items()
        }
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return {
            path: pair
            for number, part in enumerate(theirs)
            for path, pair in differences(part, ours[number], f"{at}[{number}]").items()
        }
    return {} if theirs == ours else {at: (theirs, ours)}
