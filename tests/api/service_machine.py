"""The whole service beside the model of it: steps that do the same to both, and compare every answer.

All catalogues, bandits and learners are compared at the end of a run.
"""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from service_choices import Chooser, check_beside_others, check_choice, check_dry_run
from service_compared import ComparedService
from service_model import (
    Arm,
    Bandit,
    Catalogue,
    Decision,
    Json,
    Learner,
    Quota,
    completed,
    fields_of,
    is_within,
)
from service_pools import KEYS, POOLS, Observed, Request, Told, is_possible

from api_client import running
from waiting import wait_until

CATALOGUES = st.sampled_from("ccd")
NAMES = st.sampled_from(["b0", "b1", "b2"])
PLACES = st.integers(0, 5)  # of a bandit among those that there are
MATCHES = st.sampled_from([None, None, "first", "last"])
SELDOM = st.sampled_from([False, False, True])
AGO = st.integers(0, 8) | st.integers(0, 80)  # how many decisions ago one was made


def of(pool: str) -> st.SearchStrategy:
    return st.sampled_from(POOLS[pool])


def some(draw: st.SearchStrategy, most: int, least: int = 1) -> st.SearchStrategy:
    return st.lists(draw, min_size=least, max_size=most)


def has_decisions(service: ComparedService) -> bool:
    return bool(service.decisions)


class WholeService(ComparedService):
    """Steps that do the same to both."""

    @initialize(body=of("bandits").filter(is_possible), rows=some(of("arms"), 6, 3))
    def begin(self, body: Json, rows: list[Arm]) -> None:
        """Two catalogues, arms of the first, and one bandit."""
        for name, dim in (("c", 2), ("d", 3)):
            self._expect(201, "PUT", f"catalogues/{name}", {"dim": dim})
            self.catalogues[name] = Catalogue(dim)
        self.upsert("c", rows)
        self.make_bandit("b0", "c", body, anew=False)

    # Catalogues

    @rule(name=CATALOGUES, dim=st.sampled_from([2, 3]))
    def replace_catalogue(self, name: str, dim: int) -> None:
        """Delete it, if no bandit uses it, and make it again."""
        known, path = self.catalogues[name], f"catalogues/{name}"
        if any(bandit.catalogue == name for bandit in self.bandits.values()):
            self._refused((409, "conflict"), "DELETE", path)
            if dim != known.dim:
                self._refused((409, "conflict"), "PUT", path, {"dim": dim})
            self._expect(200, "PUT", path, {"dim": known.dim})
            return
        self._expect(204, "DELETE", path)
        self._refused((404, "not_found"), "DELETE", path)
        self._refused((404, "not_found"), "POST", f"{path}/arms/delete", {"ids": ["a0"]})
        self._expect(201, "PUT", path, {"dim": dim})
        self.catalogues[name] = Catalogue(dim)

    @rule(name=CATALOGUES, rows=some(of("arms"), 4), other=of("wider_arms"))
    def upsert_or_refuse(self, name: str, rows: list[Arm], other: Arm) -> None:
        """All or nothing: with one arm of another dimension among them."""
        known = self.catalogues[name]
        fitting = rows if known.dim == 2 else [replace(row, features=[*row.features, 0.5]) for row in rows]
        body = {
            "arms": [vars(fitting[0]), vars(replace(other, id="other", features=[1.0] * (5 - known.dim)))]
        }
        self._refused((422, "dimension_mismatch"), "PUT", f"catalogues/{name}/arms", body)
        self.upsert(name, fitting)

    def upsert(self, name: str, rows: list[Arm]) -> None:
        known = self.catalogues[name]
        unique = {arm.id: arm for arm in rows}
        body = {"arms": [vars(arm) for arm in unique.values()]}
        answer = self._expect(200, "PUT", f"catalogues/{name}/arms", body)
        added = len(unique.keys() - known.arms.keys())
        assert (answer["added"], answer["updated"]) == (added, len(unique) - added)
        known.version += any(known.arms.get(arm.id) != arm for arm in unique.values())
        assert answer["version"] == known.version
        known.arms |= unique

    @rule(name=CATALOGUES, ids=of("some_ids"))
    def delete_arms(self, name: str, ids: list[str]) -> None:
        known = self.catalogues[name]
        answer = self._expect(200, "POST", f"catalogues/{name}/arms/delete", {"ids": ids})
        missing = [arm for arm in ids if arm not in known.arms]
        assert (answer["deleted"], answer["missing"]) == (len(ids) - len(missing), missing)
        known.version += len(missing) < len(ids)
        assert answer["version"] == known.version
        for arm in ids:
            known.arms.pop(arm, None)

    @rule(name=CATALOGUES, count=st.integers(1, 3))
    def delete_the_longest_arms(self, name: str, count: int) -> None:
        """Those that answer most queries."""
        arms = sorted(
            self.catalogues[name].arms.values(), key=lambda arm: -float(np.linalg.norm(arm.features))
        )
        if arms:
            self.delete_arms(name, [arm.id for arm in arms[:count]])

    # Bandits

    @rule(name=NAMES, catalogue=CATALOGUES, body=of("bandits"), anew=SELDOM)
    def make_bandit(self, name: str, catalogue: str, body: Json, anew: bool) -> None:
        """``anew``: delete the one that there is."""
        body = {**body, "catalogue": catalogue}
        path, known = f"bandits/{name}", self.bandits.get(name)
        if not is_possible(body):
            self._refused((422, "invalid"), "PUT", path, body)
            return
        if anew and known is not None:
            self._expect(204, "DELETE", path)
            self._refused((404, "not_found"), "DELETE", path)
            self._refused((404, "not_found"), "POST", f"{path}/choose", {})
            known.deleted, known = True, None
        if known is not None and completed(body) != known.config():
            self._refused((409, "conflict"), "PUT", path, body)
            return
        shown = self._expect(201 if known is None else 200, "PUT", path, body)
        if known is None:
            known = Bandit(name, catalogue, self.catalogues[catalogue].dim, [body], [self.etag])
            self.bandits[name] = known
        self._shown(known, shown)

    @rule(place=PLACES, patches=some(of("patches"), 3), if_match=MATCHES)
    def change_bandit(self, place: int, patches: list[Json], if_match: str | None) -> None:
        name, known = self._nth(place)
        for patch in patches:
            self._change(name, known, patch, if_match)

    def _change(self, name: str, known: Bandit, patch: Json, if_match: str | None) -> None:
        path = f"bandits/{name}"
        tag = {"first": known.etags[0], "last": known.etags[-1]}.get(if_match or "")
        headers = {} if tag is None else {"if-match": tag}
        after = known.patched(patch)
        if tag not in {None, known.etags[-1]}:
            self._refused((412, "precondition_failed"), "PATCH", path, patch, headers=headers)
        elif after.get("scope", "global") != known.scope:
            self._refused((409, "not_changeable"), "PATCH", path, patch, headers=headers)
        elif not is_possible(after):
            self._refused((422, "invalid"), "PATCH", path, patch, headers=headers)
        else:
            shown = self._expect(200, "PATCH", path, patch, headers=headers)
            if completed(after) != known.config():
                assert self.etag not in known.etags
                known.asked.append(after)
                known.etags.append(self.etag)
            self._shown(known, shown)

    # Quotas

    @rule(place=PLACES, drawn=some(of("quotas"), 12))
    def put_quotas(self, place: int, drawn: list[tuple[str, Json, int]]) -> None:
        """New ones, and those that are there with another ``most``; of another filter they are made again."""
        bandit_name, bandit = self._nth(place)
        for name, document, most in drawn:
            path, known = f"bandits/{bandit_name}/quotas/{name}", bandit.quotas.get(name)
            body = {"filter": document, "most": most}
            found, shown = self._call("PUT", path, body)
            if found == 422:  # of a field that no arm has
                arms = self.catalogues[bandit.catalogue].arms.values()
                assert any(all(not arm.values(field) for arm in arms) for field in fields_of(document)), shown
                continue
            if known is not None and known.document != document:
                assert (found, shown["code"]) == (409, "conflict")
                self._expect(204, "DELETE", path)
                del bandit.quotas[name]
                known, (found, shown) = None, self._call("PUT", path, body)
            assert found == (201 if known is None else 200), shown
            quota = bandit.quotas.setdefault(name, Quota(document, most))
            quota.most = most
            assert (shown["used"], shown["most"]) == (quota.shown, most)
            assert shown["left"] == max(quota.left, 0)

    # Choices

    def _request(self, bandit: Bandit, asked: Json, key: str, situation: Json) -> Json:
        """A body that the bandit can take."""
        visitor = {"visitor": key} if bandit.repeats is not None and bandit.scope == "global" else {}
        return {**asked, **visitor, **self._whose(bandit, key, situation)}

    def _whose(self, bandit: Bandit, key: str, situation: Json) -> Json:
        whose: Json = {"key": key} if bandit.scope == "per_key" else {}
        return {**whose, "context": situation} if bandit.has_context else whose

    @rule(
        place=PLACES,
        asked=some(of("requests"), 3),
        event=of("events"),
        told=some(of("told"), 4),
        waits=st.booleans(),
    )
    def choose(
        self, place: int, asked: list[Request], event: str | None, told: list[Told], waits: bool
    ) -> None:
        """One after the other, the first perhaps for an event; then reward some of them."""
        name, bandit = self._nth(place)
        bodies = [self._request(bandit, *each) for each in asked]
        if event is not None:
            bodies[0]["event_id"] = event
        made = [self._chosen(bandit, f"bandits/{name}/choose", body) for body in bodies]
        decisions = [decision for decision in made if decision is not None]
        self._rewarded(decisions, told, waits)

    def _rewarded(self, decisions: list[Decision], told: list[Told], waits: bool) -> None:
        if decisions:
            self.reward(list(zip(itertools.cycle(decisions), told)), waits)
        self.decisions += decisions

    def _chosen(self, bandit: Bandit, path: str, body: Json) -> Decision | None:
        """The decision, if this is a new one."""
        claim = (body.get("key"), body.get("event_id", ""))
        if claim in bandit.events:
            first, answer = bandit.events[claim]
            assert self._expect(200, "POST", path, first) == answer
            self._expect(409, "POST", path, {**first, "seed": first.get("seed", 0) + 1})
            return None
        catalogue = self.catalogues[bandit.catalogue]
        dry = {name: value for name, value in body.items() if name not in {"event_id", "activate"}}
        chooser, looker = Chooser(bandit, catalogue, body), Chooser(bandit, catalogue, dry)
        if (refusal := looker.refusal()) is not None:
            self._refused(refusal, "POST", path, {**dry, "dry_run": True})
        else:
            check_dry_run(looker, self._expect(200, "POST", path, {**dry, "dry_run": True}))
        if (refusal := chooser.refusal()) is not None:
            self._refused(refusal, "POST", path, body)
            return None
        answer = self._expect(200, "POST", path, body)
        if "event_id" in body:
            bandit.events[claim] = body, answer
        return self._decided(chooser, answer)

    @rule(place=PLACES, asked=some(of("requests"), 4), told=some(of("told"), 4), waits=st.booleans())
    def choose_batch(self, place: int, asked: list[Request], told: list[Told], waits: bool) -> None:
        name, bandit = self._nth(place)
        path, bodies = f"bandits/{name}/choose/batch", [self._request(bandit, *each) for each in asked]
        choosers = [Chooser(bandit, self.catalogues[bandit.catalogue], body) for body in bodies]
        refusals = [found for chooser in choosers if (found := chooser.refusal()) is not None]
        status, answer = self._call("POST", path, {"requests": bodies})
        if refusals or status == 409:
            # Some of them may have taken what the next ones lacked: all of it is back.
            is_limited = len(bodies) > 1 and (bandit.quotas or bandit.repeats)
            assert (status, answer["code"]) in [*refusals[:1], *([(409, "no_arms")] if is_limited else [])]
            return
        assert status == 200, answer
        pairs = [*zip(choosers, answer["results"], strict=True)]
        if len(bodies) > 1 and (bandit.quotas or bandit.repeats):
            # They are made side by side: each may be counted before or after any other.
            for pair in pairs:
                check_beside_others(*pair)
            decisions = [self._taken(*pair) for pair in pairs]
        else:
            decisions = [self._decided(*pair) for pair in pairs]
        self._rewarded(decisions, told, waits)

    def _decided(self, chooser: Chooser, answer: Json) -> Decision:
        """The answer is one that may be given; the decision of it."""
        check_choice(chooser, answer)
        return self._taken(chooser, answer)

    def _taken(self, chooser: Chooser, answer: Json) -> Decision:
        made = self._kept(chooser, answer)
        chooser.take([*made.arms])
        return made

    def _kept(self, chooser: Chooser, answer: Json) -> Decision:
        body, catalogue = chooser.request, chooser.catalogue
        joint = {
            arm["id"]: catalogue.arms[arm["id"]].joint_features(body.get("context")) for arm in answer["arms"]
        }
        active = body.get("activate", True)
        version = answer["bandit_version"]
        decision = Decision(
            answer["decision"],
            chooser.bandit,
            version,
            body.get("key"),
            joint,
            active,
            deferred=not active,
            subject=chooser.subject,
            learned=answer["learner_version"],
            catalogue=catalogue.version,
        )
        chooser.bandit.decisions.append(decision)
        return decision

    @precondition(has_decisions)
    @rule(ago=some(AGO, 3))
    def activate(self, ago: list[int]) -> None:
        # One by one: of those of one call it is not said which one takes the last of a quota.
        for waiting in dict.fromkeys(map(self._decision, ago)):
            chooser = Chooser(waiting.bandit, self.catalogues[waiting.bandit.catalogue], {})
            outcome = waiting.activate(chooser.taken(waiting.arms))
            body = {"decisions": [waiting.token, "garbage"]}
            answer = self._expect(200, "POST", "decisions/activate", body)
            self._same_receipt(answer, [outcome, "invalid_token"], "activated")

    @precondition(has_decisions)
    @rule(ago=AGO)
    def explain(self, ago: int) -> None:
        """A choice that is made again from the log is the same, and takes nothing."""
        made = self._decision(ago)
        is_gone = made.deferred or made.forgotten or made.bandit.deleted
        if is_gone or not made.bandit.config(made.version)["log"]:
            return
        found = self._run(wait_until(partial(self._explained, made), what="the decision is in the log"))
        assert [arm["id"] for arm in found["row"]["arms"]] == [*made.arms]
        assert found["repeated"] is (None if found["changed"] else True)
        now = self.catalogues[made.bandit.catalogue].version
        learner = made.bandit.learner(made.key)
        is_same = made.catalogue == now and made.learned == learner.applied == len(learner.lessons)
        if is_same:
            limited = made.bandit.quotas or made.bandit.repeats
            assert found["changed"] in ([], ["barred"] if limited else [])

    async def _explained(self, made: Decision) -> Json | None:
        """None: the decision is not in the log yet."""
        path = f"/v1/bandits/{made.bandit.name}/log/explain"
        answer = await self.api.call("POST", path, {"decision": made.token})
        found: Json = answer.json()
        assert answer.status_code == 200 or found["code"] == "not_found", found
        return found if answer.status_code == 200 else None

    # Rewards

    @precondition(has_decisions)
    @rule(told=some(st.tuples(AGO, of("told")), 6), waits=st.booleans(), late=st.booleans())
    def reward_some(self, told: list[tuple[int, Told]], waits: bool, late: bool) -> None:
        if late:
            self.time_passes()
        self.reward([(self._decision(ago), each) for ago, each in told], waits)

    def _decision(self, ago: int) -> Decision:
        return self.decisions[-1 - ago % len(self.decisions)]

    def reward(self, rewarded: list[tuple[Decision, Told]], waits: bool) -> None:
        items, outcomes, taught = [], list[str](), list[Learner]()
        for made, (value, place, reward_id, at) in rewarded:
            arms = [*made.arms, None, "nobody"]
            arm = arms[place % len(arms)]
            item = {"decision": made.token, "value": value, "arm": arm, "reward_id": reward_id, "at": at}
            items.append({name: part for name, part in item.items() if part is not None})
            outcomes.append(made.reward(value, arm, reward_id, at))
            if outcomes[-1] in {"accepted", "duplicate"}:  # others wait for nothing
                taught.append(made.bandit.learner(made.key))
        for token in (f"{rewarded[0][0].token}A", f"A{rewarded[0][0].token[1:]}"[:-1], "garbage"):
            items.append({"decision": token, "value": 1.0})
            outcomes.append("invalid_token")
        self._taught("rewards", {"rewards": items}, outcomes, taught if waits else None)

    @rule(place=PLACES, history=some(of("observations"), 4), waits=st.booleans())
    def observe(self, place: int, history: list[Observed], waits: bool) -> None:
        name, bandit = self._nth(place)
        items, outcomes, taught, rule = [], list[str](), list[Learner](), bandit.config()["reward"]
        arms = self.catalogues[bandit.catalogue].arms
        for number, arm, value, key, situation in history:
            whose = self._whose(bandit, key, situation)
            items.append({"id": number, "arm": arm, "value": value, **whose})
            claim = (whose.get("key"), number)
            if not is_within(rule, value):
                outcomes.append("out_of_range")
            elif arm not in arms:
                outcomes.append("unknown_arm")
            elif claim in bandit.observed:
                outcomes.append("duplicate")
            else:
                outcomes.append("accepted")
                bandit.observed.add(claim)
                features = arms[arm].joint_features(whose.get("context"))
                taught.append(bandit.learner(whose.get("key")))
                taught[-1].teach(features, value, counts=True)
        path = f"bandits/{name}/observations"
        self._taught(path, {"observations": items}, outcomes, taught if waits else None)

    def _taught(self, path: str, body: Json, outcomes: list[str], awaited: list[Learner] | None) -> None:
        """``awaited``: the learners that have learned it when the answer comes; None: they may later."""
        query = "" if awaited is None else "?wait=applied"
        answer = self._expect(202 if awaited is None else 200, "POST", path + query, body)
        self._same_receipt(answer, outcomes, "accepted")
        for learner in awaited or ():
            learner.applied = len(learner.lessons)

    def _same_receipt(self, answer: Json, outcomes: list[str], done: str) -> None:
        rejected = [
            {"index": place, "code": code}
            for place, code in enumerate(outcomes)
            if code not in {done, "duplicate"}
        ]
        counts = {done: outcomes.count(done), "duplicate": outcomes.count("duplicate")}
        assert answer == {**counts, "rejected": rejected}

    @rule()
    def time_passes(self) -> None:
        """Every decision that waits has waited for long enough."""
        self._run(self.api.count_defaults())
        for bandit in self.bandits.values():
            bandit.time_passes()
        self._settle()

    @rule(place=PLACES, key=st.sampled_from(KEYS))
    def forget(self, place: int, key: str) -> None:
        name, bandit = self._nth(place)
        own = key if bandit.scope == "per_key" else None
        self._expect(204, "DELETE", f"bandits/{name}/learners/{own or '_global'}")
        bandit.forget(own)

    # The process

    @rule(really=SELDOM)
    def restart(self, really: bool) -> None:
        """Not each time: it takes as long as a dozen other steps."""
        if not really:
            return
        self._run(self._opened.aclose())
        self._opened = AsyncExitStack()
        self.api = self._run(self._opened.enter_async_context(running(*self._place, empty=False)))
