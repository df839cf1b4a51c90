"""The value of a decision: the sum of the rewards of its arms, counted as learners count them.

For a bandit with signals, the weighted sum of the signals, by weights of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord, RewardRule, SignalRule
from app.decision_log.rows import Row

Weights = Mapping[str, float]
Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms by which decisions are counted.

    ``default``     the value of an arm without a reward
    ``low, high``   bounds for one arm, rewarded or not; None: unknown
    ``weights``     of signals, and ``defaults`` of each; None: there are none
    """

    default: float
    low: float | None = None
    high: float | None = None
    weights: Weights | None = None
    defaults: Weights = field(default_factory=dict)

    def bounds(self, arms: int) -> Bounds | None:
        """The bounds of a decision with so many arms; None without bounds."""
        return None if self.low is None or self.high is None else (arms * self.low, arms * self.high)

    def of_signal(self, name: str) -> Terms:
        """The terms of one signal by itself. A later one was never rewarded, and has the default 0."""
        return Terms(self.defaults.get(name, 0.0), None, None, {name: 1.0}, self.defaults)


def terms_of_rule(rule: RewardRule | SignalRule) -> Terms:
    """The terms of one reward."""
    default = rule.default or 0.0
    return Terms(default, *(bounds_of_rule(rule, default) or (None, None)))


def terms_of(record: BanditRecord, weights: Weights | None = None) -> Terms:
    """The terms of a bandit. ``weights``: of its signals, 0 where absent; None: its own."""
    signals = record.signals
    if signals is None:
        return terms_of_rule(record.reward)
    if weights is None:
        weights = {name: rule.weight for name, rule in signals.items()}
    used = {name: weights.get(name, 0.0) for name in signals}
    defaults = {name: rule.default for name, rule in signals.items()}
    default = sum(used[name] * defaults[name] for name in signals)
    low, high = bounds_of(record, used) or (None, None)
    return Terms(default, low, high, used, defaults)


def terms_by_version(versions: Mapping[int, Bandit], bandit: Bandit) -> Mapping[int, Terms]:
    """The terms of versions of a bandit, with the weights of now."""
    return {number: terms_of(version.record, bandit.weights) for number, version in versions.items()}


def bounds_of(
    record: BanditRecord, weights: Weights | None, seen: Mapping[str | None, Bounds] | None = None
) -> Bounds | None:
    """Between which bounds the reward of an arm lies, or the sum of its signals by ``weights``.

    ``seen``: of rewards (None), or of each signal, for those without bounds. None: there is one without.
    """
    seen_bounds, signals = seen or {}, record.signals
    if signals is None or weights is None:
        return bounds_of_rule(record.reward, record.reward.default or 0.0) or seen_bounds.get(None)
    low = high = 0.0
    for name, rule in signals.items():
        weight = weights.get(name, 0.0)
        ends_of_signal = (
            (bounds_of_rule(rule, rule.default) or seen_bounds.get(name)) if weight else (0.0, 0.0)
        )
        if ends_of_signal is None:
            return None
        ends = sorted(weight * end for end in ends_of_signal)
        low, high = low + ends[0], high + ends[1]
    return low, high


def bounds_of_rule(rule: RewardRule | SignalRule, default: float) -> Bounds | None:
    """The bounds of the reward of an arm. A sum has none: an arm may get any number of rewards."""
    if rule.min is None or rule.max is None or rule.aggregate == "sum":
        return None
    return min(rule.min, default), max(rule.max, default)


def value_of(row: Row, terms: Terms) -> tuple[float, bool]:
    """The reward of a decision, and whether anybody sent one, of a weighed signal.

    Rewards of an arm are added, and replace the arm's default.
    """
    if not row.rewards:
        return len(row.arms) * terms.default, False
    counted, was_sent = counted_rewards(row, terms)
    return sum(counted.values()) + (len(row.arms) - len(counted)) * terms.default, was_sent


def counted_rewards(row: Row, terms: Terms) -> tuple[dict[str, float], bool]:
    """The earnings of each arm with a reward or a default, and whether anybody sent one."""
    if terms.weights is not None:
        return _counted_signals(row, terms, terms.weights)
    sent, assumed = dict[str, float](), dict[str, float]()
    for reward in row.rewards:
        if reward.default:
            assumed[reward.arm] = reward.value
        else:
            sent[reward.arm] = sent.get(reward.arm, 0.0) + reward.value
    return assumed | sent, bool(sent)


def _counted_signals(row: Row, terms: Terms, weights: Weights) -> tuple[dict[str, float], bool]:
    """A received signal replaces its default; the other signals of the arm keep theirs."""
    sent = dict[tuple[str, str], float]()
    for reward in row.rewards:
        if reward.signal is not None:
            at = reward.arm, reward.signal
            sent[at] = sent.get(at, 0.0) + reward.value
    counted = {reward.arm: terms.default for reward in row.rewards}
    for (arm, signal), value in sent.items():
        counted[arm] += weights.get(signal, 0.0) * (value - terms.defaults.get(signal, 0.0))
    return counted, any(weights.get(signal) for _, signal in sent)
