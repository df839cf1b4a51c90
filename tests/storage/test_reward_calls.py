"""How appends of several callers join calls of one script."""

import asyncio

import pytest
from redis.exceptions import ResponseError

from app.platform.errors import Unavailable
from app.storage.reward_calls import MOST_REWARDS, Append, RewardCalls

pytestmark = pytest.mark.anyio


class Wire:
    """In place of the client: each call waits in ``calls`` until the test answers it."""

    def __init__(self, *, is_cluster=False):
        self.is_cluster = is_cluster
        self.calls = []

    def refuse_in_vain(self):
        pass

    def translate(self, error):
        return Unavailable(f"translated: {error}")

    async def script(self, name, keys, arguments):
        reply = asyncio.get_running_loop().create_future()
        self.calls.append((list(keys), list(arguments), reply))
        return await reply

    def rewards(self, number):
        """The names of the rewards of a call."""
        return [key for key in self.calls[number][0] if not key.startswith("log-")]


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


def one(name):
    return Append(1, [name], [f"of {name}"])


def ask(calls, partition, append):
    return asyncio.ensure_future(calls.append(partition, [f"log-{partition}"], append))


async def test_appends_of_one_moment_are_one_call_of_all_partitions_and_each_gets_its_own():
    wire = Wire()
    calls = RewardCalls(wire)
    asked = [ask(calls, partition, one(name)) for name, partition in (("a", 0), ("b", 1), ("c", 0))]
    await turns()
    [(keys, arguments, reply)] = wire.calls
    assert keys == ["log-0", "a", "c", "log-1", "b"]
    assert arguments == [2, 3, 5, 2, "of a", "of c", 2, 4, 1, "of b"]
    reply.set_result([[b"1-1", b"1-2"], [b"1-7"]])
    assert [await answer for answer in asked] == [[b"1-1"], [b"1-7"], [b"1-2"]]


async def test_what_comes_while_a_call_is_under_way_leaves_together_after_it():
    wire = Wire()
    calls = RewardCalls(wire)
    first = ask(calls, 0, one("a"))
    await turns()
    later = [ask(calls, n % 3, one(f"b{n}")) for n in range(9)]
    await turns()
    assert len(wire.calls) == 1
    wire.calls[0][2].set_result([[b"1-1"]])
    await turns()
    assert await first == [b"1-1"]
    assert sorted(wire.rewards(1)) == [f"b{n}" for n in range(9)]
    wire.calls[1][2].set_result([[b"x", b"x", b"x"]] * 3)
    assert await asyncio.gather(*later) == [[b"x"]] * 9
    await turns()
    assert len(wire.calls) == 2


async def test_a_call_has_a_bounded_number_of_rewards_and_a_large_append_one_of_its_own():
    wire = Wire()
    calls = RewardCalls(wire)
    sizes = [MOST_REWARDS - 1, 1, 1, 4 * MOST_REWARDS, 1]
    asked = [ask(calls, 0, Append(size, [f"{n}"], [])) for n, size in enumerate(sizes)]
    for number, names in enumerate((["0", "1"], ["2"], ["3"], ["4"])):
        await turns()
        assert len(wire.calls) == number + 1
        assert wire.rewards(number) == names
        wire.calls[number][2].set_result([[b"x"] * sum(sizes[int(name)] for name in names)])
    assert [len(answers) for answers in await asyncio.gather(*asked)] == sizes


async def test_on_a_cluster_partitions_do_not_share_a_call_nor_wait_for_each_other():
    wire = Wire(is_cluster=True)
    calls = RewardCalls(wire)
    asked = [ask(calls, partition, one(name)) for name, partition in (("a", 0), ("b", 1), ("c", 0))]
    await turns()
    assert [wire.rewards(number) for number in range(2)] == [["a", "c"], ["b"]]
    wire.calls[1][2].set_result([[b"x"]])
    assert await asked[1] == [b"x"]
    wire.calls[0][2].set_result([[b"y", b"z"]])
    assert [await asked[0], await asked[2]] == [[b"y"], [b"z"]]


async def test_the_error_of_one_partition_is_not_that_of_the_others():
    wire = Wire()
    calls = RewardCalls(wire)
    asked = [ask(calls, partition, one(name)) for name, partition in (("a", 0), ("b", 1), ("c", 0))]
    await turns()
    wire.calls[0][2].set_result([ResponseError("WRONGTYPE"), [b"1-1"]])
    await turns()
    assert asked[1].result() == [b"1-1"]
    for answer in (asked[0], asked[2]):
        with pytest.raises(Unavailable, match="WRONGTYPE"):
            answer.result()


async def test_when_a_call_fails_all_that_wait_are_refused_and_the_next_is_sent():
    wire = Wire()
    calls = RewardCalls(wire)
    asked = [ask(calls, 0, one("a"))]
    await turns()
    asked += [ask(calls, 0, Append(MOST_REWARDS, [name], [])) for name in "bc"]
    await turns()
    wire.calls[0][2].set_exception(Unavailable("silent"))
    await turns()
    for answer in asked:
        with pytest.raises(Unavailable, match="silent"):
            answer.result()
    again = ask(calls, 0, one("a"))
    await turns()
    assert [wire.rewards(number) for number in range(2)] == [["a"], ["a"]]
    wire.calls[1][2].set_result([[b"x"]])
    assert await again == [b"x"]


async def test_a_caller_who_leaves_does_not_stop_what_others_have_joined():
    wire = Wire()
    calls = RewardCalls(wire)
    asked = [ask(calls, 0, one(name)) for name in "ab"]
    await turns()
    asked[0].cancel()
    await turns()
    wire.calls[0][2].set_result([[b"x", b"y"]])
    assert await asked[1] == [b"y"]
