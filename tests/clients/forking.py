"""What `test_client_forks` runs in a process of its own: `python forking.py SCENARIO WAY URL`; JSON."""

import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx

from shortlist_client import AsyncClient, AsyncRewardSender, Client, Retry, RewardSender
from shortlist_client.errors import RewardsUnsent

ONCE = Retry(attempts=1)
_, SCENARIO, WAY, URL = sys.argv
# Made at import: in a child that was not forked it is made once more.
CLIENT = Client(URL, retry=ONCE, timeout_s=20.0)
SENDER = RewardSender(CLIENT, every_s=0.01)


def in_children(work: Callable[[int], Any], count: int = 2) -> list[Any]:
    """What ``work`` returns in each of some children, that run side by side."""
    if WAY != "os.fork":
        with multiprocessing.get_context(WAY).Pool(count, maxtasksperchild=1) as pool:
            return pool.map(work, range(count), chunksize=1)
    readers = []
    for number in range(count):
        reader, writer = os.pipe()
        if os.fork() == 0:
            with os.fdopen(writer, "w") as file:
                json.dump(work(number), file)
            os._exit(0)
        os.close(writer)
        readers.append(os.fdopen(reader))
    found = [json.load(reader) for reader in readers]
    for _ in readers:
        os.wait()
    return found


def choices_of(key: object) -> list[str]:
    return [CLIENT.choose("b", key=f"{key}", once=False).arms[0].id for _ in range(20)]


def choose() -> Any:
    return [choices_of("parent"), *in_children(choices_of), choices_of("parent")]


def sent_by(number: int) -> list[int]:
    SENDER.flush()  # of nothing: what the parent added is the parent's
    for place in range(3):
        SENDER.add(f"child {number} {place}")
    SENDER.flush(20.0)
    return [SENDER.state.accepted, len(SENDER.state)]


def reward() -> Any:
    """Also while the parent's thread holds the lock of the parent's sender."""
    SENDER.add("parent 0")
    with SENDER._changed:  # private: the moment at which a fork would block a child
        found = in_children(sent_by)
    SENDER.close()
    return [*found, SENDER.state.accepted]


async def awaited(sender: AsyncRewardSender, client: AsyncClient, number: int) -> list[Any]:
    chosen = [(await client.choose("b", key=f"{number}", once=False)).arms[0].id for _ in range(20)]
    for place in range(3):
        await sender.add(f"child {number} {place}")
    await sender.flush(20.0)
    return [chosen, sender.state.accepted, len(sender.state)]


async def of_tasks() -> Any:
    """A child of a process whose loop runs has a loop of its own."""
    client = AsyncClient(URL, retry=ONCE, timeout_s=20.0)
    sender = AsyncRewardSender(client, every_s=3_600)
    await client.choose("b", key="parent", once=False)
    await sender.add("parent 0")

    def work(number: int) -> Any:
        asyncio._set_running_loop(None)  # private: who forks in a task has to
        return asyncio.run(awaited(sender, client, number))

    found = in_children(work)
    await sender.close()
    await client.close()
    return [*found, sender.state.accepted]


def two_loops() -> Any:
    """What is left of a loop that has ended is sent by the next."""
    transport = httpx.MockTransport(
        lambda _: httpx.Response(202, json={"accepted": 2, "duplicate": 0, "rejected": []})
    )
    sender = AsyncRewardSender(AsyncClient(http=httpx.AsyncClient(transport=transport)), every_s=3_600)
    asyncio.run(sender.add("first"))

    async def more() -> None:
        await sender.add("second")
        await sender.flush(20.0)

    asyncio.run(more())
    return [sender.state.accepted, len(sender.state)]


def given() -> Any:
    """A client of httpx that was given: refused in a child once it was used, and only then."""
    found = []
    for is_used in (False, True):
        client = Client(URL, retry=ONCE, http=httpx.Client(timeout=20.0))
        if is_used:
            client.choose("b", key="parent", once=False)

        def work(number: int, client: Client = client) -> str:
            try:
                return client.choose("b", key=f"{number}", once=False).arms[0].id
            except ValueError as error:
                return str(error)

        found.append(in_children(work))
    return found


def silent() -> Any:
    """A service that takes a request and never answers: flush and close end, and name what is left."""
    found: list[Any] = []
    SENDER.add("t0")
    began = time.monotonic()
    for end in (SENDER.flush, SENDER.close):
        try:
            end(0.1)
        except RewardsUnsent as error:
            found.append([str(error), [item["decision"] for item in error.unsent]])
    return [*found, time.monotonic() - began < 15.0]


if __name__ == "__main__":
    scenario = {"choose": choose, "reward": reward, "given": given, "silent": silent, "loops": two_loops}
    result = asyncio.run(of_tasks()) if SCENARIO == "tasks" else scenario[SCENARIO]()
    print(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # the thread may still wait for a service that is silent
