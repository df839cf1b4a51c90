"""The decision log as a file, streamed: lines of JSON, or Parquet (which needs the extra ``parquet``).

Rows are encoded in a thread, a portion at a time: other requests are answered meanwhile, and memory does not
grow with the number of rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import Literal, Protocol, get_args

import msgspec

from app.bandits.bandit import Bandit
from app.decision_log.reading import DecisionLog
from app.decision_log.rows import Row
from app.platform.errors import NotInstalled
from app.platform.long_work import Slots

FormatName = Literal["ndjson", "parquet"]
FORMATS: Sequence[FormatName] = get_args(FormatName)
AT_ONCE = 4
PORTION_ARMS = 4_000

_encode = msgspec.json.Encoder().encode
MEDIA_TYPES: Mapping[FormatName, str] = {
    "ndjson": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}


class RowEncoder(Protocol):
    """Makes a file of rows. What ``add`` and ``end`` return is the file, in pieces; some may be empty."""

    def add(self, rows: Sequence[Row]) -> bytes: ...

    def end(self) -> bytes: ...


class NdjsonEncoder:
    """One row as JSON a line."""

    def add(self, rows: Sequence[Row]) -> bytes:
        return b"".join([_encode(row) + b"\n" for row in rows])

    def end(self) -> bytes:
        return b""


def _encoder_of(bandit: Bandit, kind: FormatName) -> RowEncoder:
    """Raises NotInstalled."""
    if kind == "ndjson":
        return NdjsonEncoder()
    if find_spec("pyarrow") is None:
        message = "needs the extra parquet of the service: pip install -e '.[parquet]' in a checkout"
        raise NotInstalled(message, path=("format",))
    from app.measuring.parquet import ParquetEncoder, schema_of  # noqa: PLC0415 - an extra

    signals = bandit.record.signals
    aggregates = [bandit.record.reward.aggregate, *(rule.aggregate for rule in (signals or {}).values())]
    schema = schema_of(
        signals=signals is not None,
        revised="last" in aggregates,
        learned=bandit.record.prior == "learned",
        effects=bandit.record.arm_effects == "auto",
        places=bandit.record.learns_places,
        ages=bandit.record.arm_effects == "auto" and signals is None,
        agreement=bandit.record.holdout is not None and bandit.record.holdout.is_of_caller,
    )
    return ParquetEncoder(schema)


class Exports:
    """Exports of the logs of bandits, a few at a time."""

    def __init__(self, log: DecisionLog) -> None:
        self._log = log
        # None waits: an export takes as long as its client reads, so nobody knows when a place is free.
        self._places = Slots("exports", running=AT_ONCE, waiting=0)
        # One thread for all: Arrow's reserve of memory for each thread is several times a row group's.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="exports")

    def close(self) -> None:
        """Exports that are under way break off."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def stream(
        self, bandit: Bandit, kind: FormatName, *, from_ms: int | None, to_ms: int | None
    ) -> AsyncGenerator[bytes, None]:
        """The file of the decisions made at ``from_ms`` or later and before ``to_ms``, in pieces.

        A caller who stops before the end must close the generator. Cost: some ten microseconds a row, in a
        thread. Raises NotInstalled, Unavailable (too many exports at once, the store).
        """
        run = partial(asyncio.get_running_loop().run_in_executor, self._thread)
        async with self._places.one():
            encoder = await run(_encoder_of, bandit, kind)
            pages = self._log.pages(bandit, from_ms=from_ms, to_ms=to_ms)
            async for page in pages:
                for portion in portions(page):
                    if piece := await run(encoder.add, portion):
                        yield piece
            if piece := await run(encoder.end):
                yield piece


def portions(page: Sequence[Row], most_arms: int = PORTION_ARMS) -> Iterator[Sequence[Row]]:
    """The page in parts of at most ``most_arms`` arms, or of one row."""
    start, arms = 0, 0
    for position, row in enumerate(page):
        arms += len(row.arms)
        if arms > most_arms and position > start:
            yield page[start:position]
            start, arms = position, len(row.arms)
    if start < len(page):
        yield page[start:]
