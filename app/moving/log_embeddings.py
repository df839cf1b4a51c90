"""Coordinates of arms from the rewards in the log of a bandit: judged, and taken only if they gain.

The rule is that of ``shortlist.embedding.own_rewards``. Where it takes them, a catalogue is made that follows
the one of the bandit, with the features of that and the coordinates beside, and the bandit is moved to it.
Where it does not, nothing is changed. Done again after a kill it goes on where it was.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.registry import Bandits
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.catalogues.embeddings import Embeddings
from app.decision_log.reading import DecisionLog
from app.decision_log.rows import NO_LOG, values_of
from app.moving.moving import Moving
from app.platform.documents import Answer
from app.platform.errors import Conflict, Invalid, NotFitted, NotFound, Unavailable
from app.platform.long_work import LongWork
from app.records.behaviour import BehaviourRecord
from shortlist.embedding import own_rewards
from shortlist.embedding.own_rewards import Judgement, Rewards
from shortlist.errors import InvalidParameter
from shortlist.types import Matrix

MAX_JUDGED_REWARDS = 1_000_000  # of a log, the newest
MAX_JUDGED_DIM = 256  # of the features with the coordinates
SEED = 0
BLOCK_ARMS = 1_000
FILL_S, LOOK_S = 600.0, 0.1

# One at a time: a judgement takes a core for seconds.
JUDGING = LongWork(threads=1, waiting=8, name="embeddings")

Progress = Callable[[int, int | None], None]


class LogEmbedding(Answer, frozen=True):
    """What was found. ``taken``: whether the bandit was moved to ``catalogue``, which is null else;
    ``finding`` says so as a sentence. ``before`` and ``after``: the mean squared error on the last tenth of
    the ``rewards``, with the present features and with the coordinates; ``error``: the standard error of
    their difference.
    """

    taken: bool
    finding: str
    catalogue: str | None
    rewards: int
    keys: int
    before: float
    after: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class _Log:
    """Shapes: table (A, T); ``ids`` are those of its rows."""

    rewards: Rewards
    ids: list[str]
    table: Matrix


class LogEmbeddings:
    """Makes them. ``move``: moves a bandit."""

    def __init__(
        self,
        catalogues: Catalogues,
        bandits: Bandits,
        log: DecisionLog,
        embeddings: Embeddings,
        moving: Moving,
    ) -> None:
        self._catalogues = catalogues
        self._bandits = bandits
        self._log = log
        self._embeddings = embeddings
        self._moving = moving

    async def check(self, bandit: Bandit, catalogue: str, dim: int) -> None:
        """Raise Conflict, Invalid, NotFitted or NotPossibleHere if this bandit cannot have any."""
        record = bandit.record
        if record.log is None:
            raise Conflict(NO_LOG)
        if record.scope != "per_key":
            raise Invalid("a bandit of scope global has no keys to compare", path=())
        for name in ("context", "signals", "position"):
            if getattr(record, name):
                raise Invalid(f"a bandit with {name} cannot have its log judged", path=())
        if record.shift_rewards:
            raise Invalid("a bandit with shift_rewards cannot have its log judged", path=())
        source = await self._embeddings.source(bandit.catalogue.name)
        if source.dim + dim > MAX_JUDGED_DIM:
            message = f"dim and the {source.dim:,} features of {source.name} must be at most {MAX_JUDGED_DIM}"
            raise Invalid(message, path=("dim",))
        try:
            await self._catalogues.get(catalogue)
        except NotFound:
            return
        raise Conflict(f"the catalogue {catalogue} exists already; name another one, or delete it")

    async def embed(self, bandit_uid: str, catalogue: str, dim: int, progress: Progress) -> LogEmbedding:
        """Judge, and move if it gains. Raises NotFound, Conflict, Invalid, Unavailable, TooDifferent."""
        bandit = self._bandits.by_uid(bandit_uid)
        if bandit is None:
            raise NotFound("the bandit was deleted meanwhile")
        found = await self._made_before(bandit, catalogue)
        if found is None:
            source = await self._embeddings.source(bandit.catalogue.name)
            log = await self._read(bandit, source, progress)
            rng = np.random.default_rng(SEED)
            try:
                judged = await JUDGING.run(partial(own_rewards.judge, log.rewards, log.table, dim, rng))
                if not judged.is_taken:
                    return _finding(log.rewards, judged, None)
                numbers = await JUDGING.run(
                    partial(own_rewards.coordinates, log.rewards, log.table, dim, np.random.default_rng(SEED))
                )
            except InvalidParameter as error:
                raise Invalid(f"the log says too little: {error}", path=()) from None
            found = (
                await self._make(catalogue, source, log, numbers, judged),
                _finding(log.rewards, judged, catalogue),
            )
        made, finding = found
        await self._wait_filled(made)
        newest = self._bandits.by_uid(bandit_uid)
        if newest is None or newest.catalogue.uid not in {bandit.catalogue.uid, made.uid}:
            raise Conflict("the bandit was moved or deleted meanwhile: nothing was moved")
        if newest.catalogue.uid != made.uid:
            await self._moving.move(newest.name, catalogue, "auto", dry_run=False, by=None)
        return finding

    async def _made_before(self, bandit: Bandit, name: str) -> tuple[Catalogue, LogEmbedding] | None:
        """What this work had made before it was interrupted."""
        try:
            made = await self._catalogues.get(name)
        except NotFound:
            return None
        behaviour = made.record.behaviour
        is_ours = behaviour is not None and behaviour.beside and behaviour.held_out is not None
        if not is_ours or behaviour is None or behaviour.held_out is None:
            raise Conflict(f"the catalogue {name} was made meanwhile by others")
        before, after = behaviour.held_out
        sentence = f"{bandit.name} was moved to {name} after an interruption: the error fell"
        return made, LogEmbedding(True, sentence, name, behaviour.rewards, behaviour.keys, before, after, 0.0)

    async def _read(self, bandit: Bandit, source: Catalogue, progress: Progress) -> _Log:
        snapshot = source.index.snapshot()
        rows = snapshot.eligible()
        ids = [snapshot.id_of(row) for row in rows.tolist()]
        places = {arm_id: place for place, arm_id in enumerate(ids)}
        numbers = dict[str, int]()
        keys, arms, values = array("q"), array("q"), array("d")
        async for page in self._log.pages(bandit, from_ms=bandit.record.moved_ms or None, to_ms=None):
            for row in page:
                if row.key is None:
                    continue
                key = numbers.setdefault(row.key, len(numbers))
                for arm, value in values_of(row).items():
                    if (place := places.get(arm)) is not None:
                        keys.append(key)
                        arms.append(place)
                        values.append(value)
            progress(len(values), None)
        newest = slice(max(0, len(values) - MAX_JUDGED_REWARDS), None)
        rewards = Rewards(
            np.array(keys, dtype=np.int64)[newest],
            np.array(arms, dtype=np.int64)[newest],
            np.array(values, dtype=np.float64)[newest],
            len(numbers),
        )
        return _Log(rewards, ids, snapshot.features_of(rows).astype(np.float64))

    async def _make(
        self, name: str, source: Catalogue, log: _Log, numbers: Matrix, judged: Judgement
    ) -> Catalogue:
        counts = np.bincount(log.rewards.arms, minlength=len(log.ids))
        known, dim = np.flatnonzero(counts), numbers.shape[1]
        nothing = np.zeros((dim, source.dim), dtype="<f4").tobytes(), np.zeros(dim, dtype="<f4").tobytes()
        record = BehaviourRecord(
            source.name,
            source.uid,
            *nothing,
            kappa=1.0,
            rewards=len(log.rewards),
            keys=log.rewards.key_count,
            arms=len(known),
            without=len(log.ids) - len(known),
            beside=True,
            held_out=(judged.before, judged.after),
        )
        embedding = self._embeddings.begin(source, record)
        # The record shrinks what it is given by n / (n + 1), and the coordinates are shrunk.
        whole = numbers * (counts[:, None] + 1.0) / np.maximum(counts[:, None], 1.0)
        for start in range(0, len(known), BLOCK_ARMS):
            rows = known[start : start + BLOCK_ARMS]
            await embedding.add(
                [log.ids[row] for row in rows.tolist()], counts[rows].astype(float), whole[rows]
            )
        made, _ = await embedding.make(name)
        return made

    async def _wait_filled(self, catalogue: Catalogue) -> None:
        until = time.monotonic() + FILL_S
        while True:
            try:
                return await self._catalogues.need_fitted(catalogue)
            except NotFitted:
                if time.monotonic() > until:
                    raise Unavailable(f"{catalogue.name} was made, and its arms do not come") from None
            await asyncio.sleep(LOOK_S)


def _finding(rewards: Rewards, judged: Judgement, catalogue: str | None) -> LogEmbedding:
    gain = 1.0 - judged.after / judged.before if judged.before else 0.0
    said = f"on {judged.judged:,} rewards that were held out the squared error is {abs(gain):.1%} "
    said += "smaller" if gain > 0.0 else "larger"
    if catalogue is None:
        finding = f"nothing was moved: {said}, which is not more than its standard error"
    else:
        finding = f"moved to {catalogue}: {said}"
    return LogEmbedding(
        catalogue is not None, finding, catalogue, len(rewards), rewards.key_count,
        judged.before, judged.after, judged.error,
    )  # fmt: skip
