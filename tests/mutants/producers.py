"""Bugs in what is remembered of producers and streams, and in what is let go of."""

from tests.mutants.plant import Plant, plant

MACHINE = ("tests/domain/test_machine.py",)

PLANTS: tuple[Plant, ...] = (
    plant(
        "the newest of two batches that fit a retry answers",
        "domain/judge.py",
        "break  # the oldest that fits",
        "continue  # the oldest that fits",
        tests=MACHINE,
    ),
)
