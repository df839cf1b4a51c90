"""Requests with much in them: others go first, threads compute, and answers are bounded."""

import threading
from typing import Any

import numpy as np
import pytest

from api_client import Api
from app.api import arms, fields, imports
from app.catalogues import arm_pages, resident_arms
from app.catalogues import arms as written_arms
from app.fold import checkpoints
from app.learners import learners
from app.rewards import decisions, rewards
from app.serving import choosing

pytestmark = pytest.mark.anyio

MANY = 40


class Yields:
    """Counts how often some modules yield to others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: dict[str, int] = {}
        for module in (arm_pages, written_arms, resident_arms, choosing, decisions, imports, rewards):
            name = module.__name__.rpartition(".")[2]
            monkeypatch.setattr(module, "yield_to_others", self._counter(name))

    def _counter(self, name: str) -> Any:
        async def counted() -> None:
            self.counts[name] = self.counts.get(name, 0) + 1

        return counted


@pytest.mark.rest
async def test_each_item_of_a_request_lets_others_go_first(api: Api, monkeypatch: pytest.MonkeyPatch):
    """So none of these loops holds the event loop for longer than a slice and one item."""
    some = {f"a{n}": [1.0, float(n)] for n in range(MANY)}
    await api.catalogue("c", some)
    await api.bandit("b", "c")
    await api.bandit("w", "c", reward={"wait_s": 60})
    items = [{"id": name, "features": features} for name, features in some.items()]
    yields = Yields(monkeypatch)

    async def counts(method: str, path: str, body: Any = None, status: int = 200) -> dict[str, int]:
        yields.counts.clear()
        yields.answer = await api.ok(method, path, body, status)  # type: ignore[attr-defined]
        return dict(yields.counts)

    found = await counts("PUT", "/v1/catalogues/c/arms", {"arms": items})
    assert found["arms"] >= MANY
    assert found["resident_arms"] == 1  # before the index takes some hundred in
    found = await counts("GET", "/v1/catalogues/c/arms?limit=1000")
    assert found["arm_pages"] == MANY
    found = await counts("POST", "/v1/bandits/b/choose/batch", {"requests": [{"activate": False}] * MANY})
    assert found["choosing"] == MANY
    tokens = [choice["decision"] for choice in yields.answer["results"]]  # type: ignore[attr-defined]
    found = await counts("POST", "/v1/decisions/activate", {"decisions": tokens})
    assert found["decisions"] == MANY
    found = await counts(
        "POST", "/v1/rewards", {"rewards": [{"decision": t, "value": 1} for t in tokens]}, 202
    )
    assert found["rewards"] == MANY - 1  # the first item does not: most requests have one
    observed = [{"id": f"o{n}", "arm": "a0", "value": 1} for n in range(MANY)]
    found = await counts("POST", "/v1/bandits/b/observations", {"observations": observed}, 202)
    assert found["rewards"] == MANY
    found = await counts("POST", "/v1/bandits/w/choose", {"k": MANY})
    assert found["decisions"] == MANY


@pytest.mark.rest
async def test_lines_of_an_import_let_others_go_first(api: Api, monkeypatch: pytest.MonkeyPatch):
    await api.catalogue("c", {"a": [1.0]})
    yields = Yields(monkeypatch)
    await api.ok("POST", "/v1/catalogues/c/import", content=b"\n" * 10 * imports.YIELD_LINES)
    assert yields.counts["imports"] >= 10


@pytest.mark.rest
async def test_a_long_line_is_looked_at_before_it_is_parsed(api: Api, monkeypatch: pytest.MonkeyPatch):
    await api.catalogue("c", {"a": [1.0]})
    monkeypatch.setattr(arms.ArmBody, "model_validate_json", None)
    line = b"{" + b",".join(b'"u%d":0' % n for n in range(20_000)) + b"}"
    answer = await api.refused("POST", "/v1/catalogues/c/import", content=line)
    assert [error["loc"] for error in answer["errors"]] == [["body", 1, "u0"]]


@pytest.mark.rest
async def test_metadata_may_not_be_long_however_it_is_written(api: Api):
    await api.catalogue("c", {"a": [1.0]})
    line = b'{"id":"b","features":[1],"metadata":{%b"x":"%b"}}' % (b" " * 100, b"y" * 2**18)
    for path, body in (("import", line), ("arms", b'{"arms":[%b]}' % line)):
        method = "POST" if path == "import" else "PUT"
        answer = await api.refused(method, f"/v1/catalogues/c/{path}", content=body, code="invalid")
        assert answer["errors"][0]["loc"][-1] == "metadata"


@pytest.mark.rest
async def test_a_page_of_long_items_is_shorter(api: Api, monkeypatch: pytest.MonkeyPatch):
    for number in range(5):
        await api.catalogue(f"c{number}", {"a": [1.0]})
        await api.bandit(f"b{number}", "c0")
    for number in range(3):
        await api.ok("PATCH", "/v1/bandits/b0", {"horizon": 100 + number})
    encode = fields.encoded
    monkeypatch.setattr(fields, "encoded", lambda item: encode(item) + b" " * (3 << 20))
    for path, most in (("/v1/bandits", 5), ("/v1/catalogues", 5), ("/v1/bandits/b0/versions", 4)):
        found, cursor, pages = list[Any](), "", 0
        while cursor is not None:
            page = await api.ok("GET", f"{path}?limit=100{cursor}")
            found += page["items"]
            cursor = page["next"] and f"&cursor={page['next']}"
            pages += 1
        assert len(found) == most
        assert pages > 1, path


@pytest.mark.rest
async def test_learners_of_large_dimension_are_read_in_threads(api: Api, monkeypatch: pytest.MonkeyPatch):
    await api.catalogue("c", {"a": [1.0] * learners.LARGE_DIM})
    await api.bandit("b", "c")
    path = "/v1/bandits/b/observations?wait=applied"
    await api.ok("POST", path, {"observations": [{"id": "o", "arm": "a", "value": 1}]})
    # private: in which thread it is called
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
    assert answer["precision"] == (1.0 + np.eye(learners.LARGE_DIM)).tolist()
    assert len(threads) == 3
    assert threading.main_thread() not in threads
