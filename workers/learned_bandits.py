"""The bandits with learned priors, for a process without served bandits, as `shortlist worker`, to fit them.

The bandits are read from the registry, without catalogues and their arms. Changes of learners are read from
the store, also where another worker has folded the rewards or a service forgot the key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.bandits.bandit import learner_dim
from app.bandits.context import Context
from app.bandits.settings import BanditRecord
from app.bandits.versions import bytes_to_version
from app.platform.background import repeat
from app.platform.errors import Unavailable
from app.records.history_prior import HistoryPriorRecord
from app.records.records import CatalogueRecord, split_uid
from app.storage.store import Store
from app.storage.types import Registry

EVERY_S = 0.5

log = logging.getLogger("shortlist.worker")


@dataclass(frozen=True, slots=True)
class LearnedBandit:
    """A bandit with a learned prior."""

    name: str
    uid: str
    record: BanditRecord
    learner_dim: int
    catalogue_uid: str
    history: HistoryPriorRecord | None


class LearnedBandits:
    """The bandits of a store with a learned prior, as of the last ``poll``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version = -1
        self._bandits: Mapping[str, LearnedBandit] = {}
        self._synced: dict[int, str] = dict.fromkeys(range(store.partitions), "")

    def by_uid(self, uid: str) -> LearnedBandit | None:
        """The bandit of this uid; None: none with a learned prior."""
        return self._bandits.get(uid)

    def with_learned_priors(self) -> Sequence[str]:
        """Their uids."""
        return list(self._bandits)

    async def run(self, changed: Callable[[Iterable[str] | None], None]) -> None:
        """Poll until cancelled. ``changed`` is told which bandits or learners of them changed; None: any."""
        await repeat(lambda: self.poll(changed), every_s=EVERY_S, waits="priors are not fitted")

    async def poll(self, changed: Callable[[Iterable[str] | None], None]) -> None:
        """Find out what there is, then what has changed. Raises Unavailable."""
        version = await self._store.registry.version()
        if version != self._version:
            registry, before = await self._store.registry.read(), self._bandits
            self._bandits, self._version = _learned(registry), registry.version
            # Of thousands one was made or changed: to look at all others would cost milliseconds for each.
            changed({uid for uid, bandit in self._bandits.items() if bandit != before.get(uid)})
        for partition, changes in (await self._store.learners.changed(self._synced)).items():
            if changes.watermark != self._synced[partition]:
                self._synced[partition] = changes.watermark
                learners = changes.learners
                changed(None if learners is None else {learner.bandit_uid for learner in learners})


def _learned(registry: Registry) -> dict[str, LearnedBandit]:
    """The bandits with a learned prior, by uid. Bandits known only to a newer version are left to that
    version.
    """
    learned = dict[str, LearnedBandit]()
    for name, data in registry.bandits.items():
        try:
            uid, version = bytes_to_version(data)
        except Unavailable as error:
            log.warning("the prior of the bandit %s is not fitted here: %s", name, error.detail)
            continue
        record = version.record
        catalogue = registry.catalogues.get(record.catalogue)
        if record.prior != "learned" or catalogue is None:
            continue
        catalogue_uid, of_catalogue = split_uid(catalogue, CatalogueRecord)
        dim = learner_dim(record, of_catalogue.dim, Context.of(record, of_catalogue.dim))
        learned[uid] = LearnedBandit(name, uid, record, dim, catalogue_uid, of_catalogue.prior)
    return learned
