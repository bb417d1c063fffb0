"""Bugs in what bounds groups: excused time, parts of large events, sizes and budgets."""

from tests.mutants.plant import Plant, plant

WATCH = (
    "tests/coordinator/test_metronome.py",
    "tests/coordinator/test_sessions.py",
    "tests/coordinator/test_stalls.py",
)

TIME: tuple[Plant, ...] = (
    plant(
        "late ticks are excused without a limit",
        "coordinator/metronome.py",
        "return min(self.late_s - since_late_s, LATE_EXCUSED_S_MAX)",
        "return self.late_s - since_late_s",
        tests=WATCH,
    ),
    plant(
        "late ticks are excused again and again",
        "coordinator/sessions.py",
        "if excused_s > 0 and not watched.is_excused:",
        "if excused_s > 0:",
        tests=WATCH,
    ),
    plant(
        "late ticks are not excused at all",
        "coordinator/sessions.py",
        "if excused_s > 0 and not watched.is_excused:",
        "if False:",
        tests=WATCH,
    ),
    plant(
        "every outage restarts every session",
        "coordinator/sessions.py",
        "            if not watched.is_restarted:\n",
        "            if True:\n",
        tests=WATCH,
    ),
    plant(
        "a stall restarts every session",
        "coordinator/watch.py",
        "if self._unwell_ticks >= OUTAGE_TICKS:",
        "if True:",
        tests=WATCH,
    ),
)

PLANTS: tuple[Plant, ...] = TIME
