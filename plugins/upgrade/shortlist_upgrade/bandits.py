"""Bandits of 2.x: what becomes of each, and their stored versions and moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

UID_LENGTH = 16
GONE = frozenset({"prior_strength", "shift_rewards", "auto", "explore"})

Settings = dict[str, Any]


@dataclass(frozen=True)
class Bandit:
    """A bandit of 2.x.

    ``drops_learners``  its learners go, unreadable for version 3, by request
    ``notes``           changes, as sentences; none: no change
    ``blocks``          why the upgrade stops; "": no reason
    """

    uid: str
    name: str
    settings: Settings
    drops_learners: bool
    notes: Sequence[str]
    blocks: str = ""

    @property
    def remembers(self) -> bool:
        """See ``_remembers``."""
        return _remembers(self.settings)

    @classmethod
    def of(
        cls, name: str, data: bytes, dropped: Collection[str], spaces: Iterable[Mapping[bytes, bytes]]
    ) -> Bandit:
        """Read a bandit. ``data``: the stored bytes. ``dropped``: the bandits whose learners go.

        ``spaces``: the moves known to each partition.
        """
        uid, (settings, *_) = version_of(data)
        is_shifted = bool(settings.get("shift_rewards"))
        blocks = ""
        if is_shifted and name not in dropped:
            blocks = (
                "its learners sum rewards that shift_rewards transformed, which version 3 cannot read. "
                f"--drop-learners {name} drops them: the bandit and its decision log stay, and it can be "
                "taught again from its rows"
            )
        notes = _notes(settings, bool(blocks))
        carried = [int(partition.get(f"{uid}:carried".encode(), 0)) for partition in spaces]
        if min(carried, default=0) < settings.get("space", 0):
            notes.append("its move that is under way is finished by its map")
        return cls(uid, name, settings, is_shifted and not blocks, notes, blocks)


def _remembers(settings: Settings) -> bool:
    """A constraint of a plug-in may have noted something of its keys: 2.x took it or ``repeats``."""
    return bool(settings.get("constraints")) and settings.get("repeats") is None


def _notes(settings: Settings, is_blocked: bool) -> list[str]:
    notes = list[str]()
    if settings.get("prior") == "pooled":
        prior = prior_of(settings)
        why = "" if prior == "learned" else f" ({_no_learned_prior(settings)})"
        notes.append(f"prior: pooled becomes {prior}{why}: learners keep their sums, and choices change")
    if settings.get("auto", 1) == 1:
        notes.append('"auto" goes by the one rule, by what a learner has seen: choices change')
    if settings.get("explore") is not None:
        notes.append("explore is gone: a new key is shown no arms first")
    if _remembers(settings):
        notes.append("what constraints of plug-ins noted of its keys is deleted")
    if settings.get("shift_rewards") and not is_blocked:
        notes.append("its learners are dropped, and shift_rewards is gone; its decision log stays")
    return notes


def prior_of(settings: Settings) -> str:
    """The prior of a bandit of version 3."""
    prior: str = settings.get("prior", "plain")
    if prior != "pooled":
        return prior
    # A policy that takes a pooled prior takes a learned one.
    return "plain" if _no_learned_prior(settings) else "learned"


def _no_learned_prior(settings: Settings) -> str:
    if settings.get("ridge", "auto") != "auto":
        return 'learned needs ridge: "auto"'
    return "learned has no exploration: theory" if settings.get("exploration") == "theory" else ""


def version_of(data: bytes) -> tuple[str, list[Any]]:
    """Uid of a bandit, and its settings, number, time, time of ``idle_ttl_s``, key.

    The bandits of 0.1 that nobody has changed since have the settings alone, and no time.
    """
    stored: Any = msgspec.msgpack.decode(data[UID_LENGTH:])
    settings, number, since_ms, *others = stored if isinstance(stored, list) else [stored, 1, 0, 0, None]
    return data[:UID_LENGTH].decode(), [settings, number, since_ms or 0, *others]


def new_version(data: bytes) -> bytes:
    """A stored version as version 3 has it."""
    _, (settings, *others) = version_of(data)
    settings_kept = {name: value for name, value in settings.items() if name not in GONE}
    return data[:UID_LENGTH] + msgspec.msgpack.encode(
        [{**settings_kept, "prior": prior_of(settings)}, *others]
    )


def left_by(data: bytes) -> tuple[str, int]:
    """The uid of the catalogue before a bandit's move, and the time of the move."""
    record: dict[str, Any] = msgspec.msgpack.decode(data)
    return record["left_uid"], record["moved_ms"]


def new_move(data: bytes) -> bytes:
    """The record of a move as version 3 has it: learners were carried by its map, or not at all."""
    record: dict[str, Any] = msgspec.msgpack.decode(data)
    carry = "none" if record["carry"] == "none" else "map"
    fields_kept = {name: value for name, value in record.items() if name not in {"asked", "restores"}}
    answer = {**record["answer"], "carry": carry}
    return msgspec.msgpack.encode({**fields_kept, "carry": carry, "answer": answer})
