"""The cache of the service: least recently used values, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class BoundedCache(Generic[K, T]):
    """Values by key. When they hold too many bytes together, the least recently used ones are dropped.

    The newest value stays whatever its size: what is in use is held anyway. A value is used by ``get`` and by
    ``put``. Every operation takes constant time, save ``clear`` and iteration. For one thread at a time:
    threads that share a cache need a lock of their own, mostly around more than one call.

    Iteration is over the keys, the least recently used first.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity = capacity_bytes
        self._held: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Sum of the sizes that were given."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def __iter__(self) -> Iterator[K]:
        return iter(self._held)

    def get(self, key: K) -> T | None:
        """The value, which counts as used; None if it is not held."""
        entry = self._held.get(key)
        if entry is None:
            return None
        self._held.move_to_end(key)
        return entry[0]

    def peek(self, key: K) -> T | None:
        """The value, which does not count as used; None if it is not held."""
        entry = self._held.get(key)
        return None if entry is None else entry[0]

    def put(self, key: K, value: T, size: int) -> None:
        """Hold a value in place of any other of this key. ``size`` is in bytes, and is the caller's to know:
        a value that grows is put again.
        """
        self.drop(key)
        self._held[key] = (value, size)
        self._bytes += size
        while self._bytes > self.capacity and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1][1]

    def drop(self, key: K) -> None:
        """Let go of a value, if it is held."""
        entry = self._held.pop(key, None)
        if entry is not None:
            self._bytes -= entry[1]

    def clear(self) -> None:
        self._held.clear()
        self._bytes = 0
