"""What is written to the decision log: a row when a decision is made, and what its rewards add.

The record of a row is the token of its decision, as bytes. So the row of a decision that is rewarded can
always be made, whatever became of the one that was written when it was decided.
"""

from __future__ import annotations

from msgspec.msgpack import encode

from app.services.bandits.bandit import Bandit
from app.services.bandits.settings import Judged
from app.services.formats.logged import RewardOfRow, reward_bytes
from app.services.formats.records import RewardSource, pack
from app.services.learning.tokens import Decision, raw_of
from app.storage.protocol import LoggedReward, RowWrite


def row_of(bandit: Bandit, decision: Decision, token: str | bytes) -> RowWrite | None:
    """The row of a decision; None if it is not logged. ``token``: as it was answered, or its bytes."""
    rule = bandit.record.log
    if decision.logged is None or rule is None or decision.known_entry is None:
        return None
    record = raw_of(token) if isinstance(token, str) else token
    return RowWrite(decision.identity, decision.issued_ms, decision.known_entry, record, rule.keep_ms)


def logged_reward(
    bandit: Bandit,
    decision: Decision,
    token: str,
    *,
    arm: str,
    value: float,
    now_ms: int,
    judged: Judged | None = None,
    is_last: bool = False,
) -> LoggedReward | None:
    """What a reward that came now adds to the row of its decision; None if that is not logged.

    ``is_last``: it takes the place of an earlier one of its arm and signal.
    """
    row = row_of(bandit, decision, token)
    if row is None:
        return None
    signal, after_ms = None if judged is None else judged.place, now_ms - decision.issued_ms
    reward = RewardOfRow(
        decision.arms.index(arm), value, after_ms, default=False, signal=signal, is_last=is_last
    )
    return LoggedReward(row, reward_bytes(reward))


def source_of(bandit: Bandit, decision: Decision, kind: str, arm: str, revision: int) -> bytes:
    """What an entry of the reward log is of, for a reward or a default of this decision."""
    logged, position = decision.logged is not None, bandit.record.position
    examined = None if position is None else position.at(decision.arms.index(arm))
    context = decision.context
    if examined is None:  # as if absent: not written
        return encode((kind, decision.id, arm, revision, decision.issued_ms, logged, context))
    return pack(RewardSource(kind, decision.id, arm, revision, decision.issued_ms, logged, context, examined))
