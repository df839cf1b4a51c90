"""Making a catalogue that follows another one, with an embedding of behaviour as its features.

What is known of arms is stored first, under the uid of a catalogue that nobody serves yet. Then the catalogue
is made in one step; ``workers.catalogue_following`` fills it from then on. What a client leaves behind that
goes away before that step ends by itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.platform.errors import Conflict, Invalid, NotFitted, NotFound
from app.records.behaviour import BehaviourEncoding, BehaviourRecord, behaviour_to_bytes
from app.records.history_prior import HistoryPriorRecord
from app.records.records import CatalogueRecord
from app.storage.arms import ArmStore

KEEP_MS = 86_400_000  # what was stored of a catalogue that was not made


class NewEmbedding:
    """A catalogue that is being made."""

    def __init__(
        self,
        store: ArmStore,
        catalogues: Catalogues,
        source: Catalogue,
        record: BehaviourRecord,
        prior: HistoryPriorRecord | None,
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._source = source
        self._record = record
        self._prior = prior
        self._encoding = BehaviourEncoding(record)
        self._uid = secrets.token_hex(8)

    async def add(
        self, ids: Sequence[str], likes: NDArray[np.floating], vectors: NDArray[np.floating]
    ) -> None:
        """Store what is known of some arms; those that the source lacks are left out, which bounds it.

        Shapes: likes (k,), vectors (k, d). Raises Conflict (the source was deleted), Unavailable.
        """
        try:
            known = (await self._catalogues.features(self._source, set(ids))).keys()
        except NotFound:
            raise Conflict(f"{self._source.name} was deleted meanwhile") from None
        pairs = zip(ids, behaviour_to_bytes(likes, vectors), strict=True)
        items = {arm_id: data for arm_id, data in pairs if arm_id in known}
        await self._store.keep_behaviour(self._uid, items, ttl_ms=KEEP_MS)

    async def make(self, name: str) -> tuple[Catalogue, bool]:
        """The catalogue, and whether it is new.

        Raises Conflict (another one has the name, or the followed one was deleted), Unavailable.
        """
        source = await self._catalogues.get(self._source.name)
        if source.uid != self._source.uid:
            raise Conflict(f"{source.name} was deleted meanwhile, and made again")
        before = source.record
        record = CatalogueRecord(
            self._encoding.dim,
            before.index,
            before.target_recall,
            display=before.display,
            behaviour=self._record,
            prior=self._prior,
        )
        catalogue, is_new = await self._catalogues.create(name, record, uid=self._uid)
        if not is_new:
            await self.drop()
        return catalogue, is_new

    async def drop(self) -> None:
        """Forget what was stored, for no catalogue is made of it. Raises Unavailable."""
        await self._store.drop_behaviour(self._uid)


class Embeddings:
    """Begins them."""

    def __init__(self, store: ArmStore, catalogues: Catalogues) -> None:
        self._store = store
        self._catalogues = catalogues

    async def source(self, name: str) -> Catalogue:
        """The catalogue of this name, to be followed.

        Raises NotFound, NotFitted, NotPossibleHere (its arms are not in memory), Invalid (it follows one).
        """
        source = await self._catalogues.get_stocked(name)
        source.need_arms("an embedding of behaviour")
        if source.record.behaviour is not None:
            followed = source.record.behaviour.follows
            raise Invalid(f"{name} follows {followed} itself: make the embedding from {followed}", path=())
        if not source.encoding.is_fitted:
            raise NotFitted(f"the features of {name} are not fitted yet, so nothing can be learned of them")
        return source

    def begin(
        self, source: Catalogue, record: BehaviourRecord, prior: HistoryPriorRecord | None = None
    ) -> NewEmbedding:
        """Begin one that follows ``source``; nobody sees it until it is made."""
        return NewEmbedding(self._store, self._catalogues, source, record, prior)
