"""Decision tokens in the hands of someone who wants more than was decided."""

import asyncio
import base64
import string
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from api_client import Api, Json, running
from app.rewards.tokens import Decision, TokenSigner
from waiting import wait_until

pytestmark = pytest.mark.anyio

ALPHABET = string.ascii_letters + string.digits + "-_"


@pytest.fixture(scope="module")
async def api(shared_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    folder: Path = tmp_path_factory.mktemp("tokens")
    async with running(shared_store_url, folder) as api:
        await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(5)})
        await api.bandit("b", "c")
        await api.bandit("other", "c", scope="per_key")
        yield api


async def codes(api: Api, tokens: list[str]) -> set[str]:
    """What becomes of rewards with these tokens: the codes of those that are refused."""
    before = await api.stored()
    answer = await api.ok(
        "POST", "/v1/rewards", {"rewards": [{"decision": t, "value": 1} for t in tokens]}, 202
    )
    assert answer["accepted"] == answer["duplicate"] == 0, "a forged token was taken"
    assert [item["index"] for item in answer["rejected"]] == list(range(len(tokens)))
    assert await api.stored() == before
    return {item["code"] for item in answer["rejected"]}


@pytest.mark.parametrize("k", [1, 2, 3, 5])
async def test_no_other_text_is_the_token(api: Api, k: int):
    """Every character changed, into every other one for the last few; every length; other alphabets."""
    token = (await api.choose("b", k=k))["decision"]
    flips = [token[:i] + ("A" if c != "A" else "B") + token[i + 1 :] for i, c in enumerate(token)]
    ends = [
        token[:-i] + c + token[len(token) - i + 1 :] for i in range(1, 5) for c in ALPHABET if c != token[-i]
    ]
    cuts = [token[:length] for length in range(1, len(token))]
    longer = [
        token + tail for tail in ("A", "AA", "AAAA", "=", "==", "====", "\n", " ", "\u0000", "é", token)
    ]
    around = [f" {token}", f"\n{token}", f"A{token}", token[1:], token[::-1], token.upper(), token.lower()]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    other = [base64.b64encode(raw).decode(), base64.b32encode(raw).decode(), raw.hex(), raw.decode("latin-1")]
    split = [f"{token[:9]}{junk}{token[9:]}" for junk in ("\n", " ", "=", ".", "+", "/", "\u0000")]
    forged = [t for t in (*flips, *ends, *cuts, *longer, *around, *other, *split) if t != token]
    assert await codes(api, forged) == {"invalid_token"}
    arm = (await api.ok("GET", "/v1/catalogues/c/arms"))["items"][0]["id"] if k == 5 else None
    answer = await api.reward({"decision": token, "value": 1, "arm": arm})
    assert answer["rejected"] == ([] if k in {1, 5} else [{"index": 0, "code": "arm_required"}])


@pytest.mark.rest
async def test_pieces_of_two_tokens_make_no_third(api: Api):
    one, two = [(await api.choose("b", k=2))["decision"] for _ in range(2)]
    assert len(one) == len(two)
    mixed = [one[:i] + two[i:] for i in range(1, len(one)) if one[:i] + two[i:] not in {one, two}]
    assert await codes(api, mixed) == {"invalid_token"}


@pytest.mark.rest
async def test_a_token_signed_with_another_secret(api: Api, store_url: str, tmp_path: Path):
    token = (await api.choose("b"))["decision"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))[:-16]
    decision, number = msgspec.msgpack.decode(raw[4:], type=Decision), int.from_bytes(raw[:4], "big")
    forgeries = []
    for secret in (b"", b"\x00" * 32, b"secret"):
        for claimed in (number, number - 1, number + 1, 0):
            signer = TokenSigner()
            signer.use({claimed: secret}, current=claimed)
            forgeries.append(signer.sign(decision))
    assert await codes(api, forgeries) == {"invalid_token"}


@pytest.mark.rest
async def test_tokens_of_garbage(api: Api):
    garbage = [
        "x",
        "A" * 22,
        "A" * 400_000,
        "e30",
        "\U0001f600" * 50,
        "a.b.c",
        "null",
        "%00",
        "gA",
        "kA" * 40,
    ]
    assert await codes(api, garbage) == {"invalid_token"}
    body = {"rewards": [{"decision": "A" * 400_001, "value": 1}]}
    await api.refused("POST", "/v1/rewards", body, loc=["body", "rewards", 0, "decision"])


@pytest.mark.rest
async def test_bad_tokens_do_not_hinder_good_ones(api: Api):
    tokens = [(await api.choose("other", key="ann"))["decision"] for _ in range(5)]
    rewards: list[Json] = [{"decision": token, "value": 1} for token in tokens]
    mixed = [
        rewards[0],
        {"decision": "x", "value": 1},
        rewards[1],
        rewards[1],
        rewards[2],
        {**rewards[3], "arm": "no"},
    ]
    answer = await api.reward(*mixed, rewards[4])
    assert answer == {
        "accepted": 4, "duplicate": 1,
        "rejected": [{"index": 1, "code": "invalid_token"}, {"index": 5, "code": "unknown_arm"}],
    }  # fmt: skip
    assert (await api.learner("other", "ann"))["observations"] == 4


async def test_a_token_expires(store_url: str, tmp_path: Path):
    """After one second; until then the second reward is a duplicate, and never is it counted twice."""
    async with running(store_url, tmp_path, token_ttl_s=1) as api:
        await api.catalogue("c", {"a": [1.0]})
        await api.bandit("b", "c")
        tokens: list[str] = []

        async def rewarded() -> bool:
            tokens.append((await api.choose("b"))["decision"])
            return bool((await api.reward({"decision": tokens[-1], "value": 1}))["accepted"])

        await wait_until(rewarded, what="a reward comes within the second, even where the machine is busy")

        async def expired() -> bool:
            answer = await api.reward({"decision": tokens[-1], "value": 1})
            assert answer["accepted"] == 0
            if answer["duplicate"]:
                await asyncio.sleep(0.01)
                return False
            return bool(answer["rejected"] == [{"index": 0, "code": "expired"}])

        await wait_until(expired, what="the token expires")
        assert (await api.learner("b"))["observations"] == 1
        event = await api.choose("b", event_id="e")

        async def decided_again() -> bool:
            return bool((await api.choose("b", event_id="e"))["decision"] != event["decision"])

        await wait_until(decided_again, what="the event is free again when its token has expired")


@pytest.mark.rest
async def test_tokens_outlive_the_service_but_not_its_store(store_url: str, tmp_path: Path):
    async with running(store_url, tmp_path / "1") as api:
        await api.catalogue("c", {"a": [1.0]})
        await api.bandit("b", "c")
        token = (await api.choose("b"))["decision"]
    async with running(store_url, tmp_path / "2", empty=False) as api:
        assert (await api.reward({"decision": token, "value": 1}))["accepted"] == 1
    async with running(store_url, tmp_path / "3", empty=True) as api:
        await api.catalogue("c", {"a": [1.0]})
        await api.bandit("b", "c")
        assert await codes(api, [token]) == {"invalid_token"}
