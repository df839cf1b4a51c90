"""Personalizer's API over http, by the published clients as they are, and by hand."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from azure.ai.personalizer import PersonalizerClient as NewClient
from azure.cognitiveservices.personalizer import PersonalizerClient as OldClient
from azure.cognitiveservices.personalizer.models import RankableAction, RankRequest
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError
from msrest.authentication import CognitiveServicesCredentials

from app.api.api_keys import new_key
from service_process import run, serving
from shortlist_client import Client
from shortlist_personalizer.features import hashed
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

KEY_HEADER = "Ocp-Apim-Subscription-Key"
ACTIONS = [
    {"id": "pasta", "features": [{"taste": "salty", "spice": "medium"}, {"nutrition": {"level": 5}}]},
    {
        "id": "ice cream",
        "features": [{"taste": "sweet"}, {"nutrition": {"level": 2, "tags": ["cold", "fat"]}}],
    },
    {"id": "juice", "features": [{"taste": "sweet", "drink": True}, {"nutrition": {"level": 3}}]},
]
CONTEXT = [{"user": {"age": 30, "os": "ios"}}, {"hour": "morning"}]
RANK = {"actions": ACTIONS, "contextFeatures": CONTEXT}


class Server:
    """A service with a bandit for Personalizer's API, and API keys."""

    def __init__(self, url: str, key: str, admin: Client, few: str) -> None:
        self.url, self.key, self.admin, self.few = url, key, admin, few
        self.http = httpx.Client(base_url=f"{url}/personalizer", headers={KEY_HEADER: key}, timeout=60.0)

    def rewards_with(self, values: set[float]) -> list[float]:
        """Of all rows of the log, once it has these: a row is written a moment after its decision."""

        def found() -> list[float] | None:
            wait_until_sync(lambda: self.admin.ready().backlog == 0, what="all rewards are applied")
            rows = self.admin.log("shop", page_size=1_000)
            rewards = [reward.value for row in rows for reward in row.rewards]
            return rewards if values <= set(rewards) else None

        return wait_until_sync(found, what=f"the log has {values}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("personalizer")
    keys = [
        new_key("app", ["choose", "reward"], {"bandits": "shop"}),
        new_key("admin", ["admin"]),
        new_key("reader", ["read"]),
    ]
    settings = {"SHORTLIST_API_KEYS": " ".join(entry for _, entry in keys)}
    with serving(folder, **settings) as service, Client(service.url, keys[1][0]) as admin:
        told = run("personalizer", "init", "shop", "--url", service.url, "--key", keys[1][0], cwd=folder)
        assert told.returncode == 0, told.stderr
        assert service.url in told.stdout
        assert "again" not in told.stdout
        server = Server(service.url, keys[0][0], admin, keys[2][0])
        with server.http:
            yield server


def test_the_client_of_2022_ranks_rewards_and_activates(server: Server):
    with NewClient(server.url, AzureKeyCredential(server.key)) as client:
        ranked = client.rank({**RANK, "eventId": "new-1", "excludedActions": ["juice"]})
        assert ranked["eventId"] == "new-1"
        assert ranked["ranking"][2] == {"id": "juice", "probability": 0.0}
        assert sum(one["probability"] for one in ranked["ranking"]) == pytest.approx(1.0)
        assert ranked["rewardActionId"] in {"pasta", "ice cream"}
        assert client.reward("new-1", {"value": 0.75}) is None
        made = client.rank({**RANK, "deferActivation": True})
        client.activate(made["eventId"])
        client.reward(made["eventId"], {"value": 0.25})
        slots = [
            {"id": "top", "baselineAction": "pasta", "features": [{"size": "large"}]},
            {"id": "side bar", "baselineAction": "juice", "excludedActions": ["ice cream"]},
        ]
        page = {**RANK, "slots": slots, "eventId": "page 1", "deferActivation": True}
        shown = client.rank_multi_slot(page)["slots"]
        assert [slot["id"] for slot in shown] == ["top", "side bar"]
        assert len({slot["rewardActionId"] for slot in shown}) == 2
        assert shown[1]["rewardActionId"] != "ice cream"
        client.activate_multi_slot("page 1")
        some = [{"slotId": "side bar", "value": 0.5}, {"slotId": "not there", "value": 0.5}]
        client.reward_multi_slot("page 1", {"reward": some})
    values = server.rewards_with({0.25, 0.5, 0.75})
    assert sorted(value for value in values if value in {0.25, 0.5, 0.75}) == [0.25, 0.5, 0.75]


def test_the_client_of_2019_ranks_rewards_and_activates(server: Server):
    # Without the block it leaves a connection open that nobody can close.
    with OldClient(server.url, CognitiveServicesCredentials(server.key)) as client:
        actions = [RankableAction(id=action["id"], features=action["features"]) for action in ACTIONS]
        ranked = client.rank(RankRequest(actions=actions, context_features=CONTEXT, event_id="old-1"))
        assert ranked.event_id == "old-1"
        assert {action.id for action in ranked.ranking} == {"pasta", "ice cream", "juice"}
        client.events.reward("old-1", 0.125)
        deferred = client.rank(RankRequest(actions=actions, defer_activation=True))
        client.events.activate(deferred.event_id)
        client.events.reward(deferred.event_id, 0.0625)
    assert server.rewards_with({0.125, 0.0625})


def test_an_event_counts_once_and_is_answered_again(server: Server):
    body = {**RANK, "eventId": "again"}
    first, second = (server.http.post("/v1.0/rank", json=body) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["rewardActionId"] == second.json()["rewardActionId"]
    chosen = first.json()["rewardActionId"]
    probabilities = [
        next(one["probability"] for one in answer.json()["ranking"] if one["id"] == chosen)
        for answer in (first, second)
    ]
    assert probabilities[0] == pytest.approx(probabilities[1])
    for prefix in ("", "/v1.0", "/v1.1-preview.3"):
        assert server.http.post(f"{prefix}/events/again/reward", json={"value": 0.375}).status_code == 204
    assert server.rewards_with({0.375}).count(0.375) == 1


def test_a_choice_depends_on_what_was_rewarded(server: Server):
    """Each hour has a good action: after 500 rounds it is shown in at least 7 of 10."""
    right = 0
    for round_number in range(600):
        hour = "morning" if round_number % 2 else "evening"
        good = "juice" if round_number % 2 else "pasta"
        ranked = server.http.post(
            "/rank", json={"actions": ACTIONS, "contextFeatures": [{"hour": hour}]}
        ).json()
        value = float(ranked["rewardActionId"] == good)
        server.http.post(f"/events/{ranked['eventId']}/reward", json={"value": value})
        right += round_number >= 500 and value == 1.0
    assert right >= 70


WRONG_RANKS = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b'{"actions": NaN}',
    b"[" * 2_000,
    *(
        json.dumps(body).encode()
        for body in (
            {},
            {"actions": []},
            {"actions": {}},
            {"actions": None},
            {"actions": [3]},
            {"actions": [{"id": "a"}]},
            {"actions": [{"features": []}]},
            {"actions": [{"id": "", "features": []}]},
            {"actions": [{"id": 7, "features": []}]},
            {"actions": [{"id": "a" * 300, "features": []}]},
            {"actions": [{"id": "a", "features": {}}]},
            {"actions": [{"id": "a", "features": ["x"]}]},
            {"actions": [{"id": "a", "features": [None]}]},
            {"actions": [{"id": "a", "features": [{"x": [1, {"y": math.inf}]}]}]},
            {**RANK, "contextFeatures": [{"hour": math.nan}]},
            {"actions": [{"id": "a", "features": []}, {"id": "a", "features": []}]},
            {"actions": [{"id": f"a{number}", "features": []} for number in range(51)]},
            {**RANK, "contextFeatures": {}},
            {**RANK, "contextFeatures": "x"},
            {**RANK, "contextFeatures": [1]},
            {**RANK, "excludedActions": "pasta"},
            {**RANK, "excludedActions": ["nobody"]},
            {**RANK, "excludedActions": [action["id"] for action in ACTIONS]},
            {**RANK, "eventId": ""},
            {**RANK, "eventId": 3},
            {**RANK, "eventId": "e" * 257},
            {**RANK, "deferActivation": "yes"},
            {**RANK, "contextFeatures": [{"text": "x" * 70_000}]},
        )
    ),
]
WRONG_SLOTS = [
    {},
    {"actions": ACTIONS},
    {"actions": ACTIONS, "slots": []},
    {"actions": ACTIONS, "slots": [{"id": "s"}]},
    {"actions": ACTIONS, "slots": [{"id": "s", "baselineAction": "nobody"}]},
    {"actions": ACTIONS, "slots": [{"id": "s", "baselineAction": "pasta"}] * 2},
    {"actions": ACTIONS, "slots": [{"id": "s", "baselineAction": "pasta", "excludedActions": ["nobody"]}]},
    {"actions": ACTIONS, "slots": [{"id": "s", "baselineAction": "pasta", "features": [4]}]},
    {"actions": ACTIONS, "slots": [{"id": f"s{n}", "baselineAction": "pasta"} for n in range(4)]},
]
WRONG_REWARDS = [{}, [], 1, *({"value": each} for each in (None, "1", math.inf, math.nan, 1e30))]


def test_init_says_where_the_service_was_started_before_the_package_came(tmp_path: Path):
    with serving(tmp_path, SHORTLIST_PLUGINS="shortlist-campaigns") as service:
        told = run("personalizer", "init", "one", "--url", service.url, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
        assert "Start the service again: it has not loaded shortlist-personalizer yet" in told.stdout


def test_an_apprentice_shows_the_first_action_and_learns_from_it(tmp_path: Path):
    keys = [new_key(name, ["choose", "reward"], {"bandits": name}) for name in ("one", "two")]
    keys.append(new_key("admin", ["admin"]))
    settings = {"SHORTLIST_API_KEYS": " ".join(entry for _, entry in keys)}
    with serving(tmp_path, **settings) as service, Client(service.url, keys[2][0]) as admin:
        for name, options in (("one", ["--apprentice"]), ("two", ["--features", "8", "--context", "4"])):
            address = ["--url", service.url, "--key", keys[2][0]]
            told = run("personalizer", "init", name, *options, *address, cwd=tmp_path)
            assert told.returncode == 0, told.stderr
        large = ["--features", "2000", "--url", service.url, "--key", keys[2][0]]
        refused = run("personalizer", "init", "large", *large, cwd=tmp_path)
        assert refused.returncode == 2
        assert "at most 1,024" in refused.stderr
        assert [one.id for one in admin.catalogues()] == ["one", "two"]
        for (key, _), name in zip(keys, ("one", "two"), strict=False):
            with httpx.Client(headers={KEY_HEADER: key}, timeout=60.0) as http:
                address = f"{service.url}/personalizer"
                shown = set[str]()
                for number in range(12):
                    body = {**RANK, "eventId": f"{name}-{number}", "excludedActions": ["pasta"]}
                    ranked = http.post(f"{address}/rank", json=body).raise_for_status().json()
                    shown.add(ranked["rewardActionId"])
                    http.post(
                        f"{address}/events/{name}-{number}/reward", json={"value": 1}
                    ).raise_for_status()
                assert shown <= ({"ice cream"} if name == "one" else {"ice cream", "juice"})
        wait_until_sync(lambda: admin.ready().backlog == 0, what="all rewards are applied")
        assert admin.get_learner("one").observations == admin.get_learner("two").observations == 12
        report = admin.report("one")
        assert report.agreement is not None
        assert report.agreement.decisions == 12


def test_malformed_bodies_get_personalizers_errors_and_change_nothing(server: Server):
    before = server.admin.get_bandit("shop").version
    answers = [server.http.post("/rank", content=body) for body in WRONG_RANKS]
    answers += [server.http.post("/multislot/rank", json=body) for body in WRONG_SLOTS]
    for body in WRONG_REWARDS:
        content = json.dumps(body).encode()
        answers.append(server.http.post("/events/again/reward", content=content))
    answers.append(server.http.post("/multislot/events/again/reward", json={"reward": []}))
    slots = {**RANK, "slots": [{"id": "s", "baselineAction": "pasta"}], "eventId": "of/two"}
    for path, body in (("/rank", {**RANK, "eventId": "of/two"}), ("/multislot/rank", slots)):
        assert server.http.post(path, json=body).status_code == 201
        answers.append(server.http.post(path, json={**body, "contextFeatures": []}))
        error = answers[-1].json()["error"]
        assert error["target"] == "eventId"
        assert error["message"].startswith("eventId: this eventId was sent before")
    assert server.http.post("/events/of%2Ftwo/reward", json={"value": 0.0}).status_code == 204
    for answer in answers:
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["code"] == "BadRequest"
        assert error["message"]
    assert len(answers) >= 40
    for path in ("/events/nobody/reward", "/multislot/events/nobody/reward"):
        body = {"value": 1} if "multislot" not in path else {"reward": [{"slotId": "top", "value": 1}]}
        answer = server.http.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "ResourceNotFound")
    dear = server.http.post("/events/nobody/reward", json={"value": 1e300}).json()["error"]
    assert dear["target"] == "value"
    for path in ("/events/nobody/activate", "/multislot/events/nobody/activate"):
        assert server.http.post(path).status_code == 404
    assert server.admin.get_bandit("shop").version == before


def test_a_key_has_no_more_power_here_than_in_the_api(server: Server):
    def rank(**headers: str) -> tuple[int, str]:
        answer = httpx.post(f"{server.url}/personalizer/rank", json=RANK, headers=headers, timeout=60.0)
        return answer.status_code, answer.json().get("error", {}).get("code", "")

    assert rank() == (401, "Unauthorized")
    assert rank(**{KEY_HEADER: "wrong"}) == (401, "Unauthorized")
    assert rank(Authorization=f"Bearer {server.key}") == (401, "Unauthorized")
    assert rank(**{KEY_HEADER: server.few}) == (403, "Forbidden")
    assert rank(**{KEY_HEADER: server.key})[0] == 201
    with (
        pytest.raises(HttpResponseError) as raised,
        NewClient(server.url, AzureKeyCredential("no")) as client,
    ):
        client.rank(RANK)
    assert raised.value.status_code == 401


def test_features_are_numbers_that_depend_on_names_and_values_alone():
    one = hashed([{"a": "x", "n": 3}, {"space": {"b": True, "inner": {"c": [1, "y"]}}}], 48)
    same = hashed([{"n": 3, "a": "x"}, {"space": {"inner": {"c": [1, "y"]}, "b": True}}], 48)
    assert one == pytest.approx(same)
    assert sum(number * number for number in hashed([{"a": "x", "b": "y", "c": 0.5}], 48)) == pytest.approx(
        1.0
    )
    assert hashed([{"a": "x"}], 48) != hashed([{"space": {"a": "x"}}], 48)
    assert hashed([{"a": -3}], 48) == pytest.approx([-number for number in hashed([{"a": 3}], 48)])
    assert hashed([{"a": None}, {}, {"space": {}}], 4) == [0.0] * 4
    assert max(map(abs, hashed([{"a": 10**400}, {"b": "\ud800"}], 8))) <= 1.0


def test_an_installation_without_a_bandit_says_what_makes_one(tmp_path: Path):
    with serving(tmp_path) as service:
        answer = httpx.post(f"{service.url}/personalizer/rank", json=RANK, timeout=60.0)
        assert answer.status_code == 404
        assert "shortlist personalizer init personalizer" in answer.json()["error"]["message"]
        answer = httpx.get(f"{service.url}/personalizer/configurations/service", timeout=60.0)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "ResourceNotFound")
