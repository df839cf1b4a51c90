"""A user of both clients. It is not run: mypy reads it, and fails where a type is not the precise one."""

from typing import assert_type

import numpy as np

from shortlist_client import AsyncClient, Client
from shortlist_client.answers import Arm, Bandit, Choice, Choices, ChosenArm, Receipt, Upserted


def sync(client: Client) -> None:
    assert_type(client.put_bandit("home", catalogue="films", policy="sub_ts"), Bandit)
    assert_type(client.upsert_arms("films", np.zeros((2, 3)), ids=["a", "b"]), Upserted)
    assert_type(client.upsert_arms("films", [{"id": "a", "features": [1.0], "tags": ["x"]}]), Upserted)
    choice = client.choose("home", key="u", k=2, once=True)
    assert_type(choice, Choice)
    assert_type(choice.arms[0], ChosenArm)
    assert_type(client.reward(choice.decision, value=1.0, arm=choice.arms[0].id), Receipt)
    for arm in client.arms("films"):
        assert_type(arm, Arm)
    client.patch_bandit("home", if_match='"1"', exploration="theory", temperature=None)
    client.choose("home", context={"device": "tv", "hour": 21.5})
    client.choose("home", context=np.zeros(3))
    assert_type(client.delete_catalogue("films"), None)
    assert_type(client.metrics(), str)


async def asynchronous(client: AsyncClient) -> None:
    assert_type(await client.put_bandit("home", catalogue="films", policy="sub_ts"), Bandit)
    choice = await client.choose("home", key="u", filter={"year": 1990})
    assert_type(choice, Choice)
    assert_type(await client.choose_batch("home", [{"key": "u"}, {"k": 3}]), Choices)
    assert_type(await client.reward(choice.decision), Receipt)
    async for arm in client.arms("films"):
        assert_type(arm, Arm)


def mistakes(client: Client) -> None:
    """Each of these is an error; mypy says so if one is none, for the ignore would be unused."""
    client.choose("home", kee="u")  # type: ignore[call-arg]
    client.choose("home", k="2")  # type: ignore[arg-type]
    client.put_bandit("home", catalogue="films")  # type: ignore[call-arg]
    client.put_bandit("home", catalogue="films", policy="best")  # type: ignore[arg-type]
    client.reward_batch([{"decision": "x"}])  # type: ignore[typeddict-item]
