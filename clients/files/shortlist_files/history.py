"""History out of tables into a bandit: who had which item, what came of it, and when. With a column of events
the rows are rewards of the choices that were made for these.

The id of an observation comes from its row, so that a repeated import counts once. Rows that are equal in
key, arm, value and time are one observation; where there is no time, the first, second, ... of equal rows in
all files of a command, also in the parts of a folder, are different ones.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from shortlist_client.answers import Bandit, Prior, Receipt
from shortlist_client.client import Client
from shortlist_client.errors import Forbidden, Unavailable
from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_files.arm_rows import BadRow, FileError, note_fault, wrong
from shortlist_files.bad_rows import BadRows
from shortlist_files.cells import PLAIN, Column, plain
from shortlist_files.table_arms import identifier_of
from shortlist_files.tables import listed, open_tables, shown
from shortlist_files.versions import check_version

T = TypeVar("T")
BATCH = 5_000
# Of every 16 rows these are sent together, where arms have effects: what an arm is taught is what a key's
# learner, and a prior, did not expect. So both are brought up to now in between, ever less often.
PARTS = (range(1), range(1, 2), range(2, 4), range(4, 8), range(8, 16))
WHOLE = (range(16),)
MAX_VALUE = 1e9  # as of a call
FIRST_MS, AHEAD_MS = 10**11, 60_000  # what the service takes
S_BELOW, US_FROM = 10**11, 10**14  # of times since 1970: as ms they would be of 1973, and of 5138
A_TIME = "must be a time, such as 2026-01-31 18:30, or a number of seconds since 1970"
MOST_WAIT_S, MOST_WAIT_BETWEEN_S = 60.0, 10.0  # until rewards are applied: at the end, and between parts
POLL_S, TOLD_S = 0.1, 1.0
SHOWN_ROWS = 3
MOST_REMEMBERED = 1_000_000  # different cells of a column


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """Which columns are what. ``key`` is needed by a bandit of scope per_key, ``at`` is when it was.

    ``value`` None: every row counts as 1. ``event``: what a choice was made for; then ``arm`` None means the
    first arm of the choice.
    """

    arm: str | None
    value: str | None
    key: str | None = None
    at: str | None = None
    encoding: str | None = None
    dry_run: bool = False
    skip_bad: int = 0
    event: str | None = None

    @property
    def columns(self) -> list[str]:
        """Those that are read."""
        names = (self.event, self.key, self.arm, self.value, self.at)
        return [name for name in names if name is not None]

    def without_times(self) -> HistoryOptions:
        return replace(self, at=None)


@dataclass(slots=True)
class Observed:
    """Rows that follow each other, and what is wrong with the others.

    ``rows``: event, key, arm, value, and ms since 1970; "" or 0 where there is no such column, a value of 1.
    ``items``: the same as they are sent, of ``batches`` alone.
    """

    path: Path
    numbers: list[int] = field(default_factory=list)
    rows: list[tuple[str, str, str, float, int]] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    items: list[dict[str, Any]] = field(default_factory=list)


def import_history(client: Client, bandit: str, files: Sequence[Path], options: HistoryOptions) -> list[str]:
    """Teach the rows of tables; lines that say what was done. Raises FileError, ShortlistError."""
    check_version(client)
    found = client.get_bandit(bandit)
    _check_bandit(found, options)
    history, count = History(files, options), 0
    bad = BadRows(options.skip_bad, history.rows_total)
    with meter("checked", history.rows_total, "rows") as advance, closing(history.observed()) as all_rows:
        for observed in all_rows:
            bad.note(observed.path, observed.bad)
            count += len(observed.rows)
            advance(len(observed.rows) + len(observed.bad))
    if bad.refusal is not None:
        raise bad.refusal
    if not count:
        raise FileError(f"{files[0]}: there are no rows in it")
    if options.dry_run:
        items = (json.dumps(item, ensure_ascii=False) for batch in history.batches() for item in batch.items)
        right = f"dry run: {counted(count, 'row is', 'rows are')} right, nothing was sent"
        return [*history.notes, *bad.lines(), *islice(items, SHOWN_ROWS), right]
    bad.write()
    if options.event is not None:
        return [*history.notes, *bad.lines(), *_send(client, bandit, history, count, WHOLE)]
    with_effects = getattr(found, "arm_effects", "off") == "auto"  # an older service has none
    lines = [*history.notes, *bad.lines()]
    lines += _send(client, bandit, history, count, PARTS if with_effects else WHOLE)
    return [*lines, *(_refresh(client, bandit, with_effects) if found.prior == "learned" else ())]


def _check_bandit(bandit: Bandit, options: HistoryOptions) -> None:
    per_key = bandit.scope == "per_key"
    if per_key and options.key is None:
        raise FileError(f"--key-column: the bandit {bandit.id} learns for each key: name the column of keys")
    if not per_key and options.key is not None:
        raise FileError(f"--key-column: the bandit {bandit.id} is of scope global and takes no keys")
    by_event = options.event is not None
    for name in ("signals",) if by_event else ("context", "signals"):
        if getattr(bandit, name, None):
            call = "rewards, POST /v1/rewards"
            if not by_event:
                call = f"observations, POST /v1/bandits/{bandit.id}/observations"
            raise FileError(
                f"--history: the bandit {bandit.id} has {name}, which a table has no columns for: send {call}"
            )


def _send(client: Client, bandit: str, history: History, count: int, parts: Sequence[range]) -> Iterator[str]:
    accepted = duplicate = 0
    rejected, first = Counter[str](), dict[str, tuple[int, str]]()
    with meter("sent", count, "rows") as advance:
        for part in parts:
            start = 0
            for batch in history.batches():
                own = [n for n in range(len(batch.items)) if (start + n) % 16 in part]
                start += len(batch.items)
                if not own:
                    continue
                receipt = history.send(client, bandit, [batch.items[n] for n in own])
                accepted += receipt.accepted
                duplicate += receipt.duplicate
                for each in receipt.rejected:
                    rejected[each.code] += 1
                    place = own[each.index]
                    row = start + place, f"{batch.path.name}: row {batch.numbers[place]:,}"
                    first[each.code] = min(row, first.get(each.code, row))
                advance(len(own))
            if part is not parts[-1]:
                _fit(client, bandit, MOST_WAIT_BETWEEN_S)
    yield f"{counted(count, 'row', 'rows')}: {accepted:,} counted, {counted(duplicate, 'was', 'were')} known"
    if duplicate and not (history.has_times or history.is_of_events):
        yield "without --at-column a row that equals one of an earlier import is that one"
    for code, times in rejected.items():
        were = counted(times, "row was", "rows were")
        yield f"{were} refused as {code}, the first of them {first[code][1]}"


def await_applied(client: Client, most_s: float) -> None:
    """Return once all rewards that were sent by now are applied, or after ``most_s``.

    Those of others go on coming: so it waits until the oldest one that waits is younger than this call.
    """
    started, is_told = time.monotonic(), False
    while (waited_s := time.monotonic() - started) < most_s:
        try:
            state = client.ready()
        except Unavailable:  # more wait than the service is ready with
            waiting = "rewards"
        else:
            if not state.backlog or state.lag_s < waited_s:
                return
            waiting = counted(state.backlog, "reward", "rewards")
        if waited_s >= TOLD_S and not is_told:
            is_told = True
            line = f"waits until {waiting} are applied, for at most {most_s:.0f} s"
            print(line, file=sys.stderr, flush=True)
        time.sleep(POLL_S)


def _fit(client: Client, bandit: str, most_s: float) -> Prior | None:
    """Fit prior and effects of arms once all rewards are applied; None: the key may not."""
    await_applied(client, most_s)
    try:
        return client.refresh_prior(bandit)
    except Forbidden:
        return None


def _refresh(client: Client, bandit: str, with_effects: bool) -> Iterator[str]:
    """Fit at the end, so that new users are served by all of it."""
    prior = _fit(client, bandit, MOST_WAIT_S)
    if prior is None:
        yield "the prior will be fitted within a minute: at once by an import with a key of scope admin"
    elif not prior.version:
        yield "there is no prior yet: it needs rewards of five keys"
    else:
        yield f"the prior was fitted to {prior.observations:,.0f} rewards of {prior.keys:,} keys"
        if with_effects:
            effects = client.list_arm_effects(bandit, limit=1)
            found = f"arms have effects of {effects.spread:.2g} beyond their features"
            yield found if effects.version else "no effects of arms beyond their features were found"


class History:
    """The observations of some tables. Raises FileError: a file cannot be read, or lacks a column."""

    def __init__(self, files: Sequence[Path], options: HistoryOptions) -> None:
        self._options = options
        name = options.arm or options.event or ""
        opened = [open_tables(path, id_column=name, encoding=options.encoding) for path in files]
        self._tables = [table for some in opened for table in some]
        for table in self._tables:
            for name in options.columns:
                if name not in table.names:
                    wrong(table.path, None, None, f"has no column {shown(name)}, of {listed(table)}")
        self.notes = [f"{table.path.name} {table.note}" for table in self._tables if table.note]
        of_texts = all(table.is_text for table in self._tables)
        semicolons = any(table.delimiter == ";" for table in self._tables)
        columns = {
            name: Column(name, of_texts=of_texts, semicolons=semicolons)
            for name in (options.value, options.at)
            if name is not None
        }
        self.rows_total = 0
        for table in self._tables:
            for rows in table.rows(options.columns):
                for name, column in columns.items():
                    column.see(rows.cells[name])
                self.rows_total += len(rows) + len(rows.bad)
        for column in columns.values():
            column.settle()
        if options.value is not None:
            columns[options.value].expect_numbers()
        self.notes += [note for column in columns.values() for note in column.notes]
        latest_ms = time.time_ns() // 1_000_000 + AHEAD_MS
        value, at = columns.get(options.value or ""), columns.get(options.at or "")
        # The names of an observation, the columns that they come from, and what they are without one.
        self._parts: list[tuple[str, str | None, Callable[[Any], Any], Any]] = [
            ("event_id", options.event, _remembering(identifier_of), ""),
            ("key", options.key, _remembering(identifier_of), ""),
            ("arm", options.arm, _remembering(identifier_of), ""),
            ("value", options.value, _remembering(partial(_value_of, value)), 1.0),
            ("at", options.at, _remembering(partial(_time_of, at, latest_ms)), 0),
        ]

    @property
    def has_times(self) -> bool:
        """Whether rows say when they were."""
        return self._options.at is not None

    @property
    def is_of_events(self) -> bool:
        """Whether rows are rewards of choices that were made for events, and no observations."""
        return self._options.event is not None

    def send(self, client: Client, bandit: str, items: Sequence[Any]) -> Receipt:
        """Have a bandit learn from some rows."""
        if not self.is_of_events:
            return client.observe(bandit, items)
        rewards: list[Any] = [{"bandit": bandit, **item} for item in items]
        return client.reward_batch(rewards)

    def observed(self) -> Generator[Observed, None, None]:
        """The rows of each table, some thousand at a time."""
        for table in self._tables:
            for rows in table.rows(self._options.columns, BATCH):
                faults, columns = dict[int, BadRow](), list[Sequence[Any]]()
                for _, name, parse, absent in self._parts:
                    if name is None:
                        columns.append([absent] * len(rows))
                        continue
                    parsed = list[Any]()
                    for place, cell in enumerate(rows.cells[name]):
                        try:
                            parsed.append(parse(cell))
                        except ValueError as error:
                            parsed.append(absent)
                            note_fault(faults, place, rows.fault(place, name, str(error), cell))
                    columns.append(parsed)
                good = [place for place in range(len(rows)) if place not in faults]
                found = list(zip(*columns, strict=True))
                bad = sorted([*rows.bad, *faults.values()], key=lambda each: each.row)
                numbers = [rows.numbers[place] for place in good]
                yield Observed(table.path, numbers, [found[place] for place in good], bad)

    def batches(self) -> Iterator[Observed]:
        """The rows again, as they are sent."""
        equal, id_name = Counter[bytes](), "reward_id" if self.is_of_events else "id"
        names = [name if column or name == "value" else "" for name, column, _, _ in self._parts]
        for observed in self.observed():
            for row in observed.rows:
                item = {name: value for name, value in zip(names, row, strict=True) if name}
                content = json.dumps(item, sort_keys=True)
                if not self.has_times:
                    digest = _digest(content)
                    equal[digest] += 1
                    content += f"#{equal[digest]}"
                observed.items.append({id_name: f"r{urlsafe_b64encode(_digest(content)).decode()}", **item})
            yield observed


def _remembering(parse: Callable[[Any], T]) -> Callable[[Any], T]:
    """``parse``, which remembers what it made of the first cells that are different: ids come many times."""
    known = dict[Hashable, T]()

    def remembered(cell: Any) -> T:
        try:
            return known[cell]
        except KeyError:
            result = parse(cell)
            if len(known) < MOST_REMEMBERED and cell == cell:  # noqa: PLR0124 - not NaN
                known[cell] = result
            return result
        except TypeError:  # a list, which is wrong anyway
            return parse(cell)

    return remembered


def _digest(content: str) -> bytes:
    return blake2b(content.encode(), digest_size=15).digest()


def _value_of(column: Column | None, cell: Any) -> float:
    value = None if column is None else plain(column.value(cell))
    if value is None:
        raise ValueError("is missing")
    if not isinstance(value, int | float):
        raise ValueError("must be a number, or true or false")  # noqa: TRY004 - as all that is wrong with a cell
    if abs(value) > MAX_VALUE:
        raise ValueError(f"must be at most {MAX_VALUE:.0f} in magnitude")
    return float(value)


def _time_of(column: Column | None, latest_ms: int, cell: Any) -> int:
    """When a row was, ms since 1970. Raises ValueError."""
    if isinstance(cell, dt.datetime | dt.date) and cell == cell:  # noqa: PLR0124 - pandas' NaT
        at_ms = _ms(cell)
    else:
        value = None if column is None else column.value(cell)
        if value is None:
            raise ValueError("is missing")
        at_ms = ms_of(value)
    if not FIRST_MS <= at_ms <= latest_ms:
        raise ValueError("is in the future" if at_ms > latest_ms else "is before March 1973")
    return at_ms


def ms_of(value: Any) -> int:
    """A time as a text of ISO 8601, or a number since 1970, whose size tells its unit. Raises ValueError."""
    if isinstance(value, str) and PLAIN.fullmatch(value):  # nanoseconds have more digits than numbers keep
        value = int(value) if value.isdecimal() else float(value)
    if isinstance(value, str):
        try:
            return _ms(dt.datetime.fromisoformat(value))
        except ValueError:
            raise ValueError(A_TIME) from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(A_TIME)  # noqa: TRY004 - as all that is wrong with a cell
    if value < S_BELOW:
        return round(1_000 * value)
    at = round(value)
    for _ in range(2):  # us, ns; what is larger still is of no year
        if at >= US_FROM:
            at //= 1_000
    return at


def _ms(value: dt.datetime | dt.date) -> int:
    """What has no offset is UTC."""
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return round(1_000 * value.timestamp())
