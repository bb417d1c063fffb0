"""Bugs in what notices lost metadata and wrong clocks."""

from tests.mutants.plant import Plant, plant

STARTS = ("tests/domain/test_start_check.py",)

LOST_METADATA: tuple[Plant, ...] = (
    plant(
        "no milestone while the log grows",
        "domain/replica.py",
        "            if self._serving and self._milestones.is_due(self.state):\n"
        "                await self._try_mark()\n",
        "            pass\n",
        tests=STARTS,
    ),
    plant(
        "no milestone at the end of a process",
        "domain/replica.py",
        "        if self._serving and self._milestones.is_due(self.state):\n"
        "            with contextlib",
        "        if False:\n            with contextlib",
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
        "                self._writer.begin(incarnation)\n"
        "                await self._writer.submit(Hello(LEVEL_MAX))\n",
        "                self._check_name()\n"
        "                self._writer.begin(incarnation)\n"
        "                await self._writer.submit(Hello(LEVEL_MAX))\n"
        "                if self._start_check is not None:\n"
        "                    self.timeline = await self._start_check.judge(self.state)\n",
        tests=STARTS,
    ),
    plant(
        "an accepted loss keeps its timeline",
        "domain/start_check.py",
        "            number=max(numbers) + 1,\n",
        "            number=max(numbers),\n",
        tests=STARTS,
    ),
    plant(
        "a sweep right after an accepted loss",
        "log/gc.py",
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
        "domain/start_check.py",
        "        if proof is None and not self._found:\n",
        "        if proof is None:\n",
        tests=STARTS,
    ),
    plant(
        "files are swept right after an accepted loss",
        "compaction/sweep.py",
        "        if self._clock.now_ms() < after_ms:\n",
        "        if after_ms < 0:\n",
        tests=("tests/compaction/test_sweep.py",),
    ),
)

PLANTS = LOST_METADATA
