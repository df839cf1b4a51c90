"""Making a catalogue that follows another one, with an embedding of behaviour as its features.

The behaviour of arms is stored first, under the uid of a catalogue which nobody serves yet. Then the
catalogue is made in one step; ``following`` fills it from then on. Without a catalogue in the end, the
behaviour is dropped; remains of a killed process, or from a time without the store, expire by themselves.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shortlist_embeddings.encoding import BehaviourEncoding, behaviour_to_bytes
from shortlist_service.catalogues import (
    BehaviourRecord,
    Catalogue,
    CatalogueRecord,
    Catalogues,
    HistoryPriorRecord,
)
from shortlist_service.errors import Conflict, Invalid, NotFitted, NotFound, Unavailable
from shortlist_service.metrics import Gauge, Metrics
from shortlist_service.storage import Store

UPLOADED = (
    "shortlist_uploaded_bytes",
    "What embeddings of behaviour have stored that are being uploaded or made.",
)
KEEP_MS = 86_400_000  # what was stored of a catalogue that was not made


class NewEmbedding:
    """A catalogue that is being made. It is a context, at whose end what was stored in vain is dropped.

    ``uploaded``: the bytes of all that are being made.
    """

    def __init__(
        self,
        store: Store,
        catalogues: Catalogues,
        source: Catalogue,
        record: BehaviourRecord,
        *,
        prior: HistoryPriorRecord | None,
        uploaded: Gauge,
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._source = source
        self._record = record
        self._prior = prior
        self._encoding = BehaviourEncoding(record)
        self._uid = secrets.token_hex(8)
        self._uploaded = uploaded
        self._bytes = 0
        self._may_be_made = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uploaded.dec(self._bytes)
        if not self._may_be_made:
            with contextlib.suppress(Unavailable):
                await self._store.arms.drop_behaviour(self._uid)

    async def add(
        self, ids: Sequence[str], likes: NDArray[np.floating], vectors: NDArray[np.floating]
    ) -> None:
        """Store what is known of some arms; those that the source lacks are left out, which bounds it.

        Shapes: likes (k,), vectors (k, d). Raises Conflict (the source was deleted), Unavailable.
        """
        try:
            known_ids = (await self._catalogues.features(self._source, set(ids))).keys()
        except NotFound:
            raise Conflict(f"{self._source.name} was deleted meanwhile") from None
        pairs = zip(ids, behaviour_to_bytes(likes, vectors), strict=True)
        items = {arm_id: data for arm_id, data in pairs if arm_id in known_ids}
        size = sum(len(arm_id) + len(data) for arm_id, data in items.items())
        self._uploaded.inc(size)
        self._bytes += size
        await self._store.arms.keep_behaviour(self._uid, items, ttl_ms=KEEP_MS)

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
        self._may_be_made = True  # also where the store does not answer
        try:
            catalogue, is_new = await self._catalogues.create(name, record, uid=self._uid)
        except Conflict:
            self._may_be_made = False
            raise
        self._may_be_made = catalogue.uid == self._uid
        return catalogue, is_new


class Embeddings:
    """Begins them."""

    def __init__(self, store: Store, catalogues: Catalogues, metrics: Metrics) -> None:
        self._store = store
        self._catalogues = catalogues
        self._uploaded = metrics.of_plugin(Gauge, *UPLOADED)

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
        return NewEmbedding(
            self._store, self._catalogues, source, record, prior=prior, uploaded=self._uploaded
        )
