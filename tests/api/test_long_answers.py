"""Requests with much in them: in turns with others, in threads, and answered in pieces."""

import threading
from typing import Any

import msgspec
import pytest

from api_client import Api
from app.api import arms, imports, strict_json
from app.api.strict_json import SENT_AT_ONCE, reply_with
from app.services.catalogues import catalogues
from app.services.choosing import choosing
from app.services.learning import checkpoints, decisions, learners, rewards

pytestmark = pytest.mark.anyio

MANY = 40


@pytest.mark.parametrize("count", [0, 1, 16, 17, 300])
@pytest.mark.parametrize("others", [{}, {"next": None, "done": True}])
async def test_a_list_is_sent_as_if_it_were_one_piece(count: int, others: dict[str, Any]):
    items = [{"id": f"é{n}", "rows": [n] * 1_000} for n in range(count)]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    for given in (items, iter(items)):
        sent.clear()
        answer = await reply_with("items", given, **others)
        await answer({"type": "http"}, None, send)  # type: ignore[arg-type]  # it receives nothing
        whole = b"".join(message["body"] for message in sent[1:])
        assert msgspec.json.decode(whole) == {"items": items, **others}
        assert (b"content-length", str(len(whole)).encode()) in sent[0]["headers"]
        assert (b"content-type", b"application/json") in sent[0]["headers"]
        assert [message.get("more_body", False) for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    if count == 300:
        assert len(sent) > 5
        assert max(len(message["body"]) for message in sent[1:]) < 2 * SENT_AT_ONCE


class Turns:
    """Counts the turns that are taken in some modules."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: dict[str, int] = {}
        for module in (catalogues, choosing, decisions, imports, rewards, strict_json):
            name = module.__name__.rpartition(".")[2]
            monkeypatch.setattr(module, "turn", self._counter(name))

    def _counter(self, name: str) -> Any:
        async def turn() -> None:
            self.taken[name] = self.taken.get(name, 0) + 1

        return turn


async def test_each_item_of_a_request_takes_a_turn(api: Api, monkeypatch: pytest.MonkeyPatch):
    """So none of these loops holds the event loop for longer than a slice and one item."""
    some = {f"a{n}": [1.0, float(n)] for n in range(MANY)}
    await api.catalogue("c", some)
    await api.bandit("b", "c")
    await api.bandit("w", "c", reward={"wait_s": 60})
    items = [{"id": name, "features": features} for name, features in some.items()]
    turns = Turns(monkeypatch)

    async def taken(method: str, path: str, body: Any = None, status: int = 200) -> dict[str, int]:
        turns.taken.clear()
        turns.answer = await api.ok(method, path, body, status)  # type: ignore[attr-defined]
        return dict(turns.taken)

    found = await taken("PUT", "/v1/catalogues/c/arms", {"arms": items})
    assert found["catalogues"] == 2 * MANY + 1  # and one before the index takes some hundred in
    found = await taken("GET", "/v1/catalogues/c/arms?limit=1000")
    assert found["catalogues"] == MANY
    found = await taken("POST", "/v1/bandits/b/choose/batch", {"requests": [{"activate": False}] * MANY})
    assert found["choosing"] == MANY
    tokens = [choice["decision"] for choice in turns.answer["results"]]  # type: ignore[attr-defined]
    found = await taken("POST", "/v1/decisions/activate", {"decisions": tokens})
    assert found["decisions"] == MANY
    found = await taken(
        "POST", "/v1/rewards", {"rewards": [{"decision": t, "value": 1} for t in tokens]}, 202
    )
    assert found["rewards"] == MANY - 1  # the first item takes none: most requests have one
    observed = [{"id": f"o{n}", "arm": "a0", "value": 1} for n in range(MANY)]
    found = await taken("POST", "/v1/bandits/b/observations", {"observations": observed}, 202)
    assert found["rewards"] == MANY
    found = await taken("POST", "/v1/bandits/w/choose", {"k": MANY})
    assert found["decisions"] == MANY


async def test_lines_of_an_import_take_turns(api: Api, monkeypatch: pytest.MonkeyPatch):
    await api.catalogue("c", {"a": [1.0]})
    turns = Turns(monkeypatch)
    await api.ok("POST", "/v1/catalogues/c/import", content=b"\n" * 10 * imports.TURN_LINES)
    assert turns.taken["imports"] >= 10


async def test_a_long_line_is_looked_at_before_it_is_parsed(api: Api, monkeypatch: pytest.MonkeyPatch):
    await api.catalogue("c", {"a": [1.0]})
    monkeypatch.setattr(arms.ArmBody, "model_validate_json", None)
    line = b"{" + b",".join(b'"u%d":0' % n for n in range(20_000)) + b"}"
    answer = await api.refused("POST", "/v1/catalogues/c/import", content=line)
    assert [error["loc"] for error in answer["errors"]] == [["body", 1, "u0"]]


async def test_metadata_may_not_be_long_however_it_is_written(api: Api):
    await api.catalogue("c", {"a": [1.0]})
    line = b'{"id":"b","features":[1],"metadata":{%b"x":1}}' % (b" " * arms.MAX_METADATA_BYTES)
    for path, body in (("import", line), ("arms", b'{"arms":[%b]}' % line)):
        method = "POST" if path == "import" else "PUT"
        answer = await api.refused(method, f"/v1/catalogues/c/{path}", content=body)
        assert answer["errors"][0]["loc"][-1] == "metadata"
        assert arms.LONG_METADATA in answer["detail"]


async def test_openapi_is_made_in_a_thread(api: Api, monkeypatch: pytest.MonkeyPatch):
    made, make = [], api.app.openapi

    def openapi() -> Any:
        made.append(threading.current_thread())
        return make()

    monkeypatch.setattr(api.app, "openapi", openapi)
    assert (await api.ok("GET", "/openapi.json"))["openapi"].startswith("3.")
    assert made
    assert threading.main_thread() not in made


async def test_learners_of_large_dimension_are_read_in_threads(api: Api, monkeypatch: pytest.MonkeyPatch):
    await api.catalogue("c", {"a": [1.0, 2.0, 3.0]})
    await api.bandit("b", "c")
    path = "/v1/bandits/b/observations?wait=applied"
    await api.ok("POST", path, {"observations": [{"id": "o", "arm": "a", "value": 1}]})
    monkeypatch.setattr(learners, "LARGE_DIM", 2)
    monkeypatch.setattr(checkpoints, "LARGE_CHECKPOINT", 0)
    threads, read, made = [], checkpoints.restored, learners.LearnerReport._precision

    def seen(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            threads.append(threading.current_thread())
            return function(*arguments)

        return call

    monkeypatch.setattr(checkpoints, "restored", seen(read))
    monkeypatch.setattr(checkpoints, "continued", seen(checkpoints.continued))
    monkeypatch.setattr(learners.LearnerReport, "_precision", seen(made))
    answer = await api.ok("GET", "/v1/bandits/b/learners/_global?include=precision")
    assert answer["precision"] == [[2.0, 2.0, 3.0], [2.0, 5.0, 6.0], [3.0, 6.0, 10.0]]
    assert len(threads) == 2
    assert threading.main_thread() not in threads
