"""Bugs in what notices lost metadata and wrong clocks."""

from tests.mutants.plant import Plant, plant

STARTS = ("tests/domain/test_start.py",)
CLOCKS = ("tests/objects/test_local_clock.py",)

LOST_METADATA: tuple[Plant, ...] = (
    plant(
        "no milestone while the log grows",
        "domain/milestone.py",
        "            await self.try_put(marked())\n",
        "            marked()\n",
        tests=STARTS,
    ),
    plant(
        "no milestone at the end of a process",
        "domain/replica.py",
        "                await self._milestones.try_put(self._marked())\n"
        "        self._serving = False\n",
        "                pass\n        self._serving = False\n",
        tests=STARTS,
    ),
    plant(
        "a milestone ahead of the log",
        "domain/milestone.py",
        "            position=position,\n",
        "            position=position + 1,\n",
        tests=STARTS,
    ),
    plant(
        "a loss is judged after the Hello",
        "domain/replica.py",
        "                if self._start_check is not None:\n"
        "                    self.timeline = await self._start_check.judge(self.state)\n"
        "                self._check_name()\n"
        "                self._queue.begin(incarnation)\n"
        "                await self._queue.submit(Hello(LEVEL_MAX))\n",
        "                self._check_name()\n"
        "                self._queue.begin(incarnation)\n"
        "                await self._queue.submit(Hello(LEVEL_MAX))\n"
        "                if self._start_check is not None:\n"
        "                    self.timeline = await self._start_check.judge(self.state)\n",
        tests=STARTS,
    ),
    plant(
        "an accepted loss keeps its timeline",
        "domain/start.py",
        "            number=max(numbers) + 1,\n",
        "            number=max(numbers),\n",
        tests=STARTS,
    ),
    plant(
        "a sweep right after an accepted loss",
        "log/retention.py",
        "        if now_ms < self._replica.timeline.sweep_after_ms:\n",
        "        if now_ms < 0:\n",
        tests=STARTS,
    ),
    plant(
        "records are not compared at a milestone",
        "domain/milestone.py",
        'record not in ("", milestone.record)',
        'record == "?"',
        tests=STARTS,
    ),
    plant(
        "objects without a commit count beside a milestone",
        "domain/start.py",
        "        if proof is None and not self._found:\n",
        "        if proof is None:\n",
        tests=STARTS,
    ),
    plant(
        "files are swept right after an accepted loss",
        "pipeline/maintenance/file_gc.py",
        "        if self._clock.now_ms() < after_ms:\n",
        "        if after_ms < 0:\n",
        tests=("tests/pipeline/maintenance/test_file_gc.py",),
    ),
)

CLOCK_JUMPS: tuple[Plant, ...] = (
    plant(
        "a directory's clock is always right",
        "objects/local_clock.py",
        "            return -ahead_ms\n",
        "            return 0\n",
        tests=("tests/log/test_clock_jumps.py",),
    ),
    plant(
        "a clock that jumped is noted as good",
        "objects/local_clock.py",
        "        if ahead_ms > self._jump_max_ms and not self._is_settled(good, now):\n",
        "        if ahead_ms > self._jump_max_ms and not self._is_settled(good, now):\n"
        "            self._note(now)\n",
        tests=CLOCKS,
    ),
    plant(
        "a clock that jumped settles in the same boot",
        "objects/local_clock.py",
        "        if good.boot == now.boot:\n",
        "        if not good.boot:\n",
        tests=CLOCKS,
    ),
    plant(
        "a clock that moves while it settles is believed",
        "objects/local_clock.py",
        "        if since is None or abs(now.time_ms - since.time_ms - ran_s * 1000)"
        " > self._jump_max_ms:\n",
        "        if since is None:\n",
        tests=CLOCKS,
    ),
    plant(
        "a clock is read only after it was compared",
        "clock.py",
        "    moved_ms = clock.now_ms() - before_ms\n",
        "    moved_ms = 0\n",
        tests=CLOCKS,
    ),
)

PLANTS = LOST_METADATA + CLOCK_JUMPS
