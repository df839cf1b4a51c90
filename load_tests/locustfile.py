"""Visitors, an editor and an analyst, as they use a service all day; an answer that is wrong is a failure.

    locust -f load_tests/locustfile.py --headless -u 50 -r 10 -t 60s --host http://127.0.0.1:8080

It makes a catalogue and two bandits named NAME, after deleting what an earlier run has left, and deletes them
at the end: one run at a time. `SHORTLIST_KEY` is an API key of scope `admin`, where the service asks for one.
Copy it to size your own traffic: the shares, the think times and the sizes stand at the top.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Any

import gevent
from locust import FastHttpUser, between, constant_pacing, events, task
from locust.env import Environment
from locust.runners import WorkerRunner

# How many of all users are visitors, editors and analysts.
VISITORS, EDITORS, ANALYSTS = 12, 2, 1
# Of the choices of visitors: those with a filter, and those that are asked for twice, by their event id.
FILTERED, ASKED_AGAIN = 0.3, 0.1
# Of the choices: those that are clicked. Of the clicks: those that are sent late, and those that come twice.
CLICKED, SENT_LATE, SENT_TWICE = 0.4, 0.3, 0.3
BY_EVENT = 0.5  # of what is sent of clicks: the decision is named by bandit and event, not by its token
LIST = 5
FOUND, BROUGHT = 20, 5  # candidates of a search: arms of the catalogue, arms of the request alone
EDITED = 20  # arms that an editor adds each second
ARMS, DIM, KEYS = 5_000, 16, 2_000
KINDS = ("book", "film", "game", "song")
DEVICES = ("phone", "tv")
NAME = "locust-load-test"
ARMS_OF = f"/v1/catalogues/{NAME}/arms"
HOME, OWN = f"{NAME}-home", f"{NAME}-own"  # one learner for all, by context; one for each visitor

BATCH = 1_000
SETTLE_S = 60.0

log = logging.getLogger("load_tests")
rng = random.Random()  # of think times, clicks and features: nothing is judged by what is drawn
# By bandit: rewards that were "sent", and those of them that were "acknowledged".
clicks: Counter[tuple[str, str]] = Counter()


class WrongAnswer(Exception):
    """The service answered, and what it said is not true."""


def kind_of(arm: str) -> str:
    """The kind of an arm follows from its id, so a list is judged without knowing the catalogue."""
    return KINDS[int(arm.rpartition("-")[2]) % len(KINDS)]


def arm(name: str, **metadata: object) -> dict[str, Any]:
    features = [rng.gauss(0.0, 1.0) for _ in range(DIM)]
    return {"id": name, "features": features, "metadata": {"kind": kind_of(name), **metadata}}


class ShortlistUser(FastHttpUser):
    """Calls of the service, by few names."""

    abstract = True
    default_headers = (
        {"Authorization": f"Bearer {os.environ['SHORTLIST_KEY']}"} if os.environ.get("SHORTLIST_KEY") else {}
    )

    def ask(self, name: str, method: str, path: str, body: Any = None, judge: Any = None) -> Any:
        """The answer; None where there is none, which is a failure. ``judge`` raises WrongAnswer."""
        with self.client.request(method, path, json=body, name=name, catch_response=True) as answer:
            if not answer.ok or not answer.text:  # the connection may break after the status
                answer.failure(f"{answer.status_code} {answer.text or answer.error}"[:200])
                return None
            found = answer.json()
            try:
                if judge is not None:
                    judge(found)
            except WrongAnswer as wrong:
                answer.failure(wrong)
            return found

    def choose(self, bandit: str, body: dict[str, Any], judge: Any, name: str = "choose") -> Any:
        return self.ask(name, "POST", f"/v1/bandits/{bandit}/choose", body, judge)


@dataclass
class Click:
    """A reward of a visitor, and what is known of it.

    ``token`` and ``event`` name the same decision: whichever comes second is a duplicate.
    """

    bandit: str
    token: dict[str, Any]
    event: dict[str, Any]
    arm: str
    is_sent: bool = False
    is_acknowledged: bool = False


class Visitor(ShortlistUser):
    """Comes, looks at lists, clicks now and then, and leaves; then another one comes."""

    weight = VISITORS
    wait_time = between(0.1, 0.8)

    def on_start(self) -> None:
        self.late: list[Click] = []
        self.come()

    def come(self) -> None:
        self.key = f"user-{rng.randrange(KEYS)}"
        self.device = rng.choice(DEVICES)

    @task(6)
    def look_at_the_home_page(self) -> None:
        self.look(HOME, self.event(self.now))

    @task(4)
    def look_at_a_page_of_ones_own(self) -> None:
        self.look(OWN, self.event(self.myself))

    @task(2)
    def look_at_what_a_search_found(self) -> None:
        """Arms of the catalogue by their ids, and arms that only this request knows."""
        found = [f"arm-{n}" for n in rng.sample(range(ARMS), FOUND)]
        name = uuid.uuid4().hex
        brought = [arm(f"{name}-{n}") for n in range(BROUGHT)]
        body = self.event(self.now) | {"candidates": [*found, *brought]}
        self.look(HOME, body, {*found, *(each["id"] for each in brought)})

    @task(2)
    def look_at_a_page_of_two_rows(self) -> None:
        """A row of each bandit in one call; no arm is in both."""
        rows = [(HOME, self.event(self.now)), (OWN, self.event(self.myself))]
        body = {"requests": [{"bandit": bandit, **row} for bandit, row in rows], "distinct": True}

        def judge(page: Any) -> None:
            arms = [each["id"] for choice in page["results"] for each in choice["arms"]]
            if len(set(arms)) != LIST * len(rows) or len(arms) != LIST * len(rows):
                raise WrongAnswer("an arm that is twice on a page")

        page = self.ask("page", "POST", "/v1/choose/batch", body, judge)
        if page is not None:
            for (bandit, row), choice in zip(rows, page["results"], strict=True):
                self.click(bandit, row, choice)

    @task(2)
    def send_what_is_late(self) -> None:
        """As a page does that was closed, or lost its connection: rewards come late, or once more."""
        late, self.late = self.late, []
        for click in late:
            self.send(click)

    @task(1)
    def leave(self) -> None:
        self.send_what_is_late()
        self.come()

    def on_stop(self) -> None:
        self.send_what_is_late()

    @property
    def now(self) -> dict[str, Any]:
        """The context of HOME."""
        return {"context": {"device": self.device, "hour": rng.uniform(0.0, 24.0)}}

    @property
    def myself(self) -> dict[str, Any]:
        """The learner of OWN."""
        return {"key": self.key}

    def event(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "k": LIST, "event_id": uuid.uuid4().hex}

    def look(self, bandit: str, body: dict[str, Any], candidates: set[str] | None = None) -> None:
        """``candidates``: their ids; such a choice has no filter."""
        kind = rng.choice(KINDS) if candidates is None and rng.random() < FILTERED else None
        if kind is not None:
            body["filter"] = {"kind": kind}

        def judge(choice: Any) -> None:
            arms = [each["id"] for each in choice["arms"]]
            if len(set(arms)) != LIST:
                raise WrongAnswer(f"not {LIST} distinct arms")
            if kind is not None and any(kind_of(each) != kind for each in arms):
                raise WrongAnswer("an arm outside of the filter")
            if candidates is not None and not candidates.issuperset(arms):
                raise WrongAnswer("an arm that is no candidate")

        def judge_again(again: Any) -> None:
            judge(again)
            if again["decision"] != choice["decision"]:
                raise WrongAnswer("another decision for the same event")

        name = "choose" if candidates is None else "candidates"
        choice = self.choose(bandit, body, judge, name)
        if choice is None:
            return
        if rng.random() < ASKED_AGAIN:
            self.choose(bandit, body, judge_again, name)
        self.click(bandit, body, choice)

    def click(self, bandit: str, body: dict[str, Any], choice: Any) -> None:
        """Now and then an arm of what was asked for by ``body``."""
        if rng.random() >= CLICKED:
            return
        gevent.sleep(rng.uniform(0.05, 0.5))  # thinks
        event = {"bandit": bandit, "event_id": body["event_id"]}
        if "key" in body:
            event["key"] = body["key"]
        click = Click(bandit, {"decision": choice["decision"]}, event, rng.choice(choice["arms"])["id"])
        if rng.random() < SENT_LATE:
            self.late.append(click)
        else:
            self.send(click)

    def send(self, click: Click) -> None:
        """Until it is acknowledged it stays late; some are sent once more then."""

        def judge(receipt: Any) -> None:
            if receipt["accepted"] + receipt["duplicate"] != 1:
                raise WrongAnswer("a reward that is neither accepted nor a duplicate")
            if click.is_acknowledged and receipt["accepted"]:
                raise WrongAnswer("a reward that was acknowledged is accepted once more")

        if not click.is_sent:
            click.is_sent = True
            clicks[click.bandit, "sent"] += 1
        is_by_event = rng.random() < BY_EVENT
        reward = {**(click.event if is_by_event else click.token), "arm": click.arm, "value": 1.0}
        name = "rewards by event" if is_by_event else "rewards"
        receipt = self.ask(name, "POST", "/v1/rewards", {"rewards": [reward]}, judge)
        if receipt is None:
            self.late.append(click)
        elif not click.is_acknowledged:
            click.is_acknowledged = True
            clicks[click.bandit, "acknowledged"] += 1
            if rng.random() < SENT_TWICE:
                self.late.append(click)


class Editor(ShortlistUser):
    """Adds arms, changes some and deletes some, and sees what becomes of them."""

    weight = EDITORS
    wait_time = constant_pacing(1.0)

    def on_start(self) -> None:
        self.name = uuid.uuid4().hex
        self.numbers = itertools.count()
        self.living: list[str] = []

    @task
    def edit(self) -> None:
        new = [f"{self.name}-{next(self.numbers)}" for _ in range(EDITED)]
        self.write(new)
        self.write(rng.sample(self.living, len(self.living) // 4))
        gone = {*rng.sample(self.living, len(self.living) // 2)}
        deleted = self.ask("arms", "POST", f"{ARMS_OF}/delete", {"ids": sorted(gone)})
        self.living = [each for each in self.living if each not in gone]
        if deleted is None or not self.living:
            return

        def judge(choice: Any) -> None:
            # A process may learn of it at its next poll: it says as of which version it chose.
            is_known = choice["catalogue_version"] >= deleted["version"]
            if is_known and gone & {each["id"] for each in choice["arms"]}:
                raise WrongAnswer("an arm that was deleted")

        body = {"k": 4 * EDITED, "filter": {"editor": self.name}, "context": {}}
        self.choose(HOME, body, judge)

    def write(self, names: list[str]) -> None:
        """Arms that are new, or get other features."""
        arms = [arm(name, editor=self.name) for name in names]
        if arms and self.ask("arms", "PUT", ARMS_OF, {"arms": arms}) is not None:
            self.living = sorted({*self.living, *names})


class Analyst(ShortlistUser):
    """Reads reports and the log: each click is there once."""

    weight = ANALYSTS
    wait_time = constant_pacing(2.0)

    @task
    def read(self) -> None:
        def judge(report: Any) -> None:
            means = [group["mean_reward"] for group in report["groups"]]
            if not all(mean is None or 0.0 <= mean <= 1.0 for mean in means):
                raise WrongAnswer("a mean reward that clicks of 1 cannot have")

        def judge_rows(log: Any) -> None:
            if any(len(row["rewards"]) > 1 for row in log["items"]):
                raise WrongAnswer("a click that is in the log twice")

        self.ask("report", "GET", f"/v1/bandits/{HOME}/report", judge=judge)
        self.ask("log", "GET", f"/v1/bandits/{HOME}/log?limit=100&order=desc", judge=judge_rows)


@events.test_start.add_listener
def set_up(environment: Environment, **_: Any) -> None:
    """The catalogue and the bandits; of several machines the master makes them."""
    clicks.clear()
    if isinstance(environment.runner, WorkerRunner):
        return
    user = _somebody(environment)
    _delete(user)
    fields = [
        {"name": "device", "kind": "category", "values": list(DEVICES)},
        {"name": "hour", "kind": "cycle", "period": 24},
    ]
    common = {"catalogue": NAME, "policy": "sub_ts"}
    made = [
        user.ask("set-up", "PUT", f"/v1/catalogues/{NAME}", {"dim": DIM}),
        *(
            user.ask(
                "set-up", "PUT", ARMS_OF, {"arms": [arm(f"arm-{n}") for n in range(first, first + BATCH)]}
            )
            for first in range(0, ARMS, BATCH)
        ),
        user.ask(
            "set-up", "PUT", f"/v1/bandits/{HOME}", {**common, "context": {"fields": fields}, "log": {}}
        ),
        user.ask("set-up", "PUT", f"/v1/bandits/{OWN}", {**common, "scope": "per_key", "log": {}}),
    ]
    if None in made:
        environment.process_exit_code = 1
        gevent.spawn(environment.runner.quit)


@events.quitting.add_listener
def count_and_clean_up(environment: Environment, **_: Any) -> None:
    """What was acknowledged is counted, and what was sent no more than once. Then all is deleted."""
    if isinstance(environment.runner, WorkerRunner):
        return
    environment.runner.quit()  # no user is left, and workers have reported
    user = _somebody(environment)
    if environment.process_exit_code is None:
        _count(environment, user)
    _delete(user)


def _count(environment: Environment, user: ShortlistUser) -> None:
    """Rewards of both bandits, as their learners and their logs have them."""
    for bandit in (HOME, OWN):
        found, ends = (-1, -1), time.monotonic() + SETTLE_S
        least, most = clicks[bandit, "acknowledged"], clicks[bandit, "sent"]
        while min(found) < least and time.monotonic() < ends:
            gevent.sleep(1.0)  # other processes learn of it at their next poll
            found = _counted(user, bandit) or found
        told = (
            f"{bandit}: {least} rewards were acknowledged, {most} sent: "
            f"{found[0]} are learned, {found[1]} in the log"
        )
        log.info(told)
        wrong = None if least <= min(found) and max(found) <= most else WrongAnswer(told)
        environment.events.request.fire(
            request_type="CHECK", name="counted once", response_time=0, response_length=0, exception=wrong
        )


def _counted(user: ShortlistUser, bandit: str) -> tuple[int, int] | None:
    """How many rewards are learned, and how many are in the log; None while some wait for a worker."""
    ready = user.client.get("/readyz", name="settle")
    report = user.client.get(f"/v1/bandits/{bandit}/report?bucket_s=3600", name="settle")
    if not (ready.ok and report.ok) or ready.json()["backlog"]:
        return None
    learned, cursor = 0, ""
    while cursor is not None:
        path = f"/v1/bandits/{bandit}/learners?limit=1000{cursor and f'&cursor={cursor}'}"
        page = user.client.get(path, name="settle")
        if not page.ok:
            return None
        learned += sum(learner["observations"] for learner in page.json()["items"])
        cursor = page.json()["next"]
    # Means of keys are only computed now and then; buckets count on.
    groups = [group for bucket in report.json()["buckets"] for group in bucket["groups"]]
    return learned, round(sum(group["decisions"] * (group["mean_reward"] or 0.0) for group in groups))


@events.report_to_master.add_listener
def report(client_id: str, data: dict[str, Any]) -> None:
    """What a worker has counted since it reported last."""
    data["clicks"] = [(*what, count) for what, count in clicks.items()]
    clicks.clear()


@events.worker_report.add_listener
def add_report(client_id: str, data: dict[str, Any]) -> None:
    for *what, count in data["clicks"]:
        clicks[tuple(what)] += count


def _somebody(environment: Environment) -> ShortlistUser:
    ShortlistUser.host = environment.host
    return ShortlistUser(environment)


def _delete(user: ShortlistUser) -> None:
    for path in (f"/v1/bandits/{HOME}", f"/v1/bandits/{OWN}", f"/v1/catalogues/{NAME}"):
        with user.client.delete(path, name="clean-up", catch_response=True) as answer:
            if answer.status_code == 404:  # nothing was left behind
                answer.success()
