"""Facts of a whole log needed before its evaluation: its length, and the bounds of its rewards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial

from shortlist_service.decision_log import (
    Bounds,
    Row,
    Terms,
    bounds_of_rule,
    counted_rewards,
    terms_by_version,
)
from shortlist_service.policies import Bandit
from shortlist_service.work import MEASURING


class SeenRewards:
    """The number of decisions of a log, and the bounds of the rewards of an arm there.

    ``versions``: the bandit as it made decisions. ``bounds``: of rewards (None), or of each signal, as far as
    the bandit does not have them.
    """

    def __init__(
        self, bandit: Bandit, versions: Callable[[Bandit, Sequence[Row]], Awaitable[Mapping[int, Bandit]]]
    ) -> None:
        self.decisions = 0
        self.bounds: dict[str | None, Bounds] = {}
        self._bandit, self._versions = bandit, versions
        record = bandit.record
        rules = {None: record.reward} if record.signals is None else record.signals
        self._unbounded = [name for name, rule in rules.items() if bounds_of_rule(rule, 0.0) is None]

    @property
    def are_bounded(self) -> bool:
        """True if the bandit has all bounds, and nothing is looked for."""
        return not self._unbounded

    async def noted(self, pages: AsyncIterator[Sequence[Row]]) -> AsyncIterator[Sequence[Row]]:
        """The same pages; their decisions are noted. Cost: some microseconds a row."""
        async for rows in pages:
            self.decisions += len(rows)
            if self._unbounded and rows:
                versions = await self._versions(self._bandit, rows)
                await MEASURING.run(partial(self._note, rows, terms_by_version(versions, self._bandit)))
            yield rows

    def _note(self, rows: Sequence[Row], terms_of_versions: Mapping[int, Terms]) -> None:
        for row in rows:
            terms = terms_of_versions[row.bandit_version]
            for name in self._unbounded:
                if name is not None and name not in terms.defaults:
                    continue  # the signal came later
                terms_of_signal = terms if name is None else terms.of_signal(name)
                counted, _ = counted_rewards(row, terms_of_signal)
                values = list(counted.values())
                if len(counted) < len(row.arms):
                    values.append(terms_of_signal.default)
                low, high = self.bounds.get(name, (values[0], values[0]))
                self.bounds[name] = min(low, *values), max(high, *values)
