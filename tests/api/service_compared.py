"""The whole service and the model of it: calls, and whether what is stored and learned is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hypothesis.stateful import RuleBasedStateMachine
from service_model import Bandit, Catalogue, Decision, Json, Learner

from api_client import EAGER_HOUSEKEEPING, running
from waiting import wait_until

T = TypeVar("T")


class ComparedService(RuleBasedStateMachine):
    """The service, in one process over a real store, and the model: what is known of both, and compared."""

    def __init__(self, store_url: str, folder: Path) -> None:
        super().__init__()
        self.catalogues: dict[str, Catalogue] = {}
        self.bandits: dict[str, Bandit] = {}
        self.decisions: list[Decision] = []
        self._place = (store_url, folder)
        self._runner = asyncio.Runner()
        self._opened = AsyncExitStack()
        self.api = self._run(
            self._opened.enter_async_context(running(*self._place, pauses=EAGER_HOUSEKEEPING))
        )

    def teardown(self) -> None:
        """Compare all that is stored and learned, and stop the service."""
        try:
            self.look()
        finally:
            self._run(self._opened.aclose())
            self._runner.close()

    def _run(self, step: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(step)

    def _call(self, method: str, path: str, json: Any = None, **options: Any) -> tuple[int, Json]:
        """Status and body of the answer, and the code of one that is no success."""
        answer = self._run(self.api.call(method, f"/v1/{path}", json, **options))
        self.etag = answer.headers.get("etag")
        return answer.status_code, answer.json() if answer.content else {}

    def _expect(self, status: int, method: str, path: str, json: Any = None, **options: Any) -> Json:
        found, body = self._call(method, path, json, **options)
        assert found == status, body
        return body

    def _listed(self, path: str) -> list[Json]:
        return self._run(self.api.listed(f"/v1/{path}"))

    def _refused(
        self, refusal: tuple[int, str], method: str, path: str, json: Any = None, **more: Any
    ) -> None:
        found, body = self._call(method, path, json, **more)
        assert (found, body.get("code")) == refusal, body

    def _nth(self, place: int) -> tuple[str, Bandit]:
        return list(self.bandits.items())[place % len(self.bandits)]

    def _shown(self, known: Bandit, shown: Json) -> None:
        assert {name: shown[name] for name in known.config()} == known.config()
        assert shown["version"] == len(known.asked)
        assert self.etag == known.etags[-1]

    def _look_at_quotas(self, bandit: Bandit) -> None:
        for name, quota in bandit.quotas.items():
            found = self._expect(200, "GET", f"bandits/{bandit.name}/quotas/{name}")
            assert (found["used"], found["most"]) == (quota.shown, quota.most)

    def look(self) -> None:
        """All that is stored and learned is what the model says, once rewards are applied."""
        self._settle()
        shown = {each["id"]: each for each in self._listed("catalogues")}
        assert shown.keys() == self.catalogues.keys()
        for name, catalogue in self.catalogues.items():
            facts = (shown[name]["dim"], shown[name]["size"], shown[name]["version"])
            assert facts == (catalogue.dim, len(catalogue.arms), catalogue.version)
            arms = self._listed(f"catalogues/{name}/arms")
            assert {arm["id"]: arm for arm in arms} == {arm.id: vars(arm) for arm in catalogue.arms.values()}
        listed = [each["id"] for each in self._listed("bandits")]
        assert sorted(listed) == sorted(self.bandits)
        for bandit in self.bandits.values():
            self._look_at(bandit)

    def _look_at(self, bandit: Bandit) -> None:
        path = f"bandits/{bandit.name}"
        self._look_at_quotas(bandit)
        self._shown(bandit, self._expect(200, "GET", path))
        versions = self._listed(f"{path}/versions")
        assert [each["version"] for each in versions] == list(range(len(bandit.asked), 0, -1))
        for each in versions:
            config = bandit.config(each["version"])
            assert {name: each[name] for name in config} == config
        lessons = {key or "_global": learner for key, learner in bandit.learners.items() if learner.lessons}
        listed = self._listed(f"{path}/learners")
        assert {each["key"]: each["version"] for each in listed} == {
            key: len(learner.lessons) for key, learner in lessons.items()
        }
        for key in ["ann", "bob"] if bandit.scope == "per_key" else ["_global"]:
            learner = lessons.get(key, Learner())
            found = self._expect(200, "GET", f"{path}/learners/{key}?include=precision")
            assert found["observations"] == learner.observations()
            assert found["version"] == len(learner.lessons)
            terms = (bandit.learner_dim, bandit.config()["ridge"])
            theta = [*found["theta"], *np.ravel(found.get("weights", []))]
            np.testing.assert_allclose(found["precision"], learner.precision(*terms), atol=1e-9)
            np.testing.assert_allclose(theta, learner.estimate(*terms), atol=1e-8)

    def _settle(self) -> None:
        async def settled() -> bool:
            # Not /readyz: between two rules the process stands still, and is behind the store.
            return bool((await self.api.ok("GET", "/v1/status"))["backlog"] == 0)

        self._run(wait_until(settled, what="rewards are applied"))
