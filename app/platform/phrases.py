"""Numbers in sentences. The client, which imports nothing of the service, has its own."""

from __future__ import annotations


def counted(number: int, one: str, many: str) -> str:
    """A number and what it counts: "1 row is", "2,000 rows are"."""
    return f"{number:,} {one if number == 1 else many}"
