"""A model of the whole service in plain Python: what is stored, what is learned, and what may be chosen.

It has no index, cache, log or worker. Eligible arms are found by asking each arm, a learner is a list of what
it was taught, its estimate is one solve, and that a reward counts once is a set of what was counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Json = dict[str, Any]

NO_RULE: Json = {"min": None, "max": None, "aggregate": "first", "wait_s": None, "default": None}
DEFAULTS: Json = {"ridge": 1.0, "exploration": 1.0, "temperature": None, "filter": None, "scope": "global"}
DEFAULTS |= {"repeats": None, "log": None}
DEVICES = ["phone", "tv"]
CONTEXT: Json = {
    "fields": [
        {"name": "device", "kind": "category", "values": DEVICES},
        {"name": "age", "kind": "number", "mean": 1, "scale": 2},
    ]
}
OPERATORS: Mapping[str, Callable[[list[Any], Any], bool]] = {
    "$eq": lambda values, bound: bound in values,
    "$ne": lambda values, bound: bound not in values,
    "$in": lambda values, members: any(value in members for value in values),
    "$nin": lambda values, members: not any(value in members for value in values),
    "$lt": lambda values, bound: any(value < bound for value in values),
    "$lte": lambda values, bound: any(value <= bound for value in values),
    "$gt": lambda values, bound: any(value > bound for value in values),
    "$gte": lambda values, bound: any(value >= bound for value in values),
    "$exists": lambda values, bound: bool(values) == bound,
    "$not": lambda values, conditions: not fulfil(values, conditions),
}


def fulfil(values: list[Any], conditions: Json) -> bool:
    """Whether the values of a field fulfil all conditions."""
    return all(OPERATORS[word](values, bound) for word, bound in conditions.items())


def fields_of(document: Json) -> set[str]:
    """The fields that a filter asks for."""
    found = {name for name in document if not name.startswith("$")}
    for name in document.keys() - found:
        parts = document[name] if isinstance(document[name], list) else [document[name]]
        found |= {field for part in parts for field in fields_of(part)}
    return found


def merged(document: Any, patch: Any) -> Any:
    """A document after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def encoded(context: Json | None) -> list[float]:
    """The numbers of a context in the fields ``CONTEXT``; of no context none."""
    if context is None:
        return []
    age = context.get("age")
    return [
        *(float(context.get("device") == name) for name in DEVICES),
        0.0 if age is None else (age - 1) / 2,
    ]


@dataclass(frozen=True)
class Arm:
    """One arm, as it is given and shown."""

    id: str
    features: list[float]
    tags: list[str]
    metadata: Json

    def values(self, name: str) -> list[Any]:
        """The values of a field of a filter or a rule; an empty list: the arm lacks it."""
        if name == "tags":
            return self.tags
        return [self.metadata[name]] if name in self.metadata else []

    def matches(self, document: Json) -> bool:
        """Whether a filter lets the arm in."""
        return all(self._fulfils(name, wanted) for name, wanted in document.items())

    def _fulfils(self, name: str, wanted: Any) -> bool:
        if name == "$not":
            return not self.matches(wanted)
        if name in {"$and", "$or"}:
            return (all if name == "$and" else any)(self.matches(each) for each in wanted)
        return fulfil(self.values(name), wanted if isinstance(wanted, dict) else {"$eq": wanted})

    def joint_features(self, context: Json | None) -> np.ndarray:
        """What a learner learns from: [x ; x kron u]."""
        x = np.array(self.features)
        return np.concatenate((x, np.kron(x, encoded(context))))


@dataclass
class Catalogue:
    """``version``: how many writes have changed something."""

    dim: int
    arms: dict[str, Arm] = field(default_factory=dict)
    version: int = 0


@dataclass
class Learner:
    """All that a learner was taught, in order: joint features, what is added to the sum of rewards, and
    whether the arm of the decision is counted by it.

    ``applied``   so many of them are known to be in the service's learner; the others may be
    ``unknown``   after so many of them it is not known which these are, since defaults have no order
    """

    lessons: list[tuple[np.ndarray, float, bool]] = field(default_factory=list)
    applied: int = 0
    unknown: set[int] = field(default_factory=set)

    def teach(self, features: np.ndarray, value: float, *, counts: bool) -> None:
        self.lessons.append((features, value, counts))

    def observations(self) -> int:
        return sum(counts for _, _, counts in self.lessons)

    def precision(self, dim: int, ridge: float, version: int | None = None) -> np.ndarray:
        """Ridge I + sum of x x^T, after the first ``version`` lessons or all."""
        rows = [features for features, _, counts in self.lessons[:version] if counts]
        X = np.array(rows).reshape(-1, dim)
        return ridge * np.eye(dim) + X.T @ X

    def estimate(self, dim: int, ridge: float, version: int | None = None) -> np.ndarray:
        """Theta of ridge regression after the first ``version`` lessons or all."""
        total = np.zeros(dim)
        for features, value, _ in self.lessons[:version]:
            total += value * features
        found: np.ndarray = np.linalg.solve(self.precision(dim, ridge, version), total)
        return found


@dataclass
class Quota:
    """At most ``most`` of the arms that ``document`` lets in are shown; so many were."""

    document: Json
    most: int
    shown: int = 0

    @property
    def left(self) -> int:
        return max(self.most - self.shown, 0)


@dataclass
class Bandit:
    """``asked`` is what each version was asked to be, without what is left at its default.

    ``etags``: those of its versions. ``events``: by key and event, the request and its answer.
    ``observed``: by key, the ids. ``had``: by key or visitor, what counts
    for ``repeats``. ``deleted``: it was, and its tokens are worth nothing.
    """

    name: str
    catalogue: str
    dim: int
    asked: list[Json]
    etags: list[str] = field(default_factory=list)
    learners: dict[str | None, Learner] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    events: dict[tuple[str | None, str], tuple[Json, Json]] = field(default_factory=dict)
    observed: set[tuple[str | None, str]] = field(default_factory=set)
    quotas: dict[str, Quota] = field(default_factory=dict)
    had: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    deleted: bool = False

    @property
    def scope(self) -> str:
        return str(self.config()["scope"])

    @property
    def has_context(self) -> bool:
        return "context" in self.asked[0]

    @property
    def repeats(self) -> Json | None:
        rule: Json | None = self.asked[0].get("repeats")
        return rule

    @property
    def learner_dim(self) -> int:
        return self.dim * (1 + (len(encoded({})) if self.has_context else 0))

    def config(self, version: int = 0) -> Json:
        """Every field that the model knows, as the service shows it; of the current version if 0."""
        return completed(self.asked[version - 1])

    def learner(self, key: str | None) -> Learner:
        return self.learners.setdefault(key, Learner())

    def patched(self, patch: Json) -> Json:
        """What the next version would be asked to be."""
        after: Json = merged(self.asked[-1], patch)
        if after["policy"] != "softmax":
            after.pop("temperature", None)
        return after

    def time_passes(self) -> None:
        """Every decision that waits has waited for long enough."""
        before = {key: len(learner.lessons) for key, learner in self.learners.items()}
        for decision in self.decisions:
            decision.wait_is_over()
        for key, learner in self.learners.items():
            learner.unknown |= set(range(before.get(key, 0) + 1, len(learner.lessons)))

    def forget(self, key: str | None) -> None:
        self.learners.pop(key, None)
        self.had.pop(key or "", None)
        self.events = {claim: made for claim, made in self.events.items() if claim[0] != key}
        for decision in self.decisions:
            decision.forgotten |= decision.key == key


def completed(asked: Json) -> Json:
    """A bandit with its defaults."""
    config = {**DEFAULTS, **asked, "reward": {**NO_RULE, **asked.get("reward", {})}}
    if config["policy"] == "softmax" and config["temperature"] is None:
        config["temperature"] = 1.0
    return config


def is_within(rule: Json, value: float) -> bool:
    """Whether a reward is one that the terms allow."""
    low, high = rule["min"], rule["max"]
    return (low is None or value >= low) and (high is None or value <= high)


@dataclass(eq=False, repr=False)
class Decision:
    """A choice that was answered, and what became of it.

    ``arms``      their joint features when they were chosen
    ``counted``   arms that a reward or a default has counted
    ``taken``     arms, with ``reward_id`` where rewards add up, whose reward was accepted
    ``last``      of arms where the last reward counts, when it was so and what
    ``defaults``  of arms whose default was counted, and not replaced yet
    ``liked``     arms with an accepted reward above 0
    ``subject``   whom ``repeats`` knows it by: the key, or the visitor
    ``learned``   the version of the learner; ``catalogue``: that of the catalogue
    """

    token: str
    bandit: Bandit
    version: int
    key: str | None
    arms: dict[str, np.ndarray]
    active: bool
    deferred: bool
    subject: str | None = None
    learned: int = 0
    catalogue: int = 0
    liked: set[str] = field(default_factory=set)
    forgotten: bool = False
    waited: bool = False
    counted: set[str] = field(default_factory=set)
    taken: set[tuple[str, str]] = field(default_factory=set)
    last: dict[str, tuple[int, float]] = field(default_factory=dict)
    defaults: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<decision of {self.bandit.name} for {self.key}: {', '.join(self.arms)}>"

    @property
    def rule(self) -> Json:
        """The terms of the version that made it."""
        rule: Json = self.bandit.config(self.version)["reward"]
        return rule

    def reward(self, value: float, arm: str | None, reward_id: str | None, at: int) -> str:
        """Count a reward; "accepted", "duplicate" or the code of the refusal."""
        refusals = {
            "unknown_bandit": self.bandit.deleted,
            "arm_required": arm is None and len(self.arms) > 1,
            "unknown_arm": arm is not None and arm not in self.arms,
            "out_of_range": not is_within(self.rule, value),
            "not_activated": not self.active,
            "forgotten": self.forgotten,
        }
        if any(refusals.values()):
            return next(code for code, holds in refusals.items() if holds)
        arm = next(iter(self.arms)) if arm is None else arm
        outcome = self._taken(arm, value, reward_id, at)
        rule = self.bandit.repeats
        if outcome == "accepted" and value > 0.0 and arm not in self.liked:
            self.liked.add(arm)
            if rule is not None and rule["counts"] == "rewarded" and self.subject is not None:
                self.bandit.had[self.subject][arm] += 1
        return outcome

    def _taken(self, arm: str, value: float, reward_id: str | None, at: int) -> str:
        if self.rule["aggregate"] == "last":
            return self._revised(arm, (at, value))
        claim = (arm, (reward_id or "") if self.rule["aggregate"] == "sum" else "")
        if claim in self.taken:
            return "duplicate"
        self.taken.add(claim)
        self._teach(arm, value - self.defaults.pop(arm, 0.0))
        return "accepted"

    def _revised(self, arm: str, said: tuple[int, float]) -> str:
        before = self.last.get(arm)
        if before is not None and said <= before:
            return "duplicate"
        self.last[arm] = said
        replaced = self.defaults.pop(arm, 0.0) if before is None else before[1]
        self._teach(arm, said[1] - replaced)
        return "accepted"

    def activate(self, quotas: Sequence[Quota]) -> str:
        """What is answered: "activated", "duplicate" or the code of the refusal.

        ``quotas``: those that its arms count for now, one for each arm.
        """
        if self.bandit.deleted:
            return "unknown_bandit"
        if not self.deferred:
            return "duplicate"
        if any(quota.left < sum(other is quota for other in quotas) for quota in quotas):
            return "duplicate" if self.active else "used_up"
        if self.forgotten:
            return "forgotten"
        if self.active:
            return "duplicate"
        self.active = True
        for quota in quotas:
            quota.shown += 1
        return "activated"

    def wait_is_over(self) -> None:
        """Each arm without a reward counts as the default, once."""
        waits = self.active and self.rule["wait_s"] is not None
        if not waits or self.waited or self.forgotten or self.bandit.deleted:
            return
        self.waited = True
        for arm in self.arms:
            if arm not in self.counted:
                self.defaults[arm] = self.rule["default"] or 0.0
                self._teach(arm, self.defaults[arm])

    def _teach(self, arm: str, value: float) -> None:
        counts = arm not in self.counted
        self.counted.add(arm)
        self.bandit.learner(self.key).teach(self.arms[arm], value, counts=counts)
