"""The sizes from which on an index is planned, compacted and measured, and the rest after each work."""

from __future__ import annotations

from dataclasses import dataclass

from shortlist.index.planner import LEAST_PROBES, SMALL_NUMBERS
from shortlist.index.table import TableSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLimits:
    """Shares are of all arms or rows of a catalogue; rests are multiples of the work's time.

    ``small_numbers``       a catalogue with fewer numbers is scanned; no structure is tried
    ``shared_numbers``      one with fewer is not shared by the processes of a host: each scans its own
    ``least_probes``        a plan is measured by at least so many queries
    ``least_dead``          a table with fewer dead rows is not compacted,
    ``dead_share``          nor one where a smaller share is dead
    ``changed_share``       a plan is due when this share was written since the last one
    ``at_rest_s``           seconds without a write after which a catalogue is at rest
    ``work_rest``           after a plan or a publication, unless nothing but a scan is left to serve
    ``short_rest``          where the next plan is due already
    ``newer_share``         the structure takes over newer arms when their scan takes this share of a search
    ``measuring_rest``      after a graph was measured again
    ``much_lost``           where more of its probes are lost, it rests only as long as the measurement took
    ``same_rest``           where no arm died since, but other queries came
    ``described_rows``      number of changes of descriptions after which each row is kept once
    """

    small_numbers: int = SMALL_NUMBERS
    shared_numbers: int = 500_000
    least_probes: int = LEAST_PROBES
    least_dead: int = 1_024
    dead_share: float = 0.2
    changed_share: float = 0.5
    at_rest_s: float = 5.0
    work_rest: float = 1.0
    short_rest: float = 0.25
    newer_share: float = 1.0
    measuring_rest: float = 8.0
    much_lost: float = 0.1
    same_rest: float = 60.0
    described_rows: int = 1 << 16

    def compaction_is_due(self, table: TableSnapshot, share: float | None = None) -> bool:
        """True if the share of dead rows calls for a compaction: ``share``, by default ``dead_share``."""
        return len(table.dead) > max(self.least_dead, (share or self.dead_share) * table.rows)
