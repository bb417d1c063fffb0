"""Bugs in what is served and when: proofs, new partitions, the loop's time, half-sent requests."""

from tests.mutants.plant import Plant, plant

PROOFS = ("tests/domain/test_proofs.py",)
HELD_BACK = ("tests/broker/test_held_back.py",)

EMPTINESS: tuple[Plant, ...] = (
    plant(
        "an append proves the moment of its reply",
        "domain/replica.py",
        "            if not self._learn(position, own, began_s=began_s):\n",
        "            began_s = self._clock.monotonic_s()\n"
        "            if not self._learn(position, own, began_s=began_s):\n",
        tests=PROOFS,
    ),
    plant(
        "an append proves the moment it is applied",
        "domain/replica.py",
        "        if taken:\n            self._proved_s = max(self._proved_s, began_s)",
        "        if taken:\n            self._proved_s = max(began_s, self._clock.monotonic_s())",
        tests=PROOFS,
    ),
    plant(
        "a read of the log proves the moment of its reply",
        "domain/replica.py",
        "            page = await self._log.read(after=after)\n",
        "            page = await self._log.read(after=after)\n"
        "            began_s = self._clock.monotonic_s()\n",
        tests=PROOFS,
    ),
    plant(
        "what was proved before a load stays proved while loading",
        "domain/replica.py",
        "return self._serving and self._proved_s >= arrived_s",
        "return self._proved_s >= arrived_s",
        tests=PROOFS,
    ),
    plant(
        "a partition is called empty without proof beside one with data",
        "broker/fetch_read.py",
        "(in_full or not self._ready)",
        "(not self._ready)",
        tests=HELD_BACK,
    ),
    plant(
        "an incremental answer names what is not proved to be empty",
        "broker/fetch_read.py",
        "if not in_full and at in self._unproven_empty:",
        "if False:",
        tests=HELD_BACK,
    ),
    plant(
        "a session does not hear of new marks of an empty partition",
        "broker/fetch_read.py",
        "if slot is None or marks != (slot.log_start, slot.high_watermark):",
        "if slot is None:",
        tests=("tests/broker/test_fetch_incremental.py",),
    ),
    plant(
        "what changed while a proof was had is not looked at",
        "broker/fetch_read.py",
        "self.look([*again, *changed])",
        "self.look(again)",
        tests=HELD_BACK,
    ),
    plant(
        "producers are listed from an old state",
        "broker/describe_producers.py",
        "    unproven = await unproven_code(",
        "    unproven = ErrorCode.NONE if streams else await unproven_code(",
        tests=HELD_BACK,
    ),
)

NEW_PARTITIONS: tuple[Plant, ...] = (
    plant(
        "a partition that is not known here is called unknown without a look",
        "broker/lookup.py",
        "lacks = found is None or max(partitions, default=-1) >= found.partition_count",
        "lacks = found is None",
        tests=("tests/broker/test_new_partitions.py",),
    ),
    plant(
        "a partition that is not known here is called unknown while the store is down",
        "broker/lookup.py",
        "return self._code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION",
        "return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION",
        tests=("tests/broker/test_new_partitions.py",),
    ),
)

TURNS = ("tests/broker/test_loop_turn.py",)

LOOP: tuple[Plant, ...] = (
    plant(
        "each request pauses by its own time alone",
        "broker/loop_turn.py",
        "        await waiter\n",
        "        await asyncio.sleep(0)\n",
        tests=TURNS,
    ),
    plant(
        "a turn lets everybody go on who waits",
        "broker/loop_turn.py",
        "                waiter.set_result(None)\n                break\n",
        "                waiter.set_result(None)\n",
        tests=TURNS,
    ),
    plant(
        "who gave up waiting is let go on, and nobody else",
        "broker/loop_turn.py",
        "            if not waiter.done():  # one whose connection is gone was cancelled\n"
        "                waiter.set_result(None)\n                break\n",
        "            if not waiter.done():\n                waiter.set_result(None)\n"
        "            else:\n                return\n            break\n",
        tests=TURNS,
    ),
    plant(
        "names of Metadata are answered in one go",
        "broker/metadata.py",
        "async for some_names in broker.loop_turn.parts(wanted):",
        "for some_names in (wanted,):",
        tests=TURNS,
    ),
    plant(
        "a parked fetch looks at all it names when it wakes",
        "broker/fetch.py",
        "await reading.look(watch.take())",
        "watch.take()\n                await reading.look()",
        tests=TURNS,
    ),
    plant(
        "an answer is as large as any client takes",
        "broker/fetch.py",
        "max(ANSWER_BYTES, request.min_bytes)",
        "RESPONSE_BYTES_MAX",
        tests=("tests/broker/test_fetch.py",),
    ),
    plant(
        "what is read ahead pushes itself out",
        "log/read.py",
        "limit = max(limit, min(ahead_bytes, share_bytes))",
        "limit = ahead_bytes",
        tests=("tests/log/test_read.py",),
    ),
    plant(
        "each part of a fetch has the whole budget",
        "broker/fetch_read.py",
        "left_bytes = self._bytes_max - self.size_bytes",
        "left_bytes = self._bytes_max",
        tests=("tests/broker/test_fetch.py",),
    ),
    plant(
        "a large answer is encoded in the loop",
        "server/requests.py",
        "            if isinstance(answer, Struct) and is_large(answer):\n"
        "                self._encode_slowly(place, header, answer, arrived_s)\n"
        "                return\n",
        "",
        tests=("tests/server/test_connection.py",),
    ),
)

SLOW_SENDERS = ("tests/server/test_port_shares.py",)

HALF_SENT: tuple[Plant, ...] = (
    plant(
        "one address holds all the memory with half-sent requests",
        "server/connection.py",
        "return self._share.must_wait(self) or self._port.must_wait(self)",
        "return self._port.must_wait(self)",
        tests=SLOW_SENDERS,
    ),
    plant(
        "a pass is never given back",
        "server/port.py",
        "        if self._passing is connection:\n            self._passing = None\n",
        "",
        tests=SLOW_SENDERS,
    ),
    plant(
        "a pass is offered to one whose address does not let it go on",
        "server/port.py",
        "            chosen.may_go_on()\n            if self.passing is not None:\n"
        "                return\n",
        "            chosen.may_go_on()\n            return\n",
        tests=SLOW_SENDERS,
    ),
    plant(
        "who has the port's pass waits for its address",
        "server/connection.py",
        "            return False  # whoever has the port's pass needs none of its address\n",
        "            pass\n",
        tests=SLOW_SENDERS,
    ),
    plant(
        "who sent much at once may be slow for long",
        "server/connection.py",
        "            self._frame_began_s = now_s\n            self._window_bytes = 0\n\n",
        "\n",
        tests=SLOW_SENDERS,
    ),
    plant(
        "room of half-sent requests counts as far as it is filled",
        "wire/framing.py",
        "return SIZE_BYTES + len(self._frame)",
        "return SIZE_BYTES + self._filled",
        tests=("tests/wire/test_framing.py",),
    ),
)

PLANTS: tuple[Plant, ...] = EMPTINESS + NEW_PARTITIONS + LOOP + HALF_SENT
