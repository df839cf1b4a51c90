"""Bandits with several rewards (signals): which weights may be asked for, and how a choice applies them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.bandits.settings import AUTO, MAX_SIGNALS, BanditRecord, RewardRule, SignalRule
from app.platform.errors import Conflict, Invalid
from shortlist.linear.signals import Weighing


def weighing_of(record: BanditRecord, weights: Mapping[str, float] | None = None) -> Weighing | None:
    """The weighing of the signals: by ``weights``, and by the bandit's own weights for all others.

    None: the bandit has no signals. Raises Invalid, naming every weight of something else.
    """
    signals = record.signals
    if signals is None:
        if weights is not None:
            raise Invalid("the bandit has no signals", path=("weights",))
        return None
    named = weights or {}
    check_names(signals, named, "weights")
    return Weighing(
        tuple(float(named.get(name, rule.weight)) for name, rule in signals.items()),
        tuple(None if rule.noise == AUTO else float(rule.noise) for rule in signals.values()),
        tuple(
            None if rule.min is None or rule.max is None else (rule.max - rule.min) / 2.0
            for rule in signals.values()
        ),
    )


def weighed_anew(
    record: BanditRecord, weighing: Weighing | None, weights: Mapping[str, float]
) -> Weighing | None:
    """As ``weighing_of``, from the bandit's ``weighing``. Cost: a few microseconds."""
    if weighing is None or record.signals is None:
        return weighing_of(record, weights)
    if not weights.keys() <= record.signals.keys():
        check_names(record.signals, weights, "weights")
    pairs = zip(record.signals, weighing.weights, strict=True)
    new_weights = tuple([float(weights.get(name, weight)) for name, weight in pairs])
    return Weighing(new_weights, weighing.noises, weighing.spreads)


def check_names(signals: Mapping[str, SignalRule], named: Iterable[str], field: str) -> None:
    """Raise Invalid, with every name which is no signal."""
    unknown = [name for name in named if name not in signals]
    if unknown:
        message = f"no such signal: there are {', '.join(signals)}"
        raise Invalid.many([((field, name), message) for name in unknown[:MAX_SIGNALS]])


def check(record: BanditRecord, *, most: int | None) -> None:
    """Raise Invalid for settings not allowed with signals. ``most``: of the policy; None: all."""
    unknown = [
        (("guardrails", number, "signal"), "no such signal")
        for number, rule in enumerate(record.guardrails or ())
        if rule.signal not in (record.signals or {})
    ]
    if unknown:
        raise Invalid.many(unknown)
    if record.signals is None:
        return
    if len(record.signals) > MAX_SIGNALS:
        raise Invalid(f"there must be at most {MAX_SIGNALS} signals", path=("signals",))
    if most is not None and len(record.signals) > most:
        message = f"the policy {record.policy} takes {most} signal{'s' if most > 1 else ''} at most"
        raise Invalid(message, path=("signals",))
    reward_alone = RewardRule(wait_s=record.reward.wait_s)
    refused = [
        (("reward", name), f"{name} cannot be combined with signals: each signal has its own")
        for name in ("min", "max", "aggregate", "default")
        if getattr(record.reward, name) != getattr(reward_alone, name)
    ]
    if refused:
        raise Invalid.many(refused)


def check_change(before: BanditRecord, after: BanditRecord) -> None:
    """Raise Conflict where signals would go, Invalid where a new one has a default."""
    before_signals, has = before.signals, after.signals or {}
    gone = [name for name in before_signals or {} if name not in has]
    if gone:
        message = f"signals that learners have learned cannot be removed: {', '.join(gone)}"
        raise Conflict(message, path=("signals", gone[0]))
    if before_signals is None:
        if has:
            message = "signals cannot be added to a bandit that learns a single reward"
            raise Conflict(message, path=("signals",))
        return
    refused = [
        (
            ("signals", name, "default"),
            "must be 0 for a signal that is added: earlier decisions count it as 0",
        )
        for name, rule in has.items()
        if name not in before_signals and rule.default
    ]
    if refused:
        raise Invalid.many(refused)
