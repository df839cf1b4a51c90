"""How far the policy would have shown what a holdout of candidates was served: what dry runs of it say."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_holdout_of_candidates import LISTED, ids, ready

from api_client import Api, Json
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

COUNT = 40


def requests() -> list[Json]:
    """Of several lengths, with rules and filters: a list of the caller's in another order each time."""
    rng, asked = np.random.default_rng(9), list[Json]()
    for number in range(COUNT):
        order = [LISTED[place] for place in rng.permutation(len(LISTED))]
        ask: Json = {"key": f"u{number % 7}", "seed": number, "k": 1 + number % 4, "candidates": order}
        if number % 4 == 1:
            ask["filter"] = {"kind": 1}
        if number % 4 == 2:
            ask["exclude"] = ["a7"]
        if number % 4 == 3:
            ask["rules"] = {"pin": [{"arm": "a2", "place": 1}]}
        asked.append(ask)
    return asked


def expected(shown: Sequence[str], ranked: Sequence[str], pinned: str | None) -> Json:
    one, other = ([arm for arm in arms if arm != pinned] for arms in (shown, ranked))
    return {"same_first": one[0] == other[0], "overlap": len({*one} & {*other}) / max(len(one), len(other))}


async def rows_of(api: Api, path: str, count: int) -> list[Json]:
    async def are_written() -> bool:
        return len(await api.listed(f"{path}/log", limit=1_000)) == count

    await wait_until(are_written, what="all rows are written")
    return await api.listed(f"{path}/log", limit=1_000)


@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts", "softmax", "igw", "epsilon_greedy", "linucb"])
async def test_it_is_what_dry_runs_of_the_policy_say(shared: Api, policy: str):
    """With the seed of each request: at a share of 0 the same request is ranked by the policy."""
    path = await ready(shared, f"agree-{policy}", policy=policy, scope="per_key")
    teach = [
        {"id": f"o{n}", "key": f"u{n % 7}", "arm": f"a{n % 12}", "value": float(n % 5)} for n in range(60)
    ]
    await shared.observe(f"agree-{policy}", *teach)
    asked = requests()
    shown = [await shared.choose(f"agree-{policy}", **ask) for ask in asked]
    rows = {row["decision"]: row for row in await rows_of(shared, path, COUNT)}
    found = await shared.ok("GET", f"{path}/report")
    await shared.ok("PATCH", path, {"holdout": {"share": 0}})
    wanted = list[Json]()
    for ask, choice in zip(asked, shown, strict=True):
        ranked = await shared.choose(f"agree-{policy}", **ask, dry_run=True)
        assert ranked["group"] == "policy"
        pinned = "a2" if "rules" in ask else None
        # A pin that takes the only place leaves nothing to compare.
        is_compared = ask["k"] > 1 or pinned is None
        wanted.append(expected(ids(choice), ids(ranked), pinned) if is_compared else {})
    for choice, agreement in zip(shown, wanted, strict=True):
        assert rows[choice["decision"]].get("agreement", {}) == pytest.approx(agreement)
    counted = [each for each in wanted if each]
    assert 0 < sum(each["same_first"] for each in counted) < len(counted)
    assert found["agreement"] == {
        "decisions": len(counted),
        "same_first": pytest.approx(np.mean([each["same_first"] for each in counted])),
        "overlap": pytest.approx(np.mean([each["overlap"] for each in counted])),
    }


async def test_a_shadow_has_agreement_and_no_lift(shared: Api):
    path = await ready(shared, "shadow")
    for _ in range(20):
        answer = await shared.choose("shadow", candidates=LISTED)
        await shared.reward({"decision": answer["decision"], "value": 1.0})
    found = await shared.ok("GET", f"{path}/report")
    assert [group["decisions"] for group in found["groups"]] == [0, 20]
    assert found["lift"] == {"value": None, "interval": None}
    assert found["agreement"]["decisions"] == 20
    await shared.choose("shadow", k=3, candidates=LISTED)
    *_, last = await rows_of(shared, path, 21)
    row = (await shared.listed(f"{path}/log"))[0]
    explained = await shared.ok("POST", f"{path}/log/explain", {"decision": last["decision"]})
    assert explained["row"]["agreement"] == last["agreement"]
    # Made again it is the caller's list, and no draw of the policy.
    assert (explained["repeated"], explained["changed"]) == (True, [])
    lines = (await shared.call("GET", f"{path}/log/export")).text.splitlines()
    assert json.loads(lines[0])["agreement"] == row["agreement"]
    table = (await shared.call("GET", f"{path}/log/export?format=parquet")).content
    assert pq.read_table(io.BytesIO(table)).to_pylist()[0]["agreement"] == row["agreement"]


async def test_nothing_is_ranked_beside_what_is_not_logged_or_not_the_callers(shared: Api):
    """A share of the log is the share of decisions beside which the policy ranks."""
    path = await ready(shared, "some", log={"share": 0.3})
    await ready(shared, "others", holdout={"share": 1.0, "serve": "random"})
    for _ in range(30):
        await shared.choose("some", candidates=LISTED)
        await shared.choose("others", candidates=LISTED)
    rows = await rows_of(shared, "/v1/bandits/others", 30)
    assert not any("agreement" in row for row in rows)
    assert (await shared.ok("GET", "/v1/bandits/others/report"))["agreement"] is None
    rows = await shared.listed(f"{path}/log")
    assert len(rows) < 30
    assert all("agreement" in row for row in rows)
    assert (await shared.ok("PATCH", path, {"holdout": None}))["holdout"] is None
    assert "agreement" not in await shared.choose("some", candidates=LISTED)
