"""When a process adopts or makes a publication of a catalogue's arms, and what follows from it."""

from __future__ import annotations

import time
from pathlib import Path

from app.indexes.content import IndexContent
from app.indexes.index_limits import IndexLimits
from app.indexes.publishing import Adoption, Publishing
from app.indexes.search_structures import Serving
from app.indexes.shared_arms import SharedArms
from shortlist.index.planner import Plan
from shortlist.index.table import ArmTable

# When to make a publication: arms and attributes missing in the last one are this share of its own, and at
# rest this one. The others scan at most so many.
_OWN_SHARE, _OWN_AT_REST = 0.15, 0.05


class Sharing:
    """See the module. For the thread of the event loop.

    ``adopted``: the number of the last publication looked at. ``rest_until``: none is made earlier.
    """

    def __init__(self, shared: SharedArms, limits: IndexLimits) -> None:
        self.shared = shared
        self.adopted: int | None = None
        self.rest_until = 0.0
        self._limits = limits
        self._job: Adoption | None = None
        self._mapped: int | None = None  # the publication whose arms the table has
        self._plan: Plan | None = None  # its plan

    def begin(
        self,
        content: IndexContent,
        serving: Serving,
        version: int,
        cache: Path | None,
        *,
        from_start: bool,
        is_at_rest: bool,
    ) -> Adoption | None:
        """A publication to adopt, or a due one to make; None: neither, or the work is under way.

        ``version``: of the catalogue, all of whose changes are in ``content``. ``from_start``: no part of the
        catalogue was ever here.
        """
        if self._job is not None:
            return None
        number = self.shared.current
        if number is not None and number != self.adopted:
            self._job = Adoption(
                shared=self.shared,
                table=serving.table,
                attributes_here=content.attributes.snapshot(),
                described=content.described.until_now(),
                from_start=from_start,
            )
        elif (
            len(content.table)
            and self._is_due(number, content, serving, is_at_rest)
            and self.shared.is_maker()
        ):
            self._job = Publishing(
                shared=self.shared,
                table=serving.table,
                attributes_here=content.attributes.snapshot(),
                described=content.described.until_now(),
                version=version,
                plan=serving.plan,
                structure=serving.structure,
                same_arms=number if content.table.is_as_mapped and self._mapped == number else None,
                cache=cache,
            )
        return self._job

    def finish(
        self, job: Adoption, content: IndexContent, failure: str | None, *, is_untouched: bool
    ) -> ArmTable | None:
        """The table of a publication to take; None for cancelled or failed work.

        ``failure``: of making one. ``is_untouched``: no part of the catalogue was ever here.
        """
        if job is not self._job:
            return None
        self._job = None
        if isinstance(job, Publishing):
            self.rest_until = time.monotonic() + self._limits.work_rest * job.seconds
            job.shared.tell(failure if job.number is None else None)
        # a table compacted meanwhile numbers its rows differently
        if job.number is None or job.table.number != content.table.snapshot().number:
            return None
        if job.from_start and not is_untouched:
            return None
        self.adopted = job.number
        if job.compacted is not None:
            self._mapped, self._plan = job.number, job.plan
        return job.compacted

    def _is_due(self, number: int | None, content: IndexContent, serving: Serving, is_at_rest: bool) -> bool:
        """True if the last publication, of this number, lacks a part of these arms, or many of its arms
        died.
        """
        if number is None or (serving.plan is not self._plan and not serving.is_interim):
            return True
        if time.monotonic() < self.rest_until:
            return False
        table, attributes = serving.table, content.attributes
        mapped = table.ids.mapped
        unpublished = max(table.rows - mapped, attributes.entries - attributes.mapped)
        if unpublished > (_OWN_AT_REST if is_at_rest else _OWN_SHARE) * mapped:
            return True
        return self._limits.compaction_is_due(table)
