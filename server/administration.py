"""`shortlist dead-letters` and `replay`, over the store of a running or a stopped service, and `copy`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from app.api.api_keys import new_key
from app.fold.replay import compare
from app.platform.errors import StartupError
from app.platform.settings import Settings
from app.storage.copying import copy
from app.storage.embedded.server import EmbeddedServer, answers
from app.storage.store import Store
from app.storage.types import UID_LENGTH
from shortlist_client.phrases import counted
from shortlist_client.progress import progress

SHOWN = 20


def make_key(name: str, scopes: Sequence[str], restrictions: Mapping[str, str]) -> None:
    """Print a new API key and what to configure for it. Raises StartupError."""
    key, entry = new_key(name, scopes, restrictions)
    print(f"key, for the client (shown this once): {key}")
    print(f"entry, for SHORTLIST_API_KEYS or its file: {entry}")
    if "visitors" in restrictions:
        print("the entry signs passes: keep it as secret as the key, in a file that only you can read")


def copy_to(settings: Settings, target: str) -> None:
    """Copy the whole store to the server at ``target``. Raises Conflict when that has one already."""
    if settings.redis_url is None and answers(settings.data_dir / "server.sock"):
        raise StartupError("stop the service first: a copy of a store that is written to is not whole")
    with _url(settings) as url:
        print(f"{counted(copy(url, target, watched=progress), 'key', 'keys')} copied")


async def dead_letters(settings: Settings, *, replay: bool) -> None:
    """Print every dead letter, or put them back into the log."""
    count = 0
    async with opened(settings) as store:
        bandits = await store.registry.read()
        names = {data[:UID_LENGTH].decode(): name for name, data in bandits.bandits.items()}
        for partition in range(store.partitions):
            letters = await store.rewards.dead_letters(partition)
            outcomes = await store.rewards.replay_dead(partition, letters) if replay else [""] * len(letters)
            count += len(letters)
            for letter, outcome in zip(letters, outcomes, strict=True):
                entry = letter.entry
                where = f"{names.get(entry.learner.bandit_uid, '(deleted bandit)')}/{entry.learner.name}"
                print(f"{partition:4} {entry.entry_id:22} {where}: {outcome or letter.reason}")
    print(f"{count} dead letter{'s' * (count != 1)}{' put back into the log' if replay and count else ''}")


async def check_replay(settings: Settings) -> int:
    """Compare every learner with a replay of the log, and print the result; status 1 when one differs."""
    async with opened(settings) as store:
        comparison = await compare(store)
    for name in comparison.different[:SHOWN]:
        print(f"differs: {name}")
    print(
        f"{counted(comparison.entries, 'entry', 'entries')} replayed: "
        f"{counted(comparison.equal, 'learner is', 'learners are')} equal bit for bit, "
        f"{counted(len(comparison.different), 'differs', 'differ')}, "
        f"{counted(comparison.older, 'is', 'are')} older than the log"
    )
    return 1 if comparison.different else 0


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Store]:
    with _url(settings) as url:
        store = Store(url, partitions=settings.partitions)
        try:
            await store.open()
            yield store
        finally:
            await store.close()


@contextlib.contextmanager
def _url(settings: Settings) -> Iterator[str]:
    """The store named, or that of the service running on the data directory, or one started for this."""
    if settings.redis_url is not None:
        yield settings.redis_url.get_secret_value()
        return
    if not settings.data_dir.is_dir():
        raise StartupError(f"there is no data directory {settings.data_dir}")
    path = settings.data_dir.absolute() / "server.sock"
    if answers(path):
        yield f"unix://{path}"
        return
    with EmbeddedServer(settings.data_dir) as server:
        yield server.url
