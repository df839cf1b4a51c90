"""Decisions by their event: the stored choice of an ``event_id`` has the token.

So a reward by event equals the reward by token: signed, valid as long, and with the same duplicates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from app.bandits.served_bandits import Bandits
from app.platform.deadlines import yield_to_others
from app.platform.errors import NotFound, TooLarge, within
from app.records.kept_choice import token_of
from app.rewards.tokens import Access, BadToken, text_of
from app.storage.store import Store
from app.storage.types import LearnerId

READ_TOGETHER = 500  # events
MAX_TOKENS_CHARS = 32 << 20  # of the decisions of one call: a body of tokens is bounded by its bytes


@dataclass(frozen=True, slots=True)
class Event:
    """The event of a choice, as the caller names it.

    ``key``      whose learner chose, of a bandit of scope per_key
    ``visitor``  whose pass the choice came with; None: without a pass
    """

    bandit: str
    event_id: str
    key: str | None = None
    visitor: str | None = None


def event_name(event_id: str, visitor: str | None) -> str:
    """The name of an event in the store: the events of each visitor with a pass are his own."""
    return event_id if visitor is None else f"{visitor}/{event_id}"  # no identifier has a slash


class Events:
    """Finds the decisions of events."""

    def __init__(self, store: Store, bandits: Bandits) -> None:
        self._store = store
        self._bandits = bandits

    async def tokens(
        self, decisions: Sequence[str | Event], access: Access, field: str
    ) -> Sequence[str | BadToken]:
        """The token of each decision: as given, or by its event, or the reason for none.

        ``access``: of the caller. ``field``: their list in the body. A round trip for ``READ_TOGETHER``
        events. Raises Invalid (the key against the scope), TooLarge, Unavailable.
        """
        tokens: list[str | BadToken] = []
        positions = defaultdict[tuple[LearnerId, str], list[int]](list)  # an event is read once
        for position, decision in enumerate(decisions):
            if isinstance(decision, str):
                tokens.append(decision)
                continue
            await yield_to_others()
            with within((field, position)):
                place = await self._place(decision, access)
            tokens.append(place if isinstance(place, BadToken) else BadToken("unknown_event"))
            if not isinstance(place, BadToken):
                positions[place].append(position)
        places, chars = list(positions), 0
        for start in range(0, len(places), READ_TOGETHER):
            together = places[start : start + READ_TOGETHER]
            kept = await self._store.choices.get_events(together)
            for place, record in zip(together, kept, strict=True):
                await yield_to_others()
                raw = None if record is None else token_of(record)
                if raw is None:
                    continue
                token = text_of(raw)
                for position in positions[place]:
                    tokens[position] = token
                chars += len(token) * len(positions[place])
            if chars > MAX_TOKENS_CHARS:
                rule = f"the tokens of these events have more than {MAX_TOKENS_CHARS:,} characters"
                raise TooLarge(f"{rule}: send them in several calls", path=(field,))
        return tokens

    async def _place(self, event: Event, access: Access) -> tuple[LearnerId, str] | BadToken:
        """Learner and name of the stored choice of an event. Raises Invalid, Unavailable."""
        if access.bandits is not None and event.bandit not in access.bandits:
            return BadToken("unknown_bandit")
        try:
            bandit = await self._bandits.get(event.bandit)
        except NotFound:
            return BadToken("unknown_bandit")
        key, visitor = event.key, event.visitor
        if access.owner is not None:
            if not {key, visitor} <= {None, access.owner}:
                return BadToken("unknown_event")
            visitor = access.owner
            key = visitor if bandit.record.scope == "per_key" else None
        return bandit.learner_for(key), event_name(event.event_id, visitor)
