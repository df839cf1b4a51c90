"""The metadata that come with the arms of a choice: what the arms have now, and no other choice for it."""

from collections.abc import Sequence
from typing import Any

import pytest

from api_client import Api, Json

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

METADATA: dict[str, Json] = {
    "a": {
        "title": "Heat",
        "price": 9,
        "maker": {"name": "ann", "country": "de"},
        "parts": [{"x": 1, "y": 2}, 3],
    },
    "b": {"title": "Ran", "a.b": 1, "tags": [1]},
    "c": {},
}
FEATURES = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.5, 0.5]}
TITLES = {arm: {"title": data["title"]} if "title" in data else {} for arm, data in METADATA.items()}


async def build(api: Api, **bandit: object) -> None:
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    rows = [{"id": arm, "features": FEATURES[arm], "metadata": METADATA[arm]} for arm in FEATURES]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    await api.bandit("b", "c", **bandit)


def shown(choice: Json) -> dict[str, Json]:
    return {arm["id"]: arm["metadata"] for arm in choice["arms"]}


async def test_all_metadata_or_the_fields_that_are_named(api: Api):
    await build(api)
    assert shown(await api.choose("b", k=3, include=["metadata"])) == METADATA
    assert shown(await api.choose("b", k=3, include=["metadata.title"])) == TITLES
    assert shown(await api.choose("b", k=3, include=["metadata.title", "metadata"])) == METADATA
    names = ["metadata.maker.country", "metadata.parts.y", "metadata.a.b", "metadata.no", "metadata.tags"]
    found = shown(await api.choose("b", k=3, include=names))
    assert found["a"] == {"maker": {"country": "de"}, "parts": [{"y": 2}]}
    assert found["b"] == {"a.b": 1, "tags": [1]}
    assert found["c"] == {}


async def test_nobody_else_gets_them_and_the_choice_is_the_same(api: Api):
    await build(api)
    plain = await api.choose("b", k=3, seed=4)
    assert all("metadata" not in arm for arm in plain["arms"])
    with_all = await api.choose("b", k=3, seed=4, include=["metadata"])
    for arm in with_all["arms"]:
        del arm["metadata"]
    assert with_all["arms"] == plain["arms"]


async def test_dry_runs_and_each_choice_of_a_batch(api: Api):
    await build(api)
    dry = await api.choose("b", k=3, dry_run=True, include=["metadata.title"])
    assert shown(dry) == TITLES
    requests: list[Json] = [
        {"k": 2, "include": ["metadata"]},
        {"k": 3},
        {"k": 3, "include": ["metadata.title"]},
    ]
    batch = await api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": requests})
    one, two, three = batch["results"]
    assert shown(one) == {arm["id"]: METADATA[arm["id"]] for arm in one["arms"]}
    assert all("metadata" not in arm for arm in two["arms"])
    assert shown(three) == TITLES


async def test_each_choice_of_a_batch_has_the_metadata_of_its_own_catalogue(api: Api):
    await build(api)
    await api.ok("PUT", "/v1/catalogues/d", {"dim": 2}, 201)
    other = {"id": "a", "features": [1.0, 0.0], "metadata": {"title": "other"}}
    await api.ok("PUT", "/v1/catalogues/d/arms", {"arms": [other]})
    await api.bandit("e", "d")
    requests = [{"bandit": name, "k": 3, "include": ["metadata"]} for name in ("b", "e", "b")]
    batch = await api.ok("POST", "/v1/choose/batch", {"requests": requests})
    found = [shown(choice) for choice in batch["results"]]
    assert found == [METADATA, {"a": other["metadata"]}, METADATA]


async def test_a_repeat_for_an_event_is_the_same_choice_with_the_metadata_of_now(api: Api):
    await build(api, log={})
    first = await api.choose("b", k=3, event_id="e", include=["metadata"])
    row = {"id": "c", "features": FEATURES["c"], "metadata": {"title": "new"}}
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": [row]})
    await api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": ["a"]})
    again = await api.choose("b", k=3, event_id="e", include=["metadata"])
    assert again["decision"] == first["decision"]
    assert shown(again) == {"a": {}, "b": METADATA["b"], "c": {"title": "new"}}
    without = await api.choose("b", k=3, event_id="e")
    assert without["decision"] == first["decision"]
    assert "metadata" not in without["arms"][0]


async def test_other_names_are_refused(api: Api):
    await build(api)
    for name in ["", "metadat", "metadata.", "metadata." + "x" * 257, "features", ".title", 1]:
        body = {"include": ["metadata", name]}
        await api.refused("POST", "/v1/bandits/b/choose", body, loc=["body", "include", 1])
        await api.refused(
            "POST",
            "/v1/bandits/b/choose/batch",
            {"requests": [body]},
            loc=["body", "requests", 0, "include", 1],
        )


async def test_what_would_be_too_long_is_refused_and_nothing_is_decided(api: Api):
    arms = {f"a{place}": [1.0, 0.0] for place in range(600)}
    await api.catalogue("c", arms)
    text = "x" * 16_000
    for first in range(0, 600, 200):
        rows = [
            {"id": arm, "features": [1.0, 0.0], "metadata": {"text": text}}
            for arm in list(arms)[first : first + 200]
        ]
        await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    await api.bandit("b", "c", log={}, reward={"wait_s": 60})
    body = {"k": 600, "include": ["metadata.title"]}
    await api.refused(
        "POST", "/v1/bandits/b/choose", body, status=413, code="too_large", loc=["body", "include"]
    )
    assert (await api.listed("/v1/bandits/b/log")) == []
    await api.choose("b", k=500, include=["metadata"])


async def test_what_is_small_is_read_at_once(api: Api, monkeypatch: pytest.MonkeyPatch):
    """A round trip for each part of it takes longer than all else."""
    rows = [{"id": f"a{n}", "features": [1.0, n], "metadata": {"text": "x" * 200}} for n in range(200)]
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    await api.bandit("b", "c")
    documents, calls = api.app.service.store.arms.documents, list[int]()

    async def counted(uid: str, ids: Sequence[str], **how: Any) -> Sequence[bytes]:
        calls.append(len(ids))
        return await documents(uid, ids, **how)

    monkeypatch.setattr(api.app.service.store.arms, "documents", counted)
    assert len(shown(await api.choose("b", k=200, include=["metadata"]))) == 200
    assert calls == [200]
