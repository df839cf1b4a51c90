"""Convert a store of 2.x for version 3: each key of 2.x becomes one with the prefix of version 3.

plan      what becomes of each bandit; it may refuse
convert   key by key, each in one visible step: existing keys are whole, and a second run goes on
delete    all keys of 2.x, those of the registry first: a process of 2.x finds no store from then on

A mark in the store has the progress. Before all of version 3 is there, nothing of 2.x is changed, except: its
processes refuse to start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shortlist_service.errors import Conflict, ShortlistError
from shortlist_upgrade.bandits import Bandit, left_by
from shortlist_upgrade.kinds import NEW, OLD, Convert, Key, Kind, Kinds, new_name
from shortlist_upgrade.quota_counts import is_counted, new_quotas, rule_of
from shortlist_upgrade.server import BATCH, Server, batches

MARGIN_MS = 86_400_000  # features are kept so much longer than decisions can be rewarded
TOGETHER = 10  # commands with a batch each: some megabytes
NO_PARTITIONS = "0"  # as many as no process of 2.x can be told to expect
_REGISTRY = b"{registry}:"
_PARTITIONS = _REGISTRY + b"partitions"
_MARK = NEW + _REGISTRY + b"upgrade"  # "convert" or "delete"
_UNDER_WAY = b"upgrading:"  # stands before the last part of the name of a key that is not whole
_OLDEST = "0.1 goes over 1.0 or 2.0: start that version on the store once, and stop it"

Say = Callable[[str], None]


def upgrade(server: Server, *, reads_only: bool, dropped: Collection[str], rewarded_s: int, say: Say) -> bool:
    """Convert the store. ``rewarded_s``: how long a decision can be rewarded. False where a check would stop.

    Raises Conflict (a loss of data, nothing to convert, or no place for it).
    """
    mark = server.ask("GET", _MARK)
    if mark != b"delete":
        if not _has_keys(server, OLD):
            _say_done(server, say)
            return True
        if mark is None and _has_keys(server, NEW):
            raise Conflict(
                "the store has keys of version 3 besides those of 2.x: a service of version 3 was started on "
                "it. Delete the keys shortlist3:* first, which have nothing of what 2.x stored"
            )
        bandits = _bandits(server, dropped)
        for bandit in bandits:
            say(f"{bandit.name}: {'; '.join((bandit.blocks, *bandit.notes)).strip('; ') or 'as it is'}")
        if reads_only:
            return not any(bandit.blocks for bandit in bandits)
        _refuse(bandits)
        server.ask("SET", _MARK, "convert")
        _close_to_2(server)
        _convert(server, {bandit.uid: bandit for bandit in bandits}, say)
        _note_left(server, bandits, 1_000 * rewarded_s + MARGIN_MS)
        server.ask("SET", _MARK, "delete")
    elif reads_only:
        say("all is converted; the keys of 2.x are not all deleted yet: run it again without --check")
        return True
    _delete(server)
    server.ask("DEL", _MARK)
    say("done: the store is one of version 3")
    return True


def _has_keys(server: Server, prefix: bytes) -> bool:
    return bool(server.ask("EXISTS", prefix + _PARTITIONS))


def _say_done(server: Server, say: Say) -> None:
    if not _has_keys(server, NEW):
        raise Conflict("there is no store of version 2: nothing was changed")
    say("the store is one of version 3 already: nothing was changed")


def _bandits(server: Server, dropped: Collection[str]) -> Sequence[Bandit]:
    """All bandits, by name. Raises Conflict."""
    if not server.ask("EXISTS", OLD + _REGISTRY + b"word:identity"):
        raise Conflict(f"the store is one of 0.1: {_OLDEST}")
    if next(server.scan(OLD.decode() + "{q:*}:held"), None):
        raise Conflict(
            "quotas of 1.0 hold what deferred decisions took: start 2.0 on the store once, and stop it"
        )
    stored = server.redis.hgetall(OLD + _REGISTRY + b"bandits")
    spaces = _carried(server)
    bandits = [Bandit.of(name.decode(), data, dropped, spaces) for name, data in sorted(stored.items())]
    bandits = [replace(bandit, blocks=bandit.blocks or _uncounted(server, bandit)) for bandit in bandits]
    needless = sorted(set(dropped) - {bandit.name for bandit in bandits if bandit.drops_learners})
    if needless:
        raise Conflict(
            f"--drop-learners: version 3 can read the learners of {', '.join(needless)}, or none is there"
        )
    return bandits


def _uncounted(server: Server, bandit: Bandit) -> str:
    """Why its quotas cannot be converted; "": they can."""
    stored = server.redis.hgetall(b"%s{q:%s}:quotas" % (OLD, bandit.uid.encode()))
    names = [quota.decode() for quota, record in sorted(stored.items()) if not is_counted(rule_of(record))]
    if not names:
        return ""
    return (
        f"its quotas {', '.join(names)} count the arms of a filter, and those of version 3 one arm, or those "
        "with one value of one field: give the arms a field that says what the filter does, and replace them"
    )


def _carried(server: Server) -> Sequence[Mapping[bytes, bytes]]:
    """The moves known to each partition."""
    partitions = int(server.ask("GET", NEW + _PARTITIONS) or server.ask("GET", OLD + _PARTITIONS))
    return [server.redis.hgetall(b"%s{p:%d}:spaces" % (OLD, partition)) for partition in range(partitions)]


def _close_to_2(server: Server) -> None:
    """Have processes of 2.x refuse to start: what one of them wrote now would not be converted any more."""
    old, new = OLD + _PARTITIONS, NEW + _PARTITIONS
    server.ask("COPY", old, new)  # done before, it does nothing
    server.ask("SET", old, NO_PARTITIONS)


def _refuse(bandits: Sequence[Bandit]) -> None:
    blocks = [f"{bandit.name}: {bandit.blocks}" for bandit in bandits if bandit.blocks]
    if blocks:
        raise Conflict("; ".join(blocks))


def _convert(server: Server, bandits: Mapping[str, Bandit], say: Say) -> None:
    kinds, done, gone = Kinds(bandits), 0, Counter[str]()
    for batch in server.scan(OLD.decode() + "*"):
        exists = server.ask_all([("EXISTS", new_name(key)) for key in batch])
        missing = [kinds.of(key) for key, is_there in zip(batch, exists, strict=True) if not is_there]
        copied = [key for key, kind in missing if kind.how == "copy"]
        server.ask_all([("COPY", key.name, new_name(key.name)) for key in copied])
        _convert_strings(server, [pair for pair in missing if pair[1].how == "string"])
        for key, kind in missing:
            if kind.how in _READERS:
                _write(server, key.name, kind)
            elif kind.how == "quotas":
                _write_quotas(server, key.name)
            elif kind.how == "skip" and kind.named:
                gone[f"{kind.named} of {key.bandit.name if key.bandit else 'a deleted bandit'}"] += 1
        done += len(batch)
    say(f"{done:,} keys converted")
    for what, count in sorted(gone.items()):
        say(f"deleted: {what} ({count:,} keys)")


def _note_left(server: Server, bandits: Sequence[Bandit], kept_ms: int) -> None:
    """Have features be kept of catalogues that bandits left, as long as their decisions can be rewarded."""
    seconds, _ = server.redis.time()
    needed = dict[str, int]()
    for bandit in bandits:
        for data in server.redis.hvals(OLD + _REGISTRY + b"moves:" + bandit.uid.encode()):
            uid, moved_ms = left_by(data)
            needed[uid] = max(needed.get(uid, 0), moved_ms + kept_ms)
    still_needed = {uid: until_ms for uid, until_ms in needed.items() if until_ms > 1_000 * seconds}
    server.ask_all(
        [("HSET", NEW + _REGISTRY + b"left", uid, until_ms) for uid, until_ms in still_needed.items()]
    )


def _convert_strings(server: Server, pairs: Sequence[tuple[Key, Kind]]) -> None:
    if not pairs:
        return
    values = server.ask_all([("GET", key.name) for key, _ in pairs])
    lives_ms = server.ask_all([("PTTL", key.name) for key, _ in pairs])
    commands = list[Sequence[Any]]()
    for (key, kind), value, left_ms in zip(pairs, values, lives_ms, strict=True):
        if value is None or left_ms == -2:  # it has ended meanwhile
            continue
        new = kind.convert(value)
        if new is not None:
            commands.append(("SET", new_name(key.name), new, *(("PX", left_ms) if left_ms > 0 else ())))
    server.ask_all(commands)


def _hash(server: Server, key: bytes, convert: Convert, target: bytes) -> Iterator[Sequence[Any]]:
    for pairs in batches(server.redis.hscan_iter(key, count=BATCH), BATCH):
        new = [converted for pair in pairs if (converted := convert(*pair)) is not None]
        if new:
            yield "HSET", target, *(part for pair in new for part in pair)


def _zset(server: Server, key: bytes, convert: Convert, target: bytes) -> Iterator[Sequence[Any]]:
    for pairs in batches(server.redis.zscan_iter(key, count=BATCH), BATCH):
        new = [(convert(member), repr(score)) for member, score in pairs]
        words = [word for member, score in new if member is not None for word in (score, member)]
        if words:
            yield "ZADD", target, *words


def _stream(server: Server, key: bytes, convert: Convert, target: bytes) -> Iterator[Sequence[Any]]:
    after = b"-"
    while batch := server.redis.xrange(key, after, "+", count=BATCH):
        for number, fields in batch:
            yield "XADD", target, number, *(part for pair in convert(fields).items() for part in pair)
        after = b"(" + batch[-1][0]


_READERS = {"hash": _hash, "zset": _zset, "stream": _stream}


def _write(server: Server, key: bytes, kind: Kind) -> None:
    """Write a key under another name, and rename it when whole."""
    new = new_name(key)
    tag, _, after_tag = new.partition(b"}:")
    partial = tag + b"}:" + _UNDER_WAY + after_tag
    server.ask("UNLINK", partial)
    for batch in batches(_READERS[kind.how](server, key, kind.convert, partial), TOGETHER):
        server.ask_all(batch)
    if server.ask("EXISTS", partial):
        left_ms = server.ask("PTTL", key)
        if left_ms > 0:
            server.ask("PEXPIRE", partial, left_ms)
        server.ask("RENAME", partial, new)


def _write_quotas(server: Server, key: bytes) -> None:
    """Write the quotas of a bandit, and last the key that says which there are."""
    stem = key.removesuffix(b"quotas")
    records = server.redis.hgetall(key)
    counts = {quota: server.redis.hgetall(stem + b"quota:" + quota) for quota in records}
    server.ask_all(new_quotas(new_name(stem), records, counts))
    server.ask("COPY", key, new_name(key))


def _delete(server: Server) -> None:
    """Delete all keys of 2.x. Raises ShortlistError, and deletes nothing, if version 3 has no registry."""
    if not _has_keys(server, NEW):
        raise ShortlistError("the keys of version 3 are gone: those of 2.x stay")
    server.ask_all(
        [("UNLINK", key) for batch in server.scan(f"{OLD.decode()}{_REGISTRY.decode()}*") for key in batch]
    )
    for batch in server.scan(OLD.decode() + "*"):
        server.ask_all([("UNLINK", key) for key in batch])
