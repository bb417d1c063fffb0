"""Limits of a domain replica, each with its unit and the reason for its default."""

from dataclasses import dataclass

from lakelog.retry import Backoff


@dataclass(frozen=True, slots=True)
class DomainOptions:
    """How a replica follows its log and writes checkpoints."""

    checkpoint_records: int = 8192
    """A checkpoint is due after so many records: replaying them takes under a second."""

    checkpoint_bytes: int = 32 << 20
    """… or after so many bytes of log, so that a store's quota is never in sight (A7)."""

    checkpoints_kept: int = 3
    """Rule 14: one rotten object must not lose a domain."""

    archive_ms: int = 7 * 24 * 3600 * 1000
    """How long trimmed records stay readable as objects: for audits and repairs."""

    milestone_ms: int = 10_000
    """How often the object store is told how far the log has reached, while it grows: an older
    copy of the metadata that lacks more than this is noticed (A5)."""

    accept_lost_metadata: bool = False
    """Start although the metadata store lost what it had acknowledged. For one start, not for a
    file: it says yes to every loss."""

    rescue_ms: int = 24 * 3600 * 1000
    """After a loss was accepted nothing is swept for so long: what only the lost part named can
    still be saved."""

    clock_skew_max_ms: int = 60_000
    """How far our clock may be from the object store's when something is deleted by its age."""

    fresh_s: float = 3.0
    """Rule 17: without a proof of currency for so long, reads are refused retriably."""

    idle_read_s: float = 1.0
    """An idle replica proves itself this often."""

    retry_s: float = 0.05
    """The first pause after a store failed; it doubles up to `retry_max_s`."""

    retry_max_s: float = 1.0

    @property
    def retry_backoff(self) -> Backoff:
        """The pauses after failures of a store in a row."""
        return Backoff(self.retry_s * 1000, self.retry_max_s * 1000)
