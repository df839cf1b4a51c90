"""What a sender does with a service that takes rewards, or not: none is lost, no error is silent."""

import json
from collections.abc import Callable

import httpx
import pytest

from shortlist_client import AsyncClient, AsyncRewardSender, Client, Retry, RewardSender
from shortlist_client.bodies import RewardItem
from shortlist_client.errors import ConnectionFailed, InvalidArgument, RewardsUnsent
from waiting import wait_until_sync

AT_ONCE = Retry(attempts=1)


class Flaky:
    """A service that takes rewards, or not: as ``answer`` says."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.most = 0  # of a request
        self.answer: Callable[[list[RewardItem]], httpx.Response] = self.take

    def __call__(self, request: httpx.Request) -> httpx.Response:
        rewards = json.loads(request.content)["rewards"]
        self.most = max(self.most, len(rewards))
        return self.answer(rewards)

    def take(self, rewards: list[RewardItem]) -> httpx.Response:
        self.taken += [reward["decision"] for reward in rewards]
        return httpx.Response(202, json={"accepted": len(rewards), "duplicate": 0, "rejected": []})

    def down(self, rewards: list[RewardItem]) -> httpx.Response:
        raise httpx.ConnectError("refused")

    def picky(self, rewards: list[RewardItem]) -> httpx.Response:
        """Values must not be negative; rewards of t2 are rejected."""
        bad = [place for place, reward in enumerate(rewards) if reward["value"] < 0]
        if bad:
            errors = [{"loc": ["body", "rewards", place, "value"], "message": "negative"} for place in bad]
            problem = {"code": "invalid", "detail": "no", "errors": errors}
            return httpx.Response(422, json=problem)
        rejected = [i for i, reward in enumerate(rewards) if reward["decision"] == "t2"]
        self.take([reward for reward in rewards if reward["decision"] != "t2"])
        answer = {
            "accepted": len(rewards) - len(rejected),
            "duplicate": 0,
            "rejected": [{"index": index, "code": "expired_token"} for index in rejected],
        }
        return httpx.Response(202, json=answer)


@pytest.fixture
def flaky() -> Flaky:
    return Flaky()


@pytest.fixture
def client(flaky: Flaky) -> Client:
    return Client(retry=AT_ONCE, http=httpx.Client(transport=httpx.MockTransport(flaky)))


@pytest.fixture
def task_client(flaky: Flaky) -> AsyncClient:
    return AsyncClient(retry=AT_ONCE, http=httpx.AsyncClient(transport=httpx.MockTransport(flaky)))


def test_rewards_that_were_not_sent_are_named(flaky: Flaky, client: Client):
    flaky.answer = flaky.down
    sender = RewardSender(client, batch=2)
    for number in range(5):
        sender.add(f"t{number}")
    with pytest.raises(RewardsUnsent, match="5 rewards are not sent") as failed:
        sender.close()
    assert [reward["decision"] for reward in failed.value.unsent] == [f"t{number}" for number in range(5)]
    assert isinstance(failed.value.__cause__, ConnectionFailed)
    with pytest.raises(InvalidArgument, match="closed"):
        sender.add("t5")


def test_a_service_that_comes_back_gets_all(flaky: Flaky, client: Client):
    flaky.answer = flaky.down
    with RewardSender(client, batch=2, every_s=60) as sender:
        for number in range(5):
            sender.add(f"t{number}")
        with pytest.raises(RewardsUnsent):
            sender.flush()
        flaky.answer = flaky.take
    assert flaky.taken == [f"t{number}" for number in range(5)]
    assert flaky.most == 2


@pytest.mark.timeout(60)
def test_a_flush_sends_the_last_batch_too_though_it_is_not_full(flaky: Flaky, client: Client):
    """Without waiting for others: nobody may add any more before it returns."""

    def when_flushed(rewards: list[RewardItem]) -> httpx.Response:
        wait_until_sync(lambda: sender.state.hurry, what="the flush has begun")
        return flaky.take(rewards)

    flaky.answer = when_flushed
    with RewardSender(client, batch=2, every_s=3_600) as sender:
        for number in range(3):
            sender.add(f"t{number}")
        sender.flush()
        assert flaky.taken == ["t0", "t1", "t2"]


def test_a_full_buffer_takes_no_more(flaky: Flaky, client: Client):
    flaky.answer = flaky.down
    with RewardSender(client, batch=2, buffer=4, every_s=60) as sender:
        for number in range(4):
            sender.add(f"t{number}")
        with pytest.raises(RewardsUnsent):
            sender.add("one too many")
        flaky.answer = flaky.take
    assert flaky.taken == ["t0", "t1", "t2", "t3"]


def test_rejected_rewards_are_named_and_hold_up_no_other(flaky: Flaky, client: Client):
    flaky.answer = flaky.picky
    sender = RewardSender(client, batch=10, every_s=60)
    for number, value in enumerate([1.0, -1.0, 1.0, -2.0, 1.0]):
        sender.add(f"t{number}", value)
    with pytest.raises(RewardsUnsent, match="3 rewards were rejected") as failed:
        sender.close()
    codes = {reward["decision"]: code for reward, code in failed.value.rejected}
    assert codes == {"t1": "invalid", "t2": "expired_token", "t3": "invalid"}
    assert failed.value.unsent == ()
    assert flaky.taken == ["t0", "t4"]


def test_rejected_rewards_go_to_who_asks_for_them(flaky: Flaky, client: Client):
    flaky.answer = flaky.picky
    seen: list[tuple[str, str]] = []
    with RewardSender(client, on_rejected=lambda item, code: seen.append((item["decision"], code))) as sender:
        sender.add("t1", -1.0)
        sender.add("t2")
        sender.add("t3")
    assert seen == [("t1", "invalid"), ("t2", "expired_token")]
    assert flaky.taken == ["t3"]


@pytest.mark.anyio
async def test_a_task_loses_nothing_either(flaky: Flaky, task_client: AsyncClient):
    flaky.answer = flaky.down
    async with AsyncRewardSender(task_client, batch=2, buffer=4, every_s=60) as sender:
        for number in range(4):
            await sender.add(f"t{number}")
        with pytest.raises(RewardsUnsent):
            await sender.add("one too many")
        with pytest.raises(RewardsUnsent):
            await sender.flush()
        flaky.answer = flaky.take
    assert flaky.taken == ["t0", "t1", "t2", "t3"]


@pytest.mark.anyio
async def test_a_sender_that_was_not_entered_sends_too(flaky: Flaky, task_client: AsyncClient):
    sender = AsyncRewardSender(task_client)
    await sender.add("t0")
    await sender.close()
    assert flaky.taken == ["t0"]


@pytest.mark.anyio
async def test_what_a_task_could_not_send_is_named(flaky: Flaky, task_client: AsyncClient):
    flaky.answer = flaky.down
    with pytest.raises(RewardsUnsent) as failed:
        async with AsyncRewardSender(task_client) as sender:
            await sender.add("t0")
    assert [reward["decision"] for reward in failed.value.unsent] == ["t0"]


@pytest.mark.timeout(60)
def test_a_buffer_full_of_rejected_rewards_takes_no_more_and_says_so(flaky: Flaky, client: Client):
    """Nothing makes room in it: to wait would be to wait for ever."""
    flaky.answer = flaky.picky
    sender = RewardSender(client, batch=2, buffer=2, every_s=60)
    sender.add("t1", -1.0)
    sender.add("t2")
    with pytest.raises(RewardsUnsent, match="2 rewards were rejected"):
        sender.add("one too many")
    sender.add("t3")  # they were named, so there is room again
    sender.close()
    assert flaky.taken == ["t3"]


@pytest.mark.anyio
@pytest.mark.timeout(60)
async def test_a_task_does_not_wait_for_room_among_rejected_rewards(flaky: Flaky, task_client: AsyncClient):
    flaky.answer = flaky.picky
    async with AsyncRewardSender(task_client, batch=2, buffer=2, every_s=60) as sender:
        await sender.add("t1", -1.0)
        await sender.add("t2")
        with pytest.raises(RewardsUnsent, match="2 rewards were rejected"):
            await sender.add("one too many")
