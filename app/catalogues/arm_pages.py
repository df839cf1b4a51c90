"""Arms of a catalogue with their features and documents, as they are listed, drawn, sorted or looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from app.catalogues.arms import Arm
from app.catalogues.catalogue import Catalogue
from app.catalogues.kept_arms import ArmRepository, FoundArms
from app.filters.overview import MOST_SORTED, in_order
from app.platform.answer_memory import hold
from app.platform.cursors import decode_cursor, encode_cursor
from app.platform.deadlines import yield_to_others
from app.platform.errors import Invalid, NotFound
from app.platform.pools import REQUESTS
from app.records.records import attributes_of, embedding_of
from app.storage.arms import ArmStore

PAGE_NUMBERS = 100_000  # in the features of a page, about
PAGE_BYTES = 8 << 20
DOCUMENT_COPIES = 8  # about what a page takes for each byte of a document: by itself, as objects, as JSON
MAX_DOCUMENT_BYTES = 50_000  # about, of one
NUMBER_BYTES = 60  # and for each number: as an object in a list, and as text


class ArmPages:
    """Reads arms. ``repository_of`` raises NotFound of a catalogue deleted meanwhile.

    ``most_sorted``: most arms to sort for a page. ``page_bytes``: of the documents of a page.
    """

    def __init__(self, store: ArmStore, repository_of: Callable[[Catalogue], ArmRepository]) -> None:
        self.most_sorted, self.page_bytes = MOST_SORTED, PAGE_BYTES
        self._store = store
        self._repository_of = repository_of

    async def page(
        self, catalogue: Catalogue, cursor: str | None, limit: int
    ) -> tuple[Sequence[Arm], str | None]:
        """A page of arms, oldest features first: an unchanged arm appears exactly once.

        At most ``limit``, fewer where they are long.
        """
        limit = min(limit, max(1, PAGE_NUMBERS // catalogue.dim))
        after = None if cursor is None else decode_cursor(cursor)
        async with catalogue.lock:  # else the documents could be of a later write than the features
            page = await self._repository_of(catalogue).page(after, limit + 1)
            arms = await self._with_documents(catalogue, page, limit)
        more = len(page.ids) > len(arms)
        return arms, encode_cursor(page.places[len(arms) - 1]) if more else None

    async def sample(self, catalogue: Catalogue, seed: int, limit: int) -> Sequence[Arm]:
        """At most ``limit`` arms drawn uniformly without replacement, fewer where they are long."""
        limit = min(limit, max(1, PAGE_NUMBERS // catalogue.dim))
        async with catalogue.lock:  # as above
            sampled = await self._repository_of(catalogue).sample(seed, limit)
            return await self._with_documents(catalogue, sampled, limit)

    async def page_by(
        self, catalogue: Catalogue, name: str, *, descending: bool, cursor: str | None, limit: int
    ) -> tuple[Sequence[Arm], str | None]:
        """A page of arms by the values of a field, see ``in_order``. Raises Invalid, NotPossibleHere."""
        catalogue.need_arms("sorting")
        most = self.most_sorted
        if len(catalogue.index) > most:
            message = f"at most {most:,} arms are sorted, and this catalogue has {len(catalogue.index):,}"
            raise Invalid(message, path=("sort",))
        limit = min(limit, max(1, PAGE_NUMBERS // catalogue.dim))
        snapshot = catalogue.index.snapshot()
        rows, revisions = snapshot.table.by_revision
        work = partial(
            in_order, snapshot.attributes, rows, revisions.tolist(), name,
            descending=descending, cursor=cursor, limit=limit + 1,
        )  # fmt: skip
        ordered = {snapshot.id_of(row): following for row, following in await REQUESTS.run(work)}
        async with catalogue.lock:  # as above
            page = await self._repository_of(catalogue).find(list(ordered)[:limit])
            arms = await self._with_documents(catalogue, page, limit)
        last = arms[-1].id if arms else next(iter(ordered), "")
        return arms, ordered[last] if last and last != next(reversed(ordered)) else None

    async def one(self, catalogue: Catalogue, arm_id: str) -> Arm:
        """An arm. Raises NotFound."""
        async with catalogue.lock:  # as above
            arms = await self._repository_of(catalogue).find([arm_id])
            if not arms.ids:
                raise NotFound("the catalogue has no arm with this id")
            return (await self._with_documents(catalogue, arms, 1))[0]

    async def _with_documents(self, catalogue: Catalogue, arms_found: FoundArms, most: int) -> list[Arm]:
        """The first of these arms at least, and as many as ``most`` and ``page_bytes`` allow."""
        most_bytes = self.page_bytes
        ids = arms_found.ids[:most]
        reading = min(len(ids) * MAX_DOCUMENT_BYTES, most_bytes)
        hold(len(ids) * catalogue.dim * NUMBER_BYTES + reading)
        documents = await self._store.documents(catalogue.uid, ids, most_bytes=most_bytes)
        hold(DOCUMENT_COPIES * sum(map(len, documents)) - reading)
        arms = list[Arm]()
        fitted = catalogue.encoding.is_fitted
        for arm_id, row, data in zip(ids, arms_found.features[:most], documents, strict=False):
            await yield_to_others()
            tags, metadata = attributes_of(data)
            features = row if fitted or not data else embedding_of(data)  # until then as it was given
            arms.append(Arm(arm_id, features.tolist(), tags, dict(metadata)))
        return arms
