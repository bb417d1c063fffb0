"""How the pipeline finds a broker and is let in: by the metadata store alone.

A broker's key says where its HTTP port is. One token, made by whoever needs it first, opens the
index: who may read the metadata store may swap, and nobody else.
"""

import re
from contextlib import suppress
from typing import Final

from lakelog.clock import Entropy
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Corrupt, OutcomeUnknown, Unavailable

TOKEN_BYTES: Final = 16
_TOKEN: Final = re.compile(rb"[0-9a-f]{32}")


async def pipeline_token(store: MetadataStore, entropy: Entropy) -> str:
    """The token of this cluster, made now if there is none."""
    found = await store.get(keys.PIPELINE_TOKEN)
    if found is None:
        made = entropy.token(TOKEN_BYTES).hex().encode()
        with suppress(Conflict, OutcomeUnknown):  # another was first, or the reading tells
            await store.put(keys.PIPELINE_TOKEN, made, expect=0)
        found = await store.get(keys.PIPELINE_TOKEN)
    if found is None:
        raise Unavailable(f"{keys.PIPELINE_TOKEN} could not be written")
    if not _TOKEN.fullmatch(found.value):
        raise Corrupt(
            f"{keys.PIPELINE_TOKEN} holds no token: delete it and start the brokers again"
        )
    return found.value.decode()


class Token:
    """The token, read when it is first needed and kept."""

    def __init__(self, store: MetadataStore, entropy: Entropy) -> None:
        self._store = store
        self._entropy = entropy
        self._known: str | None = None

    async def get(self) -> str:
        """The token; raises `Unavailable`."""
        if self._known is None:
            self._known = await pipeline_token(self._store, self._entropy)
        return self._known
