"""Coordinates of arms from the rewards in the log of a bandit: judged, and taken only if they gain.

The rule is ``shortlist.embedding.own_rewards``. Where the coordinates gain, a catalogue is made which follows
the bandit's, with the same features and the coordinates beside, and the bandit is moved there. Otherwise
nothing is changed. Repeated after a kill the work goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np

from shortlist_embeddings.jobs import AskedEmbedding
from shortlist_embeddings.judging_process import JudgedLog, JudgingTask, check_judged, judge, judging_task
from shortlist_embeddings.new_embeddings import Embeddings
from shortlist_service.catalogues import BehaviourRecord, Catalogue, Catalogues
from shortlist_service.decision_log import NO_LOG, DecisionLog, StoredRow
from shortlist_service.errors import Conflict, Invalid, NotFitted, NotFound, Unavailable
from shortlist_service.jobs import Progress
from shortlist_service.routes import Answer, Bandit, Bandits, Moving
from shortlist_service.work import Pace, Slots

READ_ROWS = 100  # of a partition, in one call of the store
READ_SHARE = 0.25  # of the time that is spent on reading: choices come between
BLOCK_ARMS = 1_000
FILL_S, LOOK_S = 600.0, 0.1

# One at a time: a judgement takes a core for seconds.
JUDGING = Slots("judgements of logs", running=1, waiting=8)


class LogEmbedding(Answer, frozen=True):
    """The finding of a judgement. ``taken``: whether the bandit was moved to ``catalogue``, which is null
    else; ``finding`` says so as a sentence. ``before`` and ``after``: the mean squared error on the last
    tenth of the ``rewards``, with the present features and with the coordinates; ``error``: the standard
    error of their difference.
    """

    taken: bool
    finding: str
    catalogue: str | None
    rewards: int
    keys: int
    before: float
    after: float
    error: float


@dataclass(frozen=True, slots=True)
class LogEmbeddings:
    """Makes them. ``moving`` moves a bandit."""

    catalogues: Catalogues
    bandits: Bandits
    log: DecisionLog
    embeddings: Embeddings
    moving: Moving

    async def check(self, bandit: Bandit, catalogue: str, dim: int, liked: str | None) -> None:
        """Raise Conflict, Invalid, NotFitted or NotPossibleHere if this bandit cannot have any."""
        if bandit.record.log is None:
            raise Conflict(NO_LOG)
        if (behaviour := bandit.catalogue.record.behaviour) is not None:
            followed = f"{bandit.catalogue.name} follows {behaviour.follows}"
            raise Invalid(f"{followed}: coordinates are made only in a catalogue that follows none", path=())
        check_judged(bandit, await self.embeddings.source(bandit.catalogue.name), dim, liked)
        try:
            await self.catalogues.get(catalogue)
        except NotFound:
            return
        raise Conflict(f"the catalogue {catalogue} exists already; name another one, or delete it")

    async def embed(self, job: str, asked: AskedEmbedding, progress: Progress) -> LogEmbedding:
        """Judge, and move if it gains. ``job``: its id; done again under the same one it goes on.

        Raises NotFound, Conflict, Invalid, Unavailable, TooDifferent.
        """
        bandit, catalogue = self.bandits.by_uid(asked.bandit_uid), asked.catalogue
        if bandit is None:
            raise NotFound("the bandit was deleted meanwhile")
        earlier = await self._made_before(job, bandit, catalogue)
        if earlier is not None:
            following, finding = earlier
        else:
            source = await self.embeddings.source(bandit.catalogue.name)
            task = await judging_task(bandit, source, asked.dim, asked.signal)
            async with JUDGING.one():
                judged = await judge(task, self._pages(bandit, progress))
            if not judged.coordinates:
                return _finding(judged, None)
            # It takes minutes to judge a log: what is of no use any more is not made.
            self._where_it_was(bandit, source.uid)
            following = await self._make(job, catalogue, source, task, judged)
            finding = _finding(judged, catalogue)
        try:
            await self._wait_filled(following)
            newest = self._where_it_was(bandit, bandit.catalogue.uid, following.uid)
            if newest.catalogue.uid != following.uid:
                await self.moving.move(newest.name, catalogue, "map", dry_run=False, by=None)
        except (Conflict, NotFound):
            # Nobody has a use for it. After a kill, or while the store is away, it stays for the next try.
            if earlier is None:
                with contextlib.suppress(Conflict, NotFound):
                    await self.catalogues.delete(following.name)
            raise
        return finding

    def _where_it_was(self, bandit: Bandit, *catalogue_uids: str) -> Bandit:
        """The bandit as it is now. Raises Conflict unless it has one of these catalogues."""
        newest = self.bandits.by_uid(bandit.uid)
        if newest is None or newest.catalogue.uid not in catalogue_uids:
            raise Conflict("the bandit was moved or deleted meanwhile: nothing was made, and nothing moved")
        return newest

    async def _made_before(
        self, job: str, bandit: Bandit, name: str
    ) -> tuple[Catalogue, LogEmbedding] | None:
        """The results of this job from before an interruption. Raises Conflict: another one made the
        catalogue.
        """
        try:
            catalogue = await self.catalogues.get(name)
        except NotFound:
            return None
        behaviour = catalogue.record.behaviour
        if behaviour is None or behaviour.held_out is None or behaviour.made_for != job:
            raise Conflict(f"the catalogue {name} was made meanwhile by others")
        before, after = behaviour.held_out
        sentence = f"{bandit.name} was moved to {name} after an interruption: the error fell"
        return catalogue, LogEmbedding(
            True, sentence, name, behaviour.rewards, behaviour.keys, before, after, 0.0
        )

    async def _pages(self, bandit: Bandit, progress: Progress) -> AsyncIterator[Sequence[StoredRow]]:
        """The rows of the log since the last move: their arms have features in this catalogue."""
        pace, count = Pace(READ_SHARE), 0
        pages = self.log.stored_pages(bandit, from_ms=bandit.record.moved_ms or None, together=READ_ROWS)
        async for page in pages:
            yield page
            count += len(page)
            progress(count, None)
            await pace.rest()

    async def _make(
        self, job: str, name: str, source: Catalogue, task: JudgingTask, judged: JudgedLog
    ) -> Catalogue:
        counts = np.frombuffer(judged.counts, dtype="<i8")
        numbers = np.frombuffer(judged.coordinates, dtype="<f8").reshape(len(counts), -1)
        rewarded, dim = np.flatnonzero(counts), numbers.shape[1]
        nothing = np.zeros((dim, source.dim), dtype="<f4").tobytes(), np.zeros(dim, dtype="<f4").tobytes()
        record = BehaviourRecord(
            source.name, source.uid, *nothing, kappa=1.0, rewards=judged.rewards, keys=judged.keys,
            arms=len(rewarded), without=len(counts) - len(rewarded), beside=True,
            held_out=(judged.before, judged.after), made_for=job,
        )  # fmt: skip
        # The record shrinks what it is given by n / (n + 1), and the coordinates are shrunk.
        unshrunk = numbers * (counts[:, None] + 1.0) / np.maximum(counts[:, None], 1.0)
        async with self.embeddings.begin(source, record) as embedding:
            for start in range(0, len(rewarded), BLOCK_ARMS):
                rows = rewarded[start : start + BLOCK_ARMS]
                await embedding.add(
                    [task.ids[row] for row in rows.tolist()], counts[rows].astype(float), unshrunk[rows]
                )
            catalogue, _ = await embedding.make(name)
        return catalogue

    async def _wait_filled(self, catalogue: Catalogue) -> None:
        until = time.monotonic() + FILL_S
        while True:
            try:
                return await self.catalogues.need_fitted(catalogue)
            except NotFitted:
                if time.monotonic() > until:
                    raise Unavailable(f"{catalogue.name} was made, and its arms do not come") from None
            await asyncio.sleep(LOOK_S)


def _finding(judged: JudgedLog, catalogue: str | None) -> LogEmbedding:
    gain = 1.0 - judged.after / judged.before if judged.before else 0.0
    done = "nothing was moved" if catalogue is None else f"moved to {catalogue}"
    finding = f"{done}: on {judged.judged:,} rewards that were held out the squared error is {abs(gain):.1%} "
    finding += "smaller" if gain > 0.0 else "larger"
    if catalogue is None and gain > 0.0:
        finding += ", which is not more than its standard error"
    return LogEmbedding(
        catalogue is not None, finding, catalogue, judged.rewards, judged.keys,
        judged.before, judged.after, judged.error,
    )  # fmt: skip
