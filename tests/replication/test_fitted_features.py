"""A basis is fitted once: all processes of a service have the same one, and so does the next start."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.catalogues.catalogues import Catalogues

pytestmark = pytest.mark.anyio

DIM, TO = 12, 3
FEATURES = {"embedding": {"dim": DIM, "reduce": TO}}


def embeddings(count: int) -> Any:
    return np.random.default_rng(0).normal(size=(count, DIM)).astype(np.float32).astype(np.float64)


async def put(api: Api, rows: Any, first: int = 0) -> None:
    arms = [{"id": f"a{i}", "features": row} for i, row in enumerate(rows.tolist(), first)]
    await api.ok("PUT", "/v1/catalogues/e/arms", {"arms": arms})


async def view_of(api: Api) -> Json:
    view: Json = await api.ok("GET", "/v1/catalogues/e?include=basis")
    return view


async def test_all_processes_and_the_next_start_have_the_same_basis(store_url: str, tmp_path: Path):
    rows = embeddings(300)
    async with (
        running(store_url, tmp_path / "one") as one,
        running(store_url, tmp_path / "two", empty=False) as two,
    ):
        await one.ok("PUT", "/v1/catalogues/e", {"features": FEATURES}, 201)
        await one.ok("PUT", "/v1/bandits/b", {"catalogue": "e", "policy": "sub_ts", "exploration": 0}, 201)
        await put(one, rows[:100])
        await put(two, rows[100:200], 100)
        shown = (await one.ok("GET", "/v1/catalogues/e/arms?limit=1"))["items"]
        assert [arm["features"] for arm in shown] == [rows[0].tolist()], "until then as they were given"
        await one.ok("POST", "/v1/catalogues/e/features/fit")
        # The other one has not heard of it: what it writes has to be reduced all the same.
        await put(two, rows[200:], 200)
        question = {"embedding": rows[250].tolist(), "k": 3, "method": "exact"}
        answers = []
        for api in (one, two):
            await api.app.service.sync.poll()
            view = await view_of(api)
            assert (view["size"], view["reduction"]["arms"]) == (300, 200)
            found = await api.ok("POST", "/v1/catalogues/e/mips", question)
            chosen = await api.ok("POST", "/v1/bandits/b/choose", {"seed": 1})
            arm = await api.ok("GET", "/v1/catalogues/e/arms/a299")
            answers.append((view["basis"], found["arms"], chosen["arms"], arm["features"]))
        assert answers[0] == answers[1]
        assert answers[0][3] == pytest.approx((np.array(answers[0][0]) @ rows[299]).tolist(), abs=1e-5)
    async with running(store_url, tmp_path / "one", empty=False) as again:
        view = await view_of(again)
        found = await again.ok("POST", "/v1/catalogues/e/mips", question)
        assert (view["basis"], found["arms"]) == answers[0][:2]


async def test_two_processes_that_fit_at_once_agree(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The second one reads the arms, and stores its basis when the first one has stored another."""
    async with (
        running(store_url, tmp_path / "one") as one,
        running(store_url, tmp_path / "two", empty=False) as two,
    ):
        await one.ok("PUT", "/v1/catalogues/e", {"features": FEATURES}, 201)
        await put(one, embeddings(100))
        await two.ok("GET", "/v1/catalogues/e")
        real = Catalogues._fitted  # private: stops there, between reading and writing
        done: list[bool] = []

        async def late(catalogues: Catalogues, catalogue: Any) -> bool:
            if catalogues is two.app.service.catalogues and not done:
                done.append(True)
                store = catalogues._store.arms  # private: what is read of the store, to count it
                fit = store.fit

                async def after_the_other(*args: Any, **options: Any) -> bool:
                    await one.ok("POST", "/v1/catalogues/e/features/fit")
                    return await fit(*args, **options)

                monkeypatch.setattr(store, "fit", after_the_other)
            return await real(catalogues, catalogue)

        monkeypatch.setattr(Catalogues, "_fitted", late)
        await two.ok("POST", "/v1/catalogues/e/features/fit")
        views = [await view_of(api) for api in (one, two)]
        assert views[0]["basis"] == views[1]["basis"]
        assert views[0]["version"] == views[1]["version"]


@pytest.mark.rest
async def test_a_basis_that_is_fitted_during_a_poll_is_known_with_the_arms_that_it_made(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Until then the features of the arms are zeros: searched with a basis, any arm would be the best."""
    rows = embeddings(100)
    async with (
        running(store_url, tmp_path / "one") as one,
        running(store_url, tmp_path / "two", empty=False) as two,
    ):
        await one.ok("PUT", "/v1/catalogues/e", {"features": FEATURES}, 201)
        await put(one, rows)
        await two.ok("GET", "/v1/catalogues/e")
        catalogues = two.app.service.catalogues
        store = catalogues._store.arms  # private: what is read of the store, to count it
        changed = store.changed

        async def fitted_then(*args: Any) -> Any:
            monkeypatch.undo()
            found = await changed(*args)
            await one.ok("POST", "/v1/catalogues/e/features/fit")
            return found

        monkeypatch.setattr(store, "changed", fitted_then)
        await catalogues.sync(catalogues.served("e"))
        question = {"embedding": rows[50].tolist(), "k": 3, "method": "exact"}
        here, there = [await api.ok("POST", "/v1/catalogues/e/mips", question) for api in (one, two)]
        assert here["arms"] == there["arms"]
