"""Features of a catalogue that change, and embeddings that are too many or wrong."""

import copy
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from test_features import COLUMNS, FIELDS, NUMBERS, SHOE, arms_path, features_of, made, put

from api_client import Api, Json
from app.api.arms import BLOCKS, NDJSON
from app.catalogues.arms import FIT_ARMS, MAX_UNFITTED_ARMS
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


def changed(arm: Json, **metadata: Any) -> Json:
    return {**copy.deepcopy(arm), "metadata": {**arm["metadata"], **metadata}}


async def test_what_is_missing_is_zeros_and_what_no_field_lists_is_counted(shared: Api):
    await made(shared, "missing", {"fields": FIELDS})
    await put(
        shared, "missing", {"id": "bare"}, {"id": "null", "metadata": {"list price": None, "genre": None}}
    )
    assert not any(await features_of(shared, "missing", "bare"))
    assert not any(await features_of(shared, "missing", "null"))
    assert (await shared.ok("GET", "/v1/catalogues/missing"))["unlisted"] == {}
    brands = [*"aabbbcdefg"]
    await put(shared, "missing", *(changed(SHOE, brand=b) | {"id": f"x{i}"} for i, b in enumerate(brands)))
    assert (await features_of(shared, "missing", "x0"))[3] == 0.0
    view = await shared.ok("GET", "/v1/catalogues/missing")
    assert view["unlisted"]["brand"] == {"arms": 10, "values": ["b", "a", "c", "d", "e"]}
    assert view["unlisted"]["genre"] == {"arms": 10, "values": ["Noir"]}
    assert view["unlisted"]["tags"] == {"arms": 10, "values": ["red"]}
    await put(shared, "missing", changed(SHOE, brand="Aero") | {"id": "x0"})
    assert (await shared.ok("GET", "/v1/catalogues/missing"))["unlisted"]["brand"]["arms"] == 9


async def test_every_wrong_value_is_named_and_nothing_is_changed(shared: Api):
    await made(shared, "wrong", {"fields": FIELDS})
    await put(shared, "wrong", SHOE)
    before = await shared.ok("GET", arms_path("wrong"))
    wrong: list[Json] = [
        {"list price": "20"}, {"list price": True}, {"list price": -1}, {"list price": 1e300}, {"genre": [1]},
        {"genre": {}}, {"brand": 3}, {"maker": {"country": []}}, {"hour": "noon"}, {"title": 1},
    ]  # fmt: skip
    arms = [changed(SHOE, **each) | {"id": f"w{i}"} for i, each in enumerate(wrong)]
    told = await shared.refused("PUT", arms_path("wrong"), {"arms": [SHOE, *arms]}, code="invalid")
    assert told["detail"].startswith("arms.1.metadata.list price: must be a number; and 9 more")
    fields = [["country"] if "maker" in each else [*each] for each in wrong]
    found = [(error["loc"][2], error["loc"][-1:]) for error in told["errors"]]
    assert found == [(i + 1, field) for i, field in enumerate(fields)]
    for each in wrong:
        arm = changed(SHOE, **each)
        told = await shared.refused("PUT", arms_path("wrong"), {"arms": [arm]})
        line = f"{json.dumps({**SHOE, 'id': 'first'})}\n{json.dumps(arm)}"
        as_lines = await shared.refused(
            "POST", "/v1/catalogues/wrong/import", content=line, headers={"content-type": NDJSON}
        )
        assert as_lines["errors"][0]["loc"][1:3] == [2, "metadata"]
        assert as_lines["errors"][0]["message"] == told["errors"][0]["message"]
        await shared.ok("DELETE", arms_path("wrong", "first"), status=204)
    assert await shared.ok("GET", arms_path("wrong")) == before


async def test_a_changed_price_is_a_new_revision_and_a_note_is_none(shared: Api):
    await made(shared, "prices", {"fields": FIELDS})
    await shared.ok("PUT", "/v1/bandits/prices", {"catalogue": "prices", "policy": "sub_ts"}, 201)

    async def revision() -> int:
        (listed,) = (await shared.ok("GET", "/v1/bandits/prices/log/arms"))["items"]
        return int(listed["revision"])

    await put(shared, "prices", SHOE)
    first = await revision()
    await put(shared, "prices", changed(SHOE, note="on the left"))
    assert await revision() == first
    await put(shared, "prices", changed(SHOE, **{"list price": 19}))
    assert await revision() == first + 1
    assert (await features_of(shared, "prices", "shoe"))[2] == pytest.approx((np.log1p(19) - 3) / 2)


async def test_blocks_need_no_features_where_metadata_says_them(shared: Api):
    await made(shared, "blocks", {"fields": FIELDS})

    def block(*arms: Json) -> bytes:
        metadata = [json.dumps(arm["metadata"]) for arm in arms]
        tags = [arm["tags"] for arm in arms]
        data = msgspec.msgpack.encode(
            {"ids": [arm["id"] for arm in arms], "tags": tags, "metadata": metadata}
        )
        return len(data).to_bytes(4, "little") + data

    path, headers = "/v1/catalogues/blocks/import", {"content-type": BLOCKS}
    await shared.ok("POST", path, content=block(SHOE), headers=headers)
    assert (await features_of(shared, "blocks", "shoe"))[:7] == pytest.approx(NUMBERS, abs=1e-7)
    wrong = block(SHOE, changed(SHOE, brand=1) | {"id": "second"})
    told = await shared.refused("POST", path, content=wrong, headers=headers)
    assert told["errors"][0]["loc"] == ["body", 2, "metadata", "brand"]


async def test_features_are_immutable(shared: Api):
    features = {"fields": FIELDS, "embedding": {"dim": 4, "reduce": 2}}
    await made(shared, "fixed", features)
    same = {"fields": FIELDS, "embedding": {"dim": 4, "reduce": {"to": 2}}}
    await shared.ok("PUT", "/v1/catalogues/fixed", {"features": same, "dim": len(COLUMNS) + 2})
    given = {"to": 2, "basis": [[1, 0, 0, 0], [0, 1, 0, 0]]}
    others: list[Json] = [
        {"features": {"fields": FIELDS[1:], "embedding": {"dim": 4, "reduce": 2}}},
        {"features": {"fields": FIELDS, "embedding": {"dim": 4, "reduce": 3}}},
        {"features": {"fields": FIELDS, "embedding": {"dim": 5, "reduce": 2}}},
        {"features": {"fields": FIELDS, "embedding": {"dim": 4, "reduce": given}}},
        {"dim": len(COLUMNS) + 2},
    ]  # fmt: skip
    for other in others:
        problem = await shared.refused("PUT", "/v1/catalogues/fixed", other, status=409, code="conflict")
        assert "its features are others" in problem["detail"]
    await made(shared, "based", others[3]["features"])
    turned = {"to": 2, "basis": [[0, 1, 0, 0], [1, 0, 0, 0]]}
    other = {"features": {"fields": FIELDS, "embedding": {"dim": 4, "reduce": turned}}}
    problem = await shared.refused("PUT", "/v1/catalogues/based", other, status=409, code="conflict")
    assert "its features are others" in problem["detail"]


async def test_features_that_cannot_be_are_refused_by_their_field(shared: Api):
    def embedding(**own: Any) -> Json:
        return {"embedding": {"dim": 4, **own}}

    hashed = {"name": "a", "kind": "hash", "size": 2, "log": True}
    cases: list[tuple[Json, list[Any]]] = [
        ({}, []),
        ({"fields": []}, ["fields"]),
        ({"fields": [{"name": "a", "kind": "category"}]}, ["fields", 0, "values"]),
        ({"fields": [hashed]}, ["fields", 0, "log"]),
        ({"fields": [FIELDS[0], FIELDS[0]]}, ["fields", 1, "name"]),
        (embedding(reduce=5), ["embedding", "reduce", "to"]),
        (embedding(reduce=0), ["embedding", "reduce", "to"]),
        (embedding(reduce=True), ["embedding", "reduce"]),
        (embedding(reduce="4"), ["embedding", "reduce"]),
        ({"embedding": {"dim": 4_097}}, ["embedding", "dim"]),
        ({"embedding": {"dim": 4_096}, "fields": FIELDS}, []),
    ]
    bases: list[tuple[Json, list[Any]]] = [
        ({"to": 2, "basis": [[1, 0, 0, 0]]}, []),
        ({"to": 1, "basis": [[1, 0]]}, [0]),
        ({"to": 1, "basis": [[1e39, 0, 0, 0]]}, [0, 0]),
        ({"to": 2, "basis": [[1, 0, 0, 0], [2, 0, 0, 0]]}, []),
    ]
    cases += [(embedding(reduce=rule), ["embedding", "reduce", "basis", *loc]) for rule, loc in bases]
    for features, loc in cases:
        answer = await shared.call("PUT", "/v1/catalogues/never", {"features": features})
        assert answer.status_code == 422, features
        assert answer.json()["errors"][0]["loc"] == ["body", "features", *loc], features
    await shared.refused("PUT", "/v1/catalogues/never", {"features": embedding(), "dim": 3})
    await shared.refused("PUT", "/v1/catalogues/never", {})
    await shared.refused("GET", "/v1/catalogues/never", status=404, code="not_found")


# Embeddings -----------------------------------------------------------------------------------------
DIM, TO = 12, 3


def embeddings(count: int, rank: int = DIM, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    parts = rng.normal(size=(count, rank)) * 0.7 ** np.arange(rank)
    return (parts @ rng.normal(size=(rank, DIM))).astype(np.float32).astype(np.float64)


async def put_embeddings(api: Api, name: str, rows: Any, first: int = 0) -> None:
    arms = [
        {"id": f"a{i}", "features": row, "metadata": {"p": i}} for i, row in enumerate(rows.tolist(), first)
    ]
    for start in range(0, len(arms), 500):
        await put(api, name, *arms[start : start + 500])


def best_basis(rows: Any) -> Any:
    """By a singular value decomposition; the service takes eigenvectors of the second moments."""
    return np.linalg.svd(rows, full_matrices=False)[2][:TO]


QUESTIONS: list[tuple[str, Json]] = [
    ("/v1/catalogues/{}/mips", {"embedding": [1.0] * DIM}),
    ("/v1/catalogues/{}/mips", {"query": [1.0] * TO}),
    ("/v1/catalogues/{}/sample", {"embedding": [1.0] * DIM}),
    ("/v1/catalogues/{}/centers", {"k": 2}),
    ("/v1/bandits/{}/choose", {}),
    ("/v1/bandits/{}/choose", {"dry_run": True}),
    ("/v1/bandits/{}/choose/batch", {"requests": [{}]}),
    ("/v1/bandits/{}/observations", {"observations": [{"id": "1", "arm": "a0", "value": 1.0}]}),
]


async def test_arms_are_kept_and_not_chosen_until_a_basis_fits_them(shared: Api):
    view = await made(shared, "waits", {"embedding": {"dim": DIM, "reduce": TO}})
    assert (view["dim"], view["reduction"]["state"]) == (TO, "not_fitted")
    await shared.ok("PUT", "/v1/bandits/waits", {"catalogue": "waits", "policy": "sub_ts"}, 201)
    rows = embeddings(60)
    await put_embeddings(shared, "waits", rows)
    for path, body in QUESTIONS:
        await shared.refused("POST", path.format("waits"), body, status=409, code="not_fitted")
    assert await features_of(shared, "waits", "a7") == rows[7].tolist()
    fitted = await shared.ok("POST", "/v1/catalogues/waits/features/fit")
    reduction = fitted["reduction"]
    assert (reduction["state"], reduction["arms"], fitted["size"]) == ("fitted", 60, 60)
    for path, body in QUESTIONS:
        await shared.ok("POST", path.format("waits"), body, status=202 if "observations" in path else 200)
    basis = np.array((await shared.ok("GET", "/v1/catalogues/waits?include=basis"))["basis"])
    best = best_basis(rows)
    assert np.abs(basis.T @ basis - best.T @ best).max() < 1e-6
    assert reduction["share_of_variance"] == pytest.approx(
        np.square(rows @ best.T).sum() / np.square(rows).sum()
    )
    assert await features_of(shared, "waits", "a7") == pytest.approx((basis @ rows[7]).tolist(), abs=1e-5)
    again = await shared.ok("POST", "/v1/catalogues/waits/features/fit")
    assert (again["reduction"], again["version"]) == (reduction, fitted["version"])
    await put_embeddings(shared, "waits", rows[:1])
    assert (await shared.ok("GET", "/v1/catalogues/waits"))["version"] == fitted["version"], "as it was"


async def test_a_thousand_arms_are_fitted_by_themselves(shared: Api):
    await made(
        shared, "many", {"embedding": {"dim": DIM, "reduce": TO}, "fields": [FIELDS[1] | {"name": "p"}]}
    )
    rows = embeddings(FIT_ARMS + 1)
    await put_embeddings(shared, "many", rows[: FIT_ARMS - 1])
    assert (await shared.ok("GET", "/v1/catalogues/many"))["reduction"]["state"] == "not_fitted"
    await put_embeddings(shared, "many", rows[FIT_ARMS - 1 :], FIT_ARMS - 1)
    view = await shared.ok("GET", "/v1/catalogues/many?include=basis")
    assert (view["reduction"]["state"], view["reduction"]["arms"]) == ("fitted", FIT_ARMS + 1)
    assert view["columns"] == ["p", "embedding.0", "embedding.1", "embedding.2"]
    basis, found = np.array(view["basis"]), await features_of(shared, "many", "a500")
    assert found == pytest.approx([(np.log1p(500) - 3) / 2, *(basis @ rows[500])], abs=1e-5)
    # A query that is an embedding asks nothing of the fields.
    question = {"embedding": rows[500].tolist(), "k": 5, "method": "exact"}
    by_embedding = await shared.ok("POST", "/v1/catalogues/many/mips", question)
    question = {"query": [0.0, *(basis @ rows[500])], "k": 5, "method": "exact"}
    by_query = await shared.ok("POST", "/v1/catalogues/many/mips", question)
    assert [arm["id"] for arm in by_embedding["arms"]] == [arm["id"] for arm in by_query["arms"]]


async def test_a_rank_that_is_too_small_is_told_and_the_arms_stay(shared: Api):
    await made(shared, "flat", {"embedding": {"dim": DIM, "reduce": TO}})
    path = "/v1/catalogues/flat/features/fit"
    told = await shared.refused("POST", path, code="invalid")
    assert "there are no arms" in told["detail"]
    await put_embeddings(shared, "flat", embeddings(FIT_ARMS, rank=2))
    told = await shared.refused("POST", path, code="invalid")
    assert "to is 3" in told["detail"]
    assert "at most 2, the rank" in told["detail"]
    assert told["errors"][0]["loc"] == ["body", "features", "embedding", "reduce"]
    view = await shared.ok("GET", "/v1/catalogues/flat")
    assert (view["size"], view["reduction"]["state"]) == (FIT_ARMS, "not_fitted")
    await put_embeddings(shared, "flat", embeddings(300, seed=5), FIT_ARMS)
    assert (await shared.ok("GET", "/v1/catalogues/flat"))["reduction"]["state"] == "fitted"


async def test_an_unfitted_catalogue_takes_only_so_many_arms(shared: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared.app.service.catalogues, "most_unfitted", 50)
    assert MAX_UNFITTED_ARMS > FIT_ARMS
    await made(shared, "full", {"embedding": {"dim": DIM, "reduce": TO}})
    await put_embeddings(shared, "full", embeddings(50))
    body = {"arms": [{"id": "one-more", "features": [1.0] * DIM}]}
    await shared.refused("PUT", arms_path("full"), body, status=409, code="not_fitted")
    await shared.ok("POST", "/v1/catalogues/full/features/fit")
    await put(shared, "full", body["arms"][0])


async def test_embeddings_of_another_length_or_beyond_float32_are_refused(shared: Api):
    basis = np.eye(DIM)[:TO]
    await made(shared, "lengths", {"embedding": {"dim": DIM, "reduce": {"to": TO, "basis": basis.tolist()}}})
    rows = embeddings(20)
    await put_embeddings(shared, "lengths", rows)
    assert await features_of(shared, "lengths", "a3") == pytest.approx(rows[3, :TO].tolist(), rel=1e-6)
    for features in ([], [1.0] * TO, [1.0] * (DIM + 1)):
        body = {"arms": [{"id": "x", "features": features}]}
        told = await shared.refused("PUT", arms_path("lengths"), body, code="dimension_mismatch")
        assert told["detail"] == f"arms.0.features: features must have {DIM} numbers, not {len(features)}"
    body = {"arms": [{"id": "x", "features": [1e39] * DIM}]}
    told = await shared.refused("PUT", arms_path("lengths"), body)
    assert told["errors"][0]["loc"] == ["body", "arms", 0, "features", 0]
    path = "/v1/catalogues/lengths/mips"
    told = await shared.refused("POST", path, {"embedding": [1.0]}, code="dimension_mismatch")
    assert told["errors"][0]["loc"] == ["body", "embedding"]
    await shared.refused("POST", path, {"embedding": [1e39] * DIM})
    await shared.refused("POST", path, {"embedding": [1.0] * DIM, "query": [1.0] * TO})
    await shared.refused("POST", path, {})
    await made(shared, "plain", {"fields": FIELDS})
    await shared.refused("POST", "/v1/catalogues/plain/mips", {"embedding": [1.0] * DIM})
    await shared.refused("POST", "/v1/catalogues/plain/features/fit")
    large = np.full((TO, DIM), 1e6) * np.eye(TO, DIM)
    await made(shared, "beyond", {"embedding": {"dim": DIM, "reduce": {"to": TO, "basis": large.tolist()}}})
    told = await shared.refused("PUT", arms_path("beyond"), {"arms": [{"id": "x", "features": [2.0] * DIM}]})
    assert told["errors"][0]["loc"] == ["body", "arms", 0, "features"]


async def test_blocks_and_lines_reduce_as_one_arm_alone(shared: Api):
    """Arms have the same bits whatever they are sent together with."""
    basis = np.linalg.qr(np.random.default_rng(2).normal(size=(DIM, TO)))[0].T.tolist()
    await made(shared, "bits", {"embedding": {"dim": DIM, "reduce": {"to": TO, "basis": basis}}})
    rows, headers = embeddings(700), {"content-type": BLOCKS}
    data = msgspec.msgpack.encode(
        {"ids": [f"a{i}" for i in range(700)], "features": rows.astype("<f4").tobytes(), "dtype": "<f4"}
    )
    content = len(data).to_bytes(4, "little") + data
    await shared.ok("POST", "/v1/catalogues/bits/import", content=content, headers=headers)
    version = (await shared.ok("GET", "/v1/catalogues/bits"))["version"]
    for i in (0, 255, 256, 699):
        await put(shared, "bits", {"id": f"a{i}", "features": rows[i].tolist()})
    lines = "\n".join(json.dumps({"id": f"a{i}", "features": rows[i].tolist()}) for i in range(300, 340))
    path = "/v1/catalogues/bits/import"
    await shared.ok("POST", path, content=lines, headers={"content-type": NDJSON})
    assert (await shared.ok("GET", "/v1/catalogues/bits"))["version"] == version


def packed(**columns: Any) -> bytes:
    document = msgspec.msgpack.encode(columns)
    return len(document).to_bytes(4, "little") + document


@pytest.mark.parametrize(
    ("rule", "status", "code"),
    [
        ({"embedding": {"dim": DIM, "reduce": TO}}, 409, "not_fitted"),
        ({"embedding": {"dim": DIM}}, 422, "invalid"),
    ],
)
async def test_blocks_cannot_be_reduced_where_there_is_no_basis(
    shared: Api, rule: Json, status: int, code: str
):
    await made(shared, code.replace("_", "-"), rule)
    near = np.ones((1, TO), dtype="<f8").tobytes()
    answer = await shared.refused(
        "POST",
        f"/v1/catalogues/{code.replace('_', '-')}/import",
        content=packed(ids=["a"], features=near, reduced=True),
        headers={"content-type": "application/vnd.shortlist.arms"},
        status=status,
        code=code,
    )
    assert "The first 0 arms were applied" in answer["detail"]


async def test_learners_and_explanations_name_the_columns(shared: Api):
    await made(shared, "named", {"fields": FIELDS[:4]})
    arms = [changed(SHOE, **{"list price": p}) | {"id": f"p{p}"} for p in (1, 10, 100)]
    await put(shared, "named", *arms, changed(SHOE, brand="other") | {"id": "other"})
    body = {"catalogue": "named", "policy": "sub_ts", "log": {}}
    await shared.ok("PUT", "/v1/bandits/named", body, 201)
    seen = [{"id": f"{i}", "arm": f"p{p}", "value": -float(p > 5)} for i, p in enumerate((1, 10, 100))]
    await shared.ok("POST", "/v1/bandits/named/observations?wait=applied", {"observations": seen})
    learner = await shared.ok("GET", "/v1/bandits/named/learners/_global")
    assert learner["columns"] == COLUMNS[:5]
    theta = dict(zip(learner["columns"], learner["theta"], strict=True))
    assert theta["list price"] < 0
    choice = await shared.ok("POST", "/v1/bandits/named/choose", {})
    asked = {"decision": choice["decision"]}

    async def row() -> Json | None:
        answer = await shared.call("POST", "/v1/bandits/named/log/explain", asked)
        return answer.json() if answer.status_code == 200 else None

    told = await wait_until(row, what="the row")
    assert told is not None
    assert told["candidates"]
    for candidate in told["candidates"]:
        parts = {term["column"]: term["value"] for term in candidate["terms"]}
        assert sum(parts.values()) + learner["offset"] == pytest.approx(candidate["estimate"])
        features = dict(zip(COLUMNS, await features_of(shared, "named", candidate["id"]), strict=False))
        assert parts == pytest.approx({c: theta[c] * x for c, x in features.items() if theta[c] * x})
