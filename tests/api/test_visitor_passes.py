"""Passes for one visitor: what they may do, and that nothing else is taken for one."""

import base64
import hashlib
import hmac
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from api_client import Api, Json, running
from app.api.api_keys import ApiKeys, new_key
from app.platform.errors import PassExpired, Unauthorized
from shortlist_client import visitor_pass
from shortlist_client.errors import InvalidArgument

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

SHOP = "https://shop.example"
KEY, ENTRY = new_key("web", ["choose", "reward"], {"bandits": "own,all,capped", "visitors": "3600"})
SECOND, SECOND_ENTRY = new_key("web", ["choose", "reward"], {"bandits": "own,all,capped", "visitors": "3600"})
ADMIN, ADMIN_ENTRY = new_key("admin", ["admin"])
WIDE, WIDE_ENTRY = new_key("wide", ["admin"], {"visitors": "60"})
PLAIN, PLAIN_ENTRY = new_key("plain", ["choose", "reward"])
ENTRIES = f"{ENTRY} {SECOND_ENTRY} {ADMIN_ENTRY} {WIDE_ENTRY} {PLAIN_ENTRY}"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def of(visitor: str, key: str = KEY, **rest: Any) -> dict[str, str]:
    return bearer(visitor_pass(key, visitor=visitor, **rest))


def shifted(monkeypatch: pytest.MonkeyPatch, by_s: float, **rest: Any) -> str:
    """A pass of somebody whose clock differs."""
    now = time.time
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now() + by_s)
        return visitor_pass(KEY, visitor="ann", **rest)


@pytest.fixture(scope="module")
async def public(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """Bandits ``own`` (per key), ``all`` (global), ``capped`` (global with repeats), and ``other``."""
    folder = tmp_path_factory.mktemp("passes")
    async with running(store_url, folder, api_keys=ENTRIES, cors_origins=SHOP) as api:
        api.http.headers.update(bearer(ADMIN))
        await api.catalogue("c", {f"a{i}": [i, 1] for i in range(4)})
        await api.bandit("own", "c", scope="per_key")
        await api.bandit("all", "c")
        await api.bandit("capped", "c", repeats={"most": 1, "within_s": 3_600})
        await api.bandit("other", "c")
        yield api


async def choose(api: Api, bandit: str, headers: dict[str, str], **body: Any) -> Json:
    found: Json = await api.ok("POST", f"/v1/bandits/{bandit}/choose", body, headers=headers)
    return found


async def test_a_page_rewards_what_a_server_chose_with_a_pass_of_its_visitor(public: Api):
    """Any pass of the visitor will do, also of another key; what the key itself chose will not."""
    by_server = await choose(public, "own", of("ann", SECOND, expires_in_s=60))
    by_key = await choose(public, "own", bearer(KEY), key="ann")
    rewards = [{"decision": choice["decision"], "value": 1.0} for choice in (by_server, by_key)]
    receipt = await public.ok("POST", "/v1/rewards", {"rewards": rewards}, status=202, headers=of("ann"))
    assert receipt == {"accepted": 1, "duplicate": 0, "rejected": [{"index": 1, "code": "not_yours"}]}


@pytest.mark.parametrize(
    ("bandit", "body"), [("own", {}), ("own", {"key": "ann"}), ("all", {}), ("capped", {"visitor": "ann"})]
)
async def test_a_pass_chooses_rewards_and_activates_for_its_visitor(public: Api, bandit: str, body: Json):
    ann = of("ann") if bandit != "capped" else of("ann-2")
    if bandit == "capped":
        body = {"visitor": "ann-2"}
    token = (await choose(public, bandit, ann, activate=False, **body))["decision"]
    active = await public.ok("POST", "/v1/decisions/activate", {"decisions": [token]}, headers=ann)
    assert active["activated"] == 1
    rewards = {"rewards": [{"decision": token, "value": 1}]}
    # another pass, of the key that takes the place of this one, is as good for the same visitor
    again = of("ann", SECOND) if bandit != "capped" else of("ann-2", SECOND)
    receipt = await public.ok("POST", "/v1/rewards?wait=applied", rewards, headers=again)
    assert (receipt["accepted"], receipt["rejected"]) == (1, [])
    if bandit == "own":
        assert (await public.learner("own", "ann"))["observations"] >= 1


async def test_a_pass_fills_in_the_visitor_that_repeats_count_for(public: Api):
    shown = [(await choose(public, "capped", of("zoe")))["arms"][0]["id"] for _ in range(4)]
    assert len(set(shown)) == 4
    await public.refused(
        "POST", "/v1/bandits/capped/choose", {}, status=409, code="no_arms", headers=of("zoe")
    )
    await choose(public, "capped", of("zac"))


@pytest.mark.parametrize(
    ("path", "body", "loc"),
    [
        ("/v1/bandits/own/choose", {"key": "bob"}, ["body", "key"]),
        ("/v1/bandits/own/choose", {"visitor": "bob"}, ["body", "visitor"]),
        ("/v1/bandits/all/choose", {"visitor": "bob"}, ["body", "visitor"]),
        ("/v1/bandits/own/choose", {"baseline": "s"}, ["body", "baseline"]),
        ("/v1/bandits/own/choose", {"dry_run": True}, None),
        ("/v1/bandits/own/choose/batch", {"requests": [{}, {"key": "bob"}]}, ["body", "requests", 1, "key"]),
        ("/v1/bandits/own/observations", {"observations": [{"id": "o", "arm": "a1", "value": 1}]}, None),
    ],
)
async def test_a_pass_does_nothing_for_others_and_nothing_else(
    public: Api, path: str, body: Json, loc: list[str | int] | None
):
    await public.refused("POST", path, body, status=403, code="forbidden", loc=loc, headers=of("ann"))


async def test_a_page_for_its_visitor_is_taken_row_by_row(public: Api):
    """As single choices: the visitor is filled in, and what is of others or not seen is refused alone."""
    requests = [
        {"bandit": "own"},
        {"bandit": "capped"},
        {"bandit": "own", "key": "bob"},
        {"bandit": "other"},
        {"bandit": "all", "visitor": "bob"},
        {"bandit": "all", "baseline": "s"},
    ]
    body, path = {"requests": requests, "partial": True}, "/v1/choose/batch"
    results = (await public.ok("POST", path, body, headers=of("page-1")))["results"]
    assert [each.get("error", {}).get("status") for each in results] == [None, None, 403, 404, 403, 403]
    await public.refused("POST", path, {"requests": requests}, status=403, code="forbidden",
                         loc=["body", "requests", 2, "key"], headers=of("page-1"))  # fmt: skip
    narrow = of("page-1", bandits=["own"])
    assert ["error" in each for each in (await public.ok("POST", path, body, headers=narrow))["results"]] == [
        False, True, True, True, True, True
    ]  # fmt: skip
    # The row of ``capped`` counts for this visitor, who has seen one of its four arms.
    rest = (await choose(public, "capped", of("page-1"), k=4))["arms"]
    assert len(rest) == 3
    rewards = {"rewards": [{"decision": each["decision"], "value": 1} for each in results[:2]]}
    assert (await public.ok("POST", "/v1/rewards", rewards, 202, headers=of("page-1")))["accepted"] == 2


@pytest.mark.parametrize("bandit", ["own", "all"])
async def test_only_the_decisions_of_its_visitor_can_be_rewarded_and_activated(public: Api, bandit: str):
    key = {"key": "ann"} if bandit == "own" else {}
    tokens = [
        (await choose(public, bandit, headers, activate=False, **body))["decision"]
        for headers, body in (
            (of("ann"), {}),
            (of("bob"), {}),
            (bearer(KEY), key),  # chosen by a server for the same key, and not with a pass
            (bearer(ADMIN), key),
        )
    ]
    wrong = [{"index": place, "code": "not_yours"} for place in (1, 2, 3)]
    active = await public.ok("POST", "/v1/decisions/activate", {"decisions": tokens}, headers=of("ann"))
    assert active == {"activated": 1, "duplicate": 0, "rejected": wrong}
    body = {"rewards": [{"decision": token, "value": 1} for token in tokens]}
    receipt = await public.ok("POST", "/v1/rewards", body, 202, headers=of("ann"))
    assert receipt == {"accepted": 1, "duplicate": 0, "rejected": wrong}
    # the key itself, which is no pass, may reward them all
    await public.ok("POST", "/v1/decisions/activate", {"decisions": tokens}, headers=bearer(KEY))
    receipt = await public.ok("POST", "/v1/rewards", body, 202, headers=bearer(KEY))
    assert receipt == {"accepted": 3, "duplicate": 1, "rejected": []}


@pytest.mark.parametrize("bandit", ["own", "all"])
async def test_an_event_is_its_visitors_own(public: Api, bandit: str):
    event = {"event_id": "visit-1"}
    ann = await choose(public, bandit, of("ann"), **event)
    assert (await choose(public, bandit, of("ann"), **event))["decision"] == ann["decision"]
    bob = await choose(public, bandit, of("bob"), **event)
    server = await choose(public, bandit, bearer(KEY), **event, **({"key": "ann"} if bandit == "own" else {}))
    assert len({each["decision"] for each in (ann, bob, server)}) == 3
    # what one visitor asks for under the name of an event keeps no other from using it
    await choose(public, bandit, of("eve"), k=2, **event)
    await public.refused(
        "POST",
        f"/v1/bandits/{bandit}/choose",
        {"k": 2, **event},
        status=409,
        code="event_used",
        headers=of("ann"),
    )


async def test_a_pass_is_for_the_bandits_of_its_key_or_fewer(public: Api):
    for name, status in (("own", 200), ("all", 404), ("other", 404), ("never", 404)):
        headers = of("ann", bandits=["own", "other"])
        answer = await public.call("POST", f"/v1/bandits/{name}/choose", {}, headers=headers)
        assert answer.status_code == status, name
    token = (await choose(public, "all", of("ann")))["decision"]
    body = {"rewards": [{"decision": token, "value": 1}]}
    receipt = await public.ok("POST", "/v1/rewards", body, 202, headers=of("ann", bandits=["own"]))
    assert receipt["rejected"] == [{"index": 0, "code": "unknown_bandit"}]


async def test_the_pass_of_an_admin_is_no_admin(public: Api):
    wide = of("ann", WIDE, expires_in_s=60)
    await choose(public, "other", wide)
    await choose(public, "other", wide | {"origin": SHOP})  # it may be in a page, where its key may not
    for method, path in (("GET", "/v1/status"), ("GET", "/v1/bandits"), ("DELETE", "/v1/bandits/other")):
        await public.refused(method, path, status=403, code="forbidden", headers=wide)


async def test_an_expired_pass_says_so_to_a_page_of_another_origin(
    public: Api, monkeypatch: pytest.MonkeyPatch
):
    path = "/v1/bandits/own/choose"
    old = bearer(shifted(monkeypatch, -3_670)) | {"origin": SHOP}
    answer = await public.call("POST", path, {}, headers=old)
    assert (answer.status_code, answer.json()["code"]) == (401, "pass_expired")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert "retry-after" in answer.headers["access-control-expose-headers"]
    # clocks may differ by a minute, either way
    await choose(public, "own", bearer(shifted(monkeypatch, -3_630)))
    await choose(public, "own", bearer(shifted(monkeypatch, 50)))


async def test_a_pass_that_lasts_longer_than_its_key_allows_is_refused(
    public: Api, monkeypatch: pytest.MonkeyPatch
):
    path = "/v1/bandits/own/choose"
    for headers in (of("ann", expires_in_s=3_700), bearer(shifted(monkeypatch, 3_700))):
        refused = await public.refused("POST", path, {}, status=401, code="unauthorized", headers=headers)
        assert "3600 s" in refused["detail"]
    refused = await public.refused(
        "POST", path, {}, status=401, code="unauthorized", headers=of("ann", PLAIN)
    )
    assert "visitors=SECONDS" in refused["detail"]


async def test_a_pass_ends_with_the_entry_that_signed_it(store_url: str, tmp_path: Path):
    """While a key is replaced both its entries stand: passes of both are let in."""
    for entries, statuses in (((ENTRY, SECOND_ENTRY), (200, 200)), ((SECOND_ENTRY,), (401, 200))):
        keys = " ".join((*entries, ADMIN_ENTRY))
        async with running(store_url, tmp_path, empty=len(entries) == 2, api_keys=keys) as api:
            if len(entries) == 2:
                api.http.headers.update(bearer(ADMIN))
                await api.catalogue("c", {"a": [1, 1]})
                await api.bandit("own", "c", scope="per_key")
            answers = [
                await api.call("POST", "/v1/bandits/own/choose", {}, headers=of("ann", key))
                for key in (KEY, SECOND)
            ]
            assert tuple(answer.status_code for answer in answers) == statuses


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def raw(given: str) -> bytes:
    body = given.removeprefix("slv_")
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


def wrong_passes(count: int) -> Iterator[str]:
    """Damaged, cut, swapped, re-spelled and made-up passes, and those of a key that is gone."""
    rng = random.Random(20)
    genuine = [visitor_pass(KEY, visitor=visitor) for visitor in ("ann", "bob")]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for _ in range(count // 8):
        ann, bob = map(raw, genuine)
        body, place = genuine[0].removeprefix("slv_"), rng.randrange(len(genuine[0]) - 4)
        yield "slv_" + body[:place] + rng.choice(alphabet.replace(body[place], "")) + body[place + 1 :]
        yield "slv_" + body[:place]
        yield "slv_" + text(ann[:-32] + bob[-32:])  # what one says, signed as the other
        terms = json.loads(ann[:-32])
        terms[rng.choice([1, 2])] = rng.choice(["bob", "eve", int(time.time()) + rng.randrange(9_999)])
        yield "slv_" + text(json.dumps(terms).encode() + ann[-32:])
        yield "slv_" + text(ann[:-32] + rng.randbytes(32))
        yield "slv_" + text(rng.randbytes(rng.randrange(1, 120)))
        yield visitor_pass(new_key("web", ["choose"])[0], visitor="ann")  # signed by a key that is not there
        yield genuine[0] + rng.choice(["=", "==", "A", " ", "\x00", "é", "\n", "."])


def test_ten_thousand_wrong_passes_are_let_in_by_none():
    keys, let_in = ApiKeys(ENTRIES.split()), 0
    assert keys.find(visitor_pass(KEY, visitor="ann").encode()) is not None
    wrong = list(wrong_passes(10_000))
    for each in wrong:
        with pytest.raises(Unauthorized) as caught:
            keys.find(each.encode())
        let_in += isinstance(caught.value, PassExpired)  # only a genuine one can be
    assert (len(wrong), let_in) == (10_000, 0)


def test_the_end_of_a_pass_may_be_any_number():
    """Its key has signed it: a number that no clock has was an error of the service."""
    _, *terms = json.loads(raw(visitor_pass(KEY, visitor="ann"))[:-32])
    first = json.loads(raw(visitor_pass(KEY, visitor="ann"))[:-32])[0]
    keys = ApiKeys(ENTRIES.split())
    for end in (10**400, 2**63, 10**11, -1, -(10**400)):
        signed = json.dumps([first, terms[0], end, *terms[2:]]).encode()
        tag = hmac.digest(hashlib.sha256(KEY.encode()).digest(), b"slv_" + signed, "sha256")
        with pytest.raises(Unauthorized):
            keys.find(f"slv_{text(signed + tag)}".encode())


async def test_wrong_passes_are_answered_with_401_over_http(public: Api):
    sent = [each for each in wrong_passes(80) if each.isascii() and each.isprintable()]
    for each in sent:
        answer = await public.http.post("/v1/bandits/own/choose", json={}, headers=bearer(each.strip()))
        if each.strip() != each:
            continue  # a blank at the end is no part of a header's value
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), each
    assert len(sent) > 60


def test_a_pass_does_not_have_the_key_or_what_signs_in_it():
    digest = bytes.fromhex(ENTRY.rpartition(":")[2])
    found = raw(visitor_pass(KEY, visitor="ann"))
    assert KEY.encode() not in found
    assert digest not in found
    assert digest[:8] not in base64.urlsafe_b64decode(json.loads(found[:-32])[0] + "==")


@pytest.mark.parametrize(
    ("key", "rest"),
    [
        ("", {}), ("sl_é", {}), (visitor_pass(KEY, visitor="ann"), {}),
        (KEY, {"visitor": ""}), (KEY, {"visitor": "a/b"}), (KEY, {"visitor": "ann\n"}),
        (KEY, {"expires_in_s": 0}), (KEY, {"expires_in_s": 1.5}), (KEY, {"expires_in_s": True}),
        (KEY, {"bandits": "home"}), (KEY, {"bandits": ["a b"]}),
    ],
    ids=range(11),  # each run draws another key, and every process must name the cases alike
)  # fmt: skip
def test_what_cannot_be_a_pass_is_refused_where_it_is_made(key: str, rest: Any):
    with pytest.raises(InvalidArgument):
        visitor_pass(key, **{"visitor": "ann", **rest})
