"""Rewards in rows of the decision log as learners learn them: entries as the reward log has them.

    counted = counted_in(bandit, rows)
    entries = entries_of(bandit, counted, features, then)  # of which ``fold.fold.learned`` makes learners

All is pure: the caller finds the features of the arms at the time of the exposure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from app.bandits.bandit import GLOBAL_LEARNER, Bandit
from app.bandits.settings import SignalRef
from app.catalogues.learner_snapshot import beside_features
from app.decision_log.row_tokens import carried_in, revisions_in
from app.decision_log.rows import LoggedReward, Row, counted_of
from app.platform.errors import Invalid
from app.records.age_sums import AtAge
from app.records.log_entries import Item, RewardEntry
from app.records.place_sums import AtPlace
from app.storage.types import LearnerId, LogEntry
from shortlist.linear import bilinear
from shortlist.types import Matrix, Vector

ShownArms = Sequence[tuple[Row, str]]
CountedReward = tuple[Row, LoggedReward, float | None, LogEntry]
"""A reward that learners count, which default it replaces, and its entry without a payload."""
TimedReward = tuple[float, Item]
"""When a reward came, and as what it is folded."""


def learner_of(bandit: Bandit, key: str | None) -> LearnerId:
    """The learner of a logged decision."""
    return LearnerId(bandit.uid, GLOBAL_LEARNER if key is None else key)


def counted_in(bandit: Bandit, rows: Sequence[Row]) -> Sequence[CountedReward]:
    """The rewards of some decisions counted by learners."""
    signals = list(bandit.record.signals or ())
    return [
        (row, *counted_reward)
        for row in rows
        for counted_reward in counted_of(row, learner_of(bandit, row.key), signals)
    ]


def entries_of(
    bandit: Bandit, counted: Sequence[CountedReward], features: Matrix, bandits_then: Mapping[int, Bandit]
) -> Sequence[TimedReward]:
    """The entries of these rewards for the fold, and the time of each.

    ``features``: of their arms, when they were shown (n, d). ``bandits_then``: the bandit as it made the
    decisions, by version. Raises Invalid: a context of another form than the bandit's.
    """
    record, result = bandit.record, list[TimedReward]()
    examined = np.array([_examined(row, reward, bandits_then) for row, reward, *_ in counted])
    joint = examined[:, None] * _joint(bandit, features, [(row, reward.arm) for row, reward, *_ in counted])
    joint = np.ascontiguousarray(joint, dtype="<f8")
    data, size = joint.tobytes(), 8 * joint.shape[1]
    revisions = dict[str, Mapping[str, int]]()
    of_signals = record.defaults()
    for number, (row, reward, default, entry) in enumerate(counted):
        # Without signals earlier rewards are in the entry: further ones are summed with them.
        judged, signal, sums = SignalRef.of(record.signals or {}, reward.signal), 0, True
        if judged is not None:
            signal, sums = judged.place, judged.rule.aggregate == "sum"
        if row.decision not in revisions and row.effects_version is not None:
            revisions[row.decision] = revisions_in(row)
        revision = revisions.get(row.decision, {}).get(reward.arm)
        served, expected = _pair_of(row, reward)
        content = RewardEntry(
            data[number * size : (number + 1) * size],
            reward.value,
            arm=reward.arm,
            revision=revision or 0,
            decided_ms=row.time,
            examined=float(examined[number]),
            served=served,
            expected=() if revision is None else expected,
            half_life_s=record.key_half_life_s or 0.0,
            signal=signal if judged is not None or record.signals is None else None,
            sums=sums,
            defaults=(default or 0.0,) if record.signals is None else of_signals,
            arm_time=record.arm_time(row.time),
            at_place=_place_of(row, reward),
            at_age=_age_of(row, reward),
        )
        result.append((float(max(reward.time, row.time)), (entry, content)))
    return result


def carried_of(shown: ShownArms) -> Mapping[int, Vector]:
    """The tokens' numbers of arms, by position, where requests named candidates: the request's numbers of an
    arm, after its features where it was an arm of the request.
    """
    by_decision, carried = dict[str, Mapping[str, Vector]](), dict[int, Vector]()
    for position, (row, arm) in enumerate(shown):
        if row.candidates == ():
            continue
        if row.decision not in by_decision:
            by_decision[row.decision] = carried_in(row)
        if (numbers := by_decision[row.decision].get(arm)) is not None:
            carried[position] = numbers
    return carried


def check_contexts(bandit: Bandit, lengths: set[int]) -> None:
    """Raise Invalid where a context of the log is not one of this bandit."""
    numbers = 0 if bandit.context is None else bandit.context.encoding.dim
    if lengths - {numbers}:
        expected = f"{numbers} numbers" if numbers else "none"
        raise Invalid(f"the contexts of the log must be those of the bandit, {expected}")


def _examined(row: Row, reward: LoggedReward, bandits_then: Mapping[int, Bandit]) -> float:
    """The probability of a look at the place of the arm, by the terms of its decision."""
    position, arm = next((position, arm) for position, arm in enumerate(row.arms) if arm.id == reward.arm)
    stated = bandits_then[row.bandit_version].examination_at(position)
    # A row has stated places as its token has, rounded. Other ones are of a file: who made it is not known.
    if arm.examined is None or np.float16(stated) == arm.examined:
        return stated
    return arm.examined


def _joint(bandit: Bandit, features: Matrix, shown: ShownArms) -> Matrix:
    """The features for learners, of arms in the contexts of their decisions, with the requests' numbers.
    Shapes: (n, d) -> (n, D).
    """
    if bandit.context is not None and shown:
        check_contexts(bandit, {len(row.context or ()) for row, _ in shown})
        encoded = np.array([row.context for row, _ in shown], dtype=np.float32)
        features = bilinear.phi(features, bandit.context.directions, encoded)
    if bandit.match_dim:
        features = np.hstack((features, _match_of(shown, bandit.match_dim)))
    return beside_features(features, 0, bandit.constant)


def _match_of(shown: ShownArms, match_dim: int) -> Matrix:
    """The requests' numbers of arms, by the tokens of their decisions. Shapes: -> (n, m)."""
    numbers = np.zeros((len(shown), match_dim))
    for position, carried in carried_of(shown).items():
        numbers[position] = carried[-match_dim:]
    return numbers


def _place_of(row: Row, reward: LoggedReward) -> AtPlace | None:
    """The place of a reward's arm and the weight there; None: its bandit learned nothing of places."""
    arm = next(arm for arm in row.arms if arm.id == reward.arm)
    return None if arm.weight is None else AtPlace(arm.place - 1, arm.weight)


def _age_of(row: Row, reward: LoggedReward) -> AtAge | None:
    """What the age of the arm added; rows do not say how old it was."""
    arm = next(arm for arm in row.arms if arm.id == reward.arm)
    return None if arm.age is None else AtAge(0, arm.age)


def _pair_of(row: Row, reward: LoggedReward) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The numbers subtracted from a reward before its key, and its arm, learn, of each signal."""
    arm = next(arm for arm in row.arms if arm.id == reward.arm)
    if arm.effect is None:
        return (), ()
    served, expected = (
        () if numbers is None else tuple(np.atleast_1d(np.array(numbers, dtype="<f4")).tolist())
        for numbers in (arm.effect, arm.expected)
    )
    return served, expected
