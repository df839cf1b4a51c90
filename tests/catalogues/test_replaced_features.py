"""Features that were replaced in place by those of another space are noticed, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from api_client import Api, running
from app.catalogues.kept_arms import FoundArms
from app.catalogues.replaced_features import LEAST_REPLACED, PERIOD_S, WITHIN_S, ReplacedFeatures, explained
from app.platform.errors import Unavailable
from app.storage.arms import ArmStore
from shortlist_files import replacing

RNG = np.random.default_rng(1)
OLD = RNG.normal(size=(1_200, 8)) + 3.0
TURNED = OLD @ np.linalg.qr(RNG.normal(size=(8, 8)))[0]


def in_batches(replaced: ReplacedFeatures, old: np.ndarray, new: np.ndarray, *, step: float = 1.0) -> bool:
    """Whether it is noticed, where a batch of a hundred is replaced every so many seconds."""
    found = False
    for start in range(0, len(old), 100):
        found |= replaced.add(old[start : start + 100], new[start : start + 100], now=start / 100 * step)
    return found


def test_a_space_that_is_turned_is_noticed():
    assert in_batches(ReplacedFeatures(), OLD, TURNED)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_a_price_that_changes_every_night_is_not(scale):
    new = OLD + 0.01 * RNG.normal(size=OLD.shape)
    new[:, 3] = scale * RNG.normal(size=len(new))
    assert not in_batches(ReplacedFeatures(), OLD, new)


@pytest.mark.parametrize("kind", ["turned", "price", "constant", "same", "nearly constant"])
def test_the_import_has_the_same_rule(kind):
    """It stands twice, since clients do not have the service."""
    new = {
        "turned": TURNED,
        "price": np.column_stack((OLD[:, :7], RNG.normal(size=len(OLD)))),
        "constant": np.column_stack((TURNED[:, :7], np.full(len(OLD), 1e8))),
        "same": OLD,
        "nearly constant": np.column_stack((OLD[:, :7], 1e8 + 1e-9 * RNG.normal(size=len(OLD)))),
    }[kind]
    sums = np.array([each.sum(axis=0) for each in (OLD, new, OLD**2, new**2, OLD * new)])
    assert replacing.explained(OLD, new) == pytest.approx(explained(len(OLD), sums), abs=1e-9)


@pytest.mark.rest
def test_other_units_and_the_same_features_are_not():
    assert not in_batches(ReplacedFeatures(), OLD, 5.0 * OLD - 2.0)
    assert not in_batches(ReplacedFeatures(), OLD, OLD)


def test_fewer_arms_than_a_thousand_say_nothing_nor_do_those_of_yesterday():
    assert not in_batches(ReplacedFeatures(), OLD[: LEAST_REPLACED - 1], TURNED[: LEAST_REPLACED - 1])
    assert not in_batches(ReplacedFeatures(), OLD, TURNED, step=WITHIN_S / 5)
    assert in_batches(ReplacedFeatures(), OLD, TURNED, step=PERIOD_S / 10)


def test_arms_that_are_new_are_compared_with_nothing():
    ids = [f"a{place}" for place in range(len(OLD))]
    before = FoundArms(ids, OLD, range(len(OLD)))
    assert not ReplacedFeatures().written(before, ["new", *ids], np.vstack((TURNED[:1], OLD)))
    assert ReplacedFeatures().written(before, ["new", *ids], np.vstack((OLD[:1], TURNED)))


@pytest.mark.rest
def test_features_that_do_not_vary_say_nothing():
    assert not in_batches(ReplacedFeatures(), OLD, np.ones_like(OLD))
    assert in_batches(ReplacedFeatures(), np.ones_like(OLD), OLD)


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path) as api:
        await api.catalogue("c", {f"a{place}": row.tolist() for place, row in enumerate(OLD)})
        await api.bandit("b", "c")
        yield api


@pytest.mark.anyio
async def test_the_catalogue_and_the_status_say_what_to_do(api: Api):
    """Only where a bandit had learned; and once no bandit uses the catalogue, the status is silent."""
    turned = {f"a{place}": row.tolist() for place, row in enumerate(TURNED)}
    await api.put_arms("c", turned)
    assert (await api.ok("GET", "/v1/catalogues/c")).get("findings") is None
    await api.observe("b", {"id": "1", "arm": "a1", "value": 1.0})
    await api.put_arms("c", {f"a{place}": row.tolist() for place, row in enumerate(OLD)})
    (found,) = (await api.ok("GET", "/v1/catalogues/c"))["findings"]
    assert (found["name"], found["good"]) == ("features_replaced", False)
    assert "shortlist move" in found["text"]
    assert found in (await api.ok("GET", "/v1/status"))["findings"]
    await api.catalogue("d", {f"a{place}": row.tolist() for place, row in enumerate(OLD)})
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "d", "carry": "none"})
    assert found not in (await api.ok("GET", "/v1/status"))["findings"]


@pytest.mark.rest
@pytest.mark.anyio
async def test_what_could_not_be_stored_is_not_counted(api: Api, monkeypatch: pytest.MonkeyPatch):
    """A write that the store does not take has replaced nothing."""
    await api.observe("b", {"id": "1", "arm": "a1", "value": 1.0})

    async def fails(*_: object, **__: object) -> None:
        raise Unavailable("the store does not answer")

    arms = [{"id": f"a{place}", "features": row.tolist()} for place, row in enumerate(TURNED)]
    with monkeypatch.context() as patched:
        patched.setattr(ArmStore, "upsert", fails)
        answer = await api.http.put("/v1/catalogues/c/arms", json={"arms": arms})
    assert answer.status_code == 503
    assert (await api.ok("GET", "/v1/catalogues/c")).get("findings") is None
