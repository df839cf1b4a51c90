"""One choice of the model: which arms may be chosen, and whether an answer is one that may be given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from service_model import Bandit, Catalogue, Json, Quota


@dataclass(frozen=True)
class Chooser:
    """One choice: the arms that may be chosen, and what the learner thinks of them.

    ``at_most``: how many arms may share a value of a field, by field. ``pins``: arm by place.
    """

    bandit: Bandit
    catalogue: Catalogue
    request: Json

    @property
    def subject(self) -> str | None:
        """Whom ``repeats`` limits; None: nobody."""
        found: str | None = self.request.get("key", self.request.get("visitor"))
        return None if self.bandit.repeats is None else found

    @property
    def pins(self) -> dict[int, str]:
        """Those that repeats and then quotas leave, the first ones first; also those that are no arms."""
        pins = [(pin["place"], pin["arm"]) for pin in self.request.get("rules", {}).get("pin", [])]
        for limited in (self.had_labels, self._quota_labels):
            taken, stand = Counter[tuple[str, Any]](), list[tuple[int, str]]()
            for place, arm in pins:
                if all(taken[label] < self._most(*label) for label in limited(arm)):
                    taken.update(limited(arm))
                    stand.append((place, arm))
            pins = stand
        return dict(pins)

    def had_labels(self, arm: str) -> list[tuple[str, Any]]:
        """What an arm counts as for ``repeats``."""
        rule = self.bandit.repeats
        if rule is None or self.subject is None:
            return []
        if rule["by"] == "arm":
            return [("had", arm)]
        known = self.catalogue.arms.get(arm)
        return [("had", value) for value in ([] if known is None else known.values(rule["by"]))]

    def quotas_of(self, arm: str) -> list[str]:
        known = self.catalogue.arms.get(arm)
        quotas = self.bandit.quotas
        return [] if known is None else [name for name in quotas if known.matches(quotas[name].document)]

    def _quota_labels(self, arm: str) -> list[tuple[str, Any]]:
        return [("quota", name) for name in self.quotas_of(arm)]

    def _is_used_up(self, arm: str) -> bool:
        return any(not self.bandit.quotas[name].left for name in self.quotas_of(arm))

    @property
    def at_most(self) -> dict[str, int]:
        return {each["field"]: each["count"] for each in self.request.get("rules", {}).get("at_most", [])}

    @property
    def filters(self) -> list[Json]:
        both = (self.bandit.config()["filter"], self.request.get("filter"))
        return [document for document in both if document is not None]

    def eligible(self) -> list[str]:
        arms = self.catalogue.arms
        found = [arm for arm in arms if all(arms[arm].matches(document) for document in self.filters)]
        return [arm for arm in found if not self._is_used_up(arm)]

    def left(self) -> list[str]:
        """Those that may be chosen besides the pinned ones."""
        out = {*self.request.get("exclude", []), *self.pins.values()}
        return [arm for arm in self.eligible() if arm not in out]

    def refusal(self) -> tuple[int, str] | None:
        """Status and code of the answer where nothing can be chosen."""
        asked = (pin["arm"] for pin in self.request.get("rules", {}).get("pin", ()))
        if any(arm not in self.catalogue.arms for arm in asked):
            return 422, "invalid"
        return (409, "no_arms") if not self.pins and not self.allowed_after([]) else None

    def scores(self, version: int) -> dict[str, float]:
        """The estimated reward of every arm, by what the learner had learned at this version."""
        bandit, context = self.bandit, self.request.get("context")
        learner = bandit.learner(self.request.get("key"))
        theta = learner.estimate(bandit.learner_dim, bandit.config()["ridge"], version)
        return {arm: float(each.joint_features(context) @ theta) for arm, each in self.catalogue.arms.items()}

    def best(self, order: Sequence[str]) -> list[str]:
        """The arms of a list without pins: in this order, each that the rules still allow."""
        taken, chosen = self.counts(self.pins.values()), list[str]()
        for arm in order:
            if len(chosen) < self.request.get("k", 1) - len(self.pins) and self.allows(taken, arm):
                taken += self.counts([arm])
                chosen.append(arm)
        return chosen

    def allowed_after(self, chosen: Sequence[str]) -> list[str]:
        """Which arms may be chosen after these."""
        taken = self.counts([*self.pins.values(), *chosen])
        return [arm for arm in self.left() if arm not in chosen and self.allows(taken, arm)]

    def with_pins(self, chosen: Sequence[str], pinned: Collection[str]) -> list[str]:
        """The whole list: pinned arms stand at their places, or at the end."""
        arms = list(chosen)
        for place, arm in sorted(self.pins.items()):
            if arm in pinned:
                arms.insert(place - 1, arm)
        return arms

    def _labels(self, arm: str) -> list[tuple[str, Any]]:
        """What is counted of an arm: values of limited fields, quotas, and what repeats count."""
        fields = [(name, value) for name in self.at_most for value in self.catalogue.arms[arm].values(name)]
        return [*fields, *self._quota_labels(arm), *self.had_labels(arm)]

    def counts(self, arms: Any) -> Counter[tuple[str, Any]]:
        return Counter(label for arm in arms for label in self._labels(arm))

    def allows(self, taken: Counter[tuple[str, Any]], arm: str) -> bool:
        return all(taken[label] < self._most(*label) for label in self._labels(arm))

    def _most(self, kind: str, value: Any) -> int:
        if kind == "quota":
            return self.bandit.quotas[value].left
        if kind == "had" and self.bandit.repeats is not None and self.subject is not None:
            return int(self.bandit.repeats["most"]) - self.bandit.had[self.subject][value]
        return self.at_most[kind]

    def take(self, arms: Sequence[str]) -> None:
        """These arms are shown, or wait to be: for quotas they count when they are activated."""
        for quota in self.taken(arms) if self.request.get("activate", True) else ():
            quota.shown += 1
            assert quota.shown <= quota.most
        if self.bandit.repeats is not None and self.bandit.repeats["counts"] == "shown":
            for label in (each for arm in arms for each in self.had_labels(arm)):
                self.bandit.had[self.subject or ""][label[1]] += 1
                assert self._most(*label) >= 0

    def taken(self, arms: Iterable[str]) -> list[Quota]:
        """The quotas that these arms count for, one for each arm."""
        return [self.bandit.quotas[name] for arm in arms for name in self.quotas_of(arm)]


def check_dry_run(chooser: Chooser, answer: Json) -> None:
    """A dry run is an answer that may be given; nothing is kept of it, as all that follows shows."""
    assert "decision" not in answer
    check_choice(chooser, answer)
    version = answer["learner_version"]
    if version not in chooser.bandit.learner(chooser.request.get("key")).unknown:
        estimates = {arm["id"]: arm["estimate"] for arm in answer["arms"]}
        scores = chooser.scores(version)
        wanted = [scores[arm] for arm in estimates]
        np.testing.assert_allclose(list(estimates.values()), wanted, atol=1e-8)
    assert all(arm["width"] > 0.0 for arm in answer["arms"])


def check_choice(chooser: Chooser, answer: Json) -> None:
    bandit, body = chooser.bandit, chooser.request
    config, version = bandit.config(), answer["learner_version"]
    ids, pinned, chosen = _check_answer(chooser, answer)
    assert answer.get("eligible") == (len(chooser.eligible()) if chooser.filters else None)
    assert sorted(pinned) == sorted(chooser.pins.values())
    scores = chooser.scores(version)
    order = sorted(chooser.left(), key=lambda arm: -scores[arm])
    if (
        bandit.quotas or bandit.repeats
    ):  # overlapping limits: how many arms they leave depends on the first ones
        assert len(ids) == body.get("k", 1) or not chooser.allowed_after(chosen)
    else:
        assert len(chosen) == len(chooser.best(order))
    assert chooser.best(chosen) == chosen, "the rules hold"
    assert set(chosen) <= set(order)
    if version in bandit.learner(body.get("key")).unknown:
        return
    if config["policy"] == "softmax":
        _check_propensities(chooser, scores, chosen, answer)
    elif config["exploration"] == 0.0:
        for place, arm in enumerate(chosen):
            best = max(scores[each] for each in chooser.allowed_after(chosen[:place]))
            np.testing.assert_allclose(scores[arm], best, atol=1e-8)


def check_beside_others(chooser: Chooser, answer: Json) -> None:
    """A choice of a batch under limits holds its own rules, within what was left before the batch.

    That all of them together exceed no limit is told by ``take``.
    """
    _, pinned, chosen = _check_answer(chooser, answer)
    eligible = chooser.eligible()
    assert (answer.get("eligible") is None) == (not chooser.filters)
    assert (answer.get("eligible") or 0) <= len(eligible)
    assert set(pinned) <= set(chooser.pins.values())
    assert set(chosen) <= {*eligible} - {*chooser.request.get("exclude", [])}
    taken = chooser.counts(pinned)
    for arm in chosen:
        assert chooser.allows(taken, arm), "the rules hold"
        taken += chooser.counts([arm])


def _check_answer(chooser: Chooser, answer: Json) -> tuple[list[str], list[str], list[str]]:
    """What holds whatever limits leave. All ids, those of pinned arms, and the others."""
    bandit, body = chooser.bandit, chooser.request
    config, version = bandit.config(), answer["learner_version"]
    learner = bandit.learner(body.get("key"))
    assert answer["policy"] == config["policy"]
    assert answer["bandit_version"] == len(bandit.asked)
    assert answer["catalogue_version"] == chooser.catalogue.version
    assert answer["exact"]
    assert learner.applied <= version <= len(learner.lessons)
    ids = [arm["id"] for arm in answer["arms"]]
    pinned = [arm["id"] for arm in answer["arms"] if arm.get("pinned")]
    chosen = [arm for arm in ids if arm not in pinned]
    assert chooser.with_pins(chosen, pinned) == ids
    assert len(set(ids)) == len(ids) <= body.get("k", 1)
    if version not in learner.unknown and (config["exploration"] == 0.0 or config["policy"] == "softmax"):
        scores = chooser.scores(version)
        found = [arm["score"] for arm in answer["arms"]]
        np.testing.assert_allclose(found, [scores[arm] for arm in ids], atol=1e-8)
    return ids, pinned, chosen


def _check_propensities(chooser: Chooser, scores: dict[str, float], chosen: list[str], answer: Json) -> None:
    """Each arm has the probability that it says it had."""
    said = {arm["id"]: arm["propensity"] for arm in answer["arms"]}
    assert all(said[arm] == 1.0 for arm in chooser.pins.values())
    for place, arm in enumerate(chosen):
        left = chooser.allowed_after(chosen[:place])
        mass = {each: np.exp(scores[each] / chooser.bandit.config()["temperature"]) for each in left}
        np.testing.assert_allclose(said[arm], mass[arm] / sum(mass.values()), rtol=1e-8)
