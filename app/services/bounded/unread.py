"""What a process holds for readers that do not keep up."""

from __future__ import annotations

from typing import Protocol


class Reader(Protocol):
    """A connection whose client reads more slowly than it is answered."""

    def give_up(self, reason: str) -> None:
        """Close the connection at once, and let go of what its client has not read."""
        ...


class Unread:
    """Bytes that readers have not taken yet: at most ``most`` of all together, or those of one reader.

    Beyond that the reader that was not seen to read for the longest is given up, and then the next. Every
    operation takes constant time, for each reader that is given up.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[Reader, int] = {}  # the one that was not seen to read for the longest comes first
        self._bytes = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    def hold(self, reader: Reader, amount: int) -> None:
        """``reader``, which read something just now, has so many bytes left to read."""
        self.release(reader)
        self._held[reader] = amount
        self._bytes += amount
        while self._bytes > self._most and len(self._held) > 1:
            slowest = next(iter(self._held))
            self.release(slowest)
            slowest.give_up("answers that are not read take too much memory")

    def release(self, reader: Reader) -> None:
        """The reader has kept up, or is gone."""
        self._bytes -= self._held.pop(reader, 0)
