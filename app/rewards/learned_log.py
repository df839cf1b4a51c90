"""The reward log for readers outside: the meaning of each entry of a bandit, from any entry on.

Entries come partition by partition, in the order of the log. A reader with a cursor for each partition reads
every entry once. Entries trimmed before they were read are counted.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.bandits.bandit import GLOBAL_LEARNER, Bandit
from app.fold.entry_rows import signals_before, signals_of
from app.platform.answer_memory import hold
from app.platform.cursors import decode_cursor, encode_cursor, foreign
from app.platform.deadlines import yield_to_others
from app.platform.documents import Answer
from app.platform.errors import Invalid
from app.records.log_entries import ForgetEntry, MoveEntry, RewardEntry, StateEntry, decoded
from app.records.records import bytes_to_context, bytes_to_vector
from app.storage.store import Store
from app.storage.types import OF_REQUEST, LogEntry, entry_order

READ_TOGETHER = 1_000  # entries of the log
ENTRY_BYTES = 2_000  # about what one takes besides its features, as objects and as JSON
MOST_ENTRIES = 20_000  # of all bandits, for one page
PAGE_NUMBERS = 1 << 17  # of features on one page, about
ENTRY_ID = re.compile(r"[0-9]{1,18}-[0-9]{1,18}")  # no store takes a number beyond 64 bits


class LearnedReward(Answer, frozen=True, gc=False):
    """One entry of the reward log.

    ``number``     its place in the log of its partition: each is greater than the one before
    ``time``       when it was written, ms since 1970; ``decided``: when the arm was chosen
    ``kind``       "other": its arm was not noted; "forget": the learner starts again; "state": a learner
                   without rewards takes this one; "move": all of the partition are carried
    ``id``         of the decision, or of the observation
    ``first``      whether no reward of this decision and arm came before; ``before``: the sum of those, of a
                   bandit that sums
    ``replaces``   the replaced value, of a default or, where the last counts, of an earlier reward; None: of
                   none
    ``context``    as encoded; None: without a context
    ``logged``     whether the decision is in the decision log
    ``replayed``   its number as a dead letter: nothing was learned from the dead letter
    ``features``   the features learned from, where ``kind`` is "other", the arm was of a request alone (its
                   ``revision`` is 0) or had numbers from the request (``match``), or the entry is from before
                   a move: those of the bandit's catalogue at the time
    ``examined``   the factor of the arm's features; None: 1. ``weight``: relative to a reward of the first
                   place; None: 1
    ``signal``     of a bandit with signals, the signal of the reward, and its number among them, from 0;
                   None: of all together. ``had``: the values of the signals before the entry, in their order,
                   received ones and defaults; missing ones at the end are 0
    ``expected``   of each signal, or of the only one, what was expected of the arm, and ``effect``: what it
                   was taken to have beyond its features; the key learns the reward less the effect, times
                   ``examined``. Both None: it was chosen without arm effects; only ``expected``: the arm
                   learned nothing. ``age``: what its age added, a part of ``effect``; None: its age is not
                   known
    ``space``      which move of the bandit it is from, 0: none; of a move its own number. Revisions are of
                   the catalogue that the bandit had then
    """

    number: int
    time: int
    kind: str
    key: str | None
    id: str | None = None
    arm: str | None = None
    revision: int | None = None
    value: float | None = None
    decided: int | None = None
    first: bool = True
    before: float = 0.0
    replaces: float | None = None
    context: list[float] | None = None
    logged: bool = False
    replayed: int | None = None
    features: list[float] | None = None
    state: str | None = None
    examined: float | None = None
    signal: str | None = None
    signal_number: int | None = None
    had: list[float] | None = None
    space: int = 0
    expected: list[float] | None = None
    effect: list[float] | None = None
    weight: float | None = None
    age: float | None = None


class ArmRevision(Answer, frozen=True, gc=False):
    """The features of an arm at a revision. Revisions ascend within a catalogue."""

    id: str
    revision: int
    features: list[float]


@dataclass(slots=True)
class LearnedPage:
    """Some entries, and their arms.

    ``position``  the cursor of later entries
    ``more``      whether more entries are there now
    ``missing``   entries of the partition, of any bandit, trimmed before they could be read here, or erased
                  with a forgotten learner
    """

    items: list[LearnedReward] = field(default_factory=list)
    arms: dict[int, ArmRevision] = field(default_factory=dict)
    position: str = ""
    more: bool = False
    missing: int = 0


class LearnedLog:
    """Reads the reward log for one bandit. Raises Unavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def partitions(self) -> int:
        """The number of logs."""
        return self._store.partitions

    async def page(
        self, bandit: Bandit, partition: int, cursor: str | None, limit: int, *, with_arms: bool
    ) -> LearnedPage:
        """At most ``limit`` entries after the cursor; fewer where features are long. ``with_arms``: and their
        arms.

        Cost: reads up to ``MOST_ENTRIES`` entries of all bandits. Raises Invalid: no such partition, or the
        cursor is not one of this list and bandit.
        """
        if partition >= self._store.partitions:
            raise Invalid(f"there are {self._store.partitions} partitions", path=("partition",))
        after = _after(bandit, cursor)
        page, numbers, read, begun = LearnedPage(), 0, 0, False
        hold(READ_TOGETHER * (ENTRY_BYTES + 8 * bandit.learner_dim))
        while read < MOST_ENTRIES:
            entries = await self._store.rewards.read(partition, after, READ_TOGETHER)
            if not begun:
                page.missing, begun = await self._missing(partition, after, entries), True
            for entry in entries:
                await yield_to_others()
                if entry.learner.bandit_uid == bandit.uid:
                    if len(page.items) == limit or numbers > PAGE_NUMBERS:
                        page.more = True
                        break
                    numbers += _take(page, bandit, entry, with_arms=with_arms)
                after = entry.entry_id
            read += len(entries)
            if page.more or len(entries) < READ_TOGETHER:
                break
        else:
            page.more = True
        page.position = encode_cursor(f"{bandit.uid}/{after}")
        return page

    async def _missing(self, partition: int, after: str, entries: Sequence[LogEntry]) -> int:
        """Entries are numbered without a gap, but for those of learners that were erased."""
        next_id = entries[0].entry_id if entries else await self._store.learners.watermark(partition)
        gone = entry_order(next_id)[1] - entry_order(after)[1] - (1 if entries else 0)
        return max(0, gone)


def _after(bandit: Bandit, cursor: str | None) -> str:
    if cursor is None:
        return "0-0"
    uid, slash, entry_id = decode_cursor(cursor).partition("/")
    if not slash or not ENTRY_ID.fullmatch(entry_id):
        raise foreign()
    if uid != bandit.uid:
        raise Invalid("the cursor belongs to a deleted bandit with the same name", path=("cursor",))
    return entry_id


def _take(page: LearnedPage, bandit: Bandit, entry: LogEntry, *, with_arms: bool) -> int:
    """Put an entry on the page, and return the count of its numbers of features.

    An unreadable entry is left out.
    """
    content = decoded(entry).content
    written_ms, number = entry_order(entry.entry_id)
    replayed = entry_order(entry.origin)[1] if entry.origin else None
    key = None if entry.learner.name == GLOBAL_LEARNER else entry.learner.name
    match content:
        case RewardEntry():
            numbers, shown = _rewarded(page, bandit, entry, content, with_arms=with_arms)
        case StateEntry(state):
            numbers, shown = len(state) // 8, {"kind": "state", "state": base64.b64encode(state).decode()}
        case MoveEntry(space):
            numbers, shown, key = 0, {"kind": "move", "space": space}, None
        case ForgetEntry():
            numbers, shown = 0, {"kind": "forget"}
        case _:
            return 0
    page.items.append(LearnedReward(number=number, time=written_ms, key=key, replayed=replayed, **shown))
    return numbers


def _rewarded(
    page: LearnedPage, bandit: Bandit, entry: LogEntry, reward: RewardEntry, *, with_arms: bool
) -> tuple[int, dict[str, Any]]:
    """Return the count of an entry's numbers of features, and the fields of ``LearnedReward`` for a
    reward.
    """
    features, dim = bytes_to_vector(reward.features), bandit.catalogue.dim
    is_of_now, is_named = reward.space == bandit.record.space, reward.kind != "other"
    in_catalogue = is_of_now and is_named and reward.revision != OF_REQUEST
    # of earlier catalogues there are no arms
    numbers, has_features = 0, not in_catalogue or bandit.says_match(features)
    if with_arms and in_catalogue and reward.revision not in page.arms:
        arm_features = features[:dim] / (reward.examined or 1.0)
        page.arms[reward.revision] = ArmRevision(reward.arm, reward.revision, arm_features.tolist())
        numbers = dim
    values_before, is_replaced = signals_before(entry, reward, signals_of((entry, reward)))
    signal = reward.signal
    shown: dict[str, Any] = {
        "kind": reward.kind,
        "value": reward.value,
        "decided": reward.decided_ms,
        "first": entry.first,
        "replaces": values_before[signal] if is_replaced and signal is not None else None,
        "features": features.tolist() if has_features else None,
        "space": reward.space,
        "examined": reward.examined,
        "weight": None if reward.at_place is None else reward.weight,
        "age": None if reward.at_age is None else reward.at_age.effect,
    }
    if is_named:
        shown |= {name: getattr(reward, name) for name in ("id", "arm", "revision", "logged")}
        shown["context"] = None if reward.context is None else bytes_to_context(reward.context).tolist()
    if bandit.record.signals is not None:
        names = [*bandit.record.signals, *(None,) * (1 + (signal or 0))]
        name = None if signal is None else names[signal]
        shown |= {"signal": name, "signal_number": signal, "had": values_before}
    elif reward.sums and entry.came:
        shown["before"] = values_before[0]
    if reward.served:
        shown["effect"] = list(reward.served)
        shown["expected"] = list(reward.expected) or None
    return numbers + (len(features) if has_features else 0), shown
