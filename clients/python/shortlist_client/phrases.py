"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, one: str, many: str) -> str:
    """A number and what it counts: "1 row is", "2,000 rows are"."""
    return f"{number:,} {one if number == 1 else many}"
