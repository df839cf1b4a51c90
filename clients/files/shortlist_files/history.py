"""History out of tables into a bandit: who had which item, what came of it, and when. With a column of events
the rows are rewards of the choices that were made for these.

The id of an observation comes from its row, so that a repeated import counts once. Rows that are equal in
key, arm, value and time are one observation; where there is no time, the first, second, ... of equal rows in
all files of a command, also in the parts of a folder, are different ones.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
import sys
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from shortlist_client.answers import Bandit, Prior, Receipt
from shortlist_client.client import Client
from shortlist_client.errors import Forbidden, Unavailable
from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_files.arm_rows import FileError, wrong
from shortlist_files.cells import PLAIN, Column, kind_of, plain
from shortlist_files.table_arms import identifier_of, listed, shown
from shortlist_files.table_importing import SHOWN_ARMS, BadRows
from shortlist_files.tables import BadRow, Rows, note_fault, open_tables
from shortlist_files.versions import check_version

BATCH = 5_000
# Of every 16 rows these are sent together, where arms have effects: what an arm is taught is what a key's
# learner, and a prior, did not expect. So both are brought up to now in between, ever less often.
PARTS = (range(1), range(1, 2), range(2, 4), range(4, 8), range(8, 16))
WHOLE = (range(16),)
WITH_BEHAVIOUR = ("shortlist", "embed")  # the command that makes features of a history
MAX_VALUE = 1e9  # as of a call
FIRST_MS, AHEAD_MS = 10**11, 60_000  # what the service takes
S_BELOW, US_FROM = 10**11, 10**14  # of times since 1970: as ms they would be of 1973, and of 5138
A_TIME = "must be a time, such as 2026-01-31 18:30, or a number of seconds since 1970"
MOST_WAIT_S, MOST_WAIT_BETWEEN_S = 60.0, 10.0  # until rewards are applied: at the end, and between parts
POLL_S, TOLD_S = 0.1, 1.0
HISTORY_SHARE = 0.95  # of what the store may take: beyond, observations are refused
ID_BYTES = 165  # of an id in the store, beside its name and an eighth
NAME_BYTES = 30


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


@dataclass(slots=True)
class Observed:
    """Observations of rows that follow each other, and what is wrong with the others."""

    path: Path
    numbers: list[int] = field(default_factory=list)
    items: list[dict[str, Any]] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)


def import_history(client: Client, bandit: str, files: Sequence[Path], options: HistoryOptions) -> list[str]:
    """Teach the rows of tables; lines that say what was done. Raises FileError, ShortlistError."""
    check_version(client)
    found = client.get_bandit(bandit)
    _check_bandit(found, options)
    history = History(files, options)
    bad, count, id_bytes = BadRows(options.skip_bad), 0, 0
    with meter("checked", history.rows_total, "rows") as advance, closing(history.batches()) as batches:
        for batch in batches:
            bad.note(batch.path, batch.bad)
            count += len(batch.items)
            if options.event is None:
                names = sum(len(item["id"]) + len(item.get("key", "")) + NAME_BYTES for item in batch.items)
                id_bytes += ID_BYTES * len(batch.items) + names * 9 // 8
            advance(len(batch.items) + len(batch.bad))
    if bad.refusal is not None:
        raise bad.refusal
    lines = [*history.notes]
    if not count:
        raise FileError(f"{files[0]}: there are no rows in it")
    if options.dry_run:
        items = (item for batch in history.batches() for item in batch.items)
        shown_items = [json.dumps(item, ensure_ascii=False) for item in islice(items, SHOWN_ARMS)]
        return [
            *lines,
            *bad.lines(),
            *shown_items,
            f"dry run: {counted(count, 'row is', 'rows are')} right, nothing was sent",
        ]
    bad.write()
    if options.event is not None:
        return [*lines, *bad.lines(), *_send(client, bandit, history, count, WHOLE)]
    for line in _warned(client, id_bytes):
        print(line, file=sys.stderr, flush=True)
    with_effects = getattr(found, "arm_effects", "off") == "auto"  # an older service has none
    lines += [*bad.lines(), *_send(client, bandit, history, count, PARTS if with_effects else WHOLE)]
    lines += _refresh(client, bandit, with_effects) if found.prior == "learned" else ()
    return [*lines, *_advice(client, found, files, options)]


def _advice(client: Client, bandit: Bandit, files: Sequence[Path], options: HistoryOptions) -> Iterator[str]:
    """How a history is worth more than with features that come from columns of a table alone."""
    try:
        catalogue = client.get_catalogue(bandit.catalogue)
    except Forbidden:
        return
    if (
        options.key is None
        or catalogue.behaviour is not None
        or not (catalogue.features and catalogue.features.fields)
    ):
        return
    columns = {"key": options.key, "arm": options.arm, "value": options.value}
    named = [word for name, column in columns.items() if column for word in (f"--{name}-column", column)]
    new = f"{catalogue.id}-2"
    command = shlex.join(
        [*WITH_BEHAVIOUR, "--history", *map(str, files), "--catalogue", new, "--from", catalogue.id, *named]
    )
    yield (
        f"the features of {catalogue.id} say nothing of what the same keys like, which is most of what a "
        f"history knows: `{command}` makes features of it. A new bandit with {new} begins with what "
        "this says of people, and is not taught it again"
    )


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


def _warned(client: Client, id_bytes: int) -> Iterator[str]:
    """A line, if the ids take more than half of the room that the store has left for a history."""
    try:
        text = client.metrics()
    except Forbidden:  # a key without the scope read
        return
    found = dict(re.findall(r"^shortlist_store_(bytes|most_bytes) (\S+)$", text, re.MULTILINE))
    held, most = float(found.get("bytes", "nan")), float(found.get("most_bytes", "nan"))
    left = HISTORY_SHARE * most - held
    if id_bytes > left / 2:
        yield (
            f"the ids of these rows may take {_mb(id_bytes)} of the {_mb(max(0.0, left))} that are left in "
            f"the store (SHORTLIST_MAX_STORE_MB); what has no room is refused, and can be "
            f"sent again when ids have expired (SHORTLIST_OBSERVATION_TTL_S)"
        )


def _mb(count: float) -> str:
    return f"{count / 2**20:,.1f} MB"


class History:
    """The observations of some tables; ``columns`` tell what cells mean.

    Raises FileError: a file cannot be read, or lacks a column.
    """

    def __init__(self, files: Sequence[Path], options: HistoryOptions) -> None:
        self._options = options
        self.tables = [
            table
            for path in files
            for table in open_tables(
                path, id_column=options.arm or options.event or "", encoding=options.encoding
            )
        ]
        for table in self.tables:
            for name in options.columns:
                if name not in table.names:
                    wrong(table.path, None, None, f"has no column {shown(name)}, of {listed(table)}")
        self.notes = [f"{table.path.name} {table.note}" for table in self.tables if table.note]
        of_texts = all(table.is_text for table in self.tables)
        semicolons = any(table.delimiter == ";" for table in self.tables)
        self.columns: dict[str, Column] = {}
        if options.value is not None:
            self.columns[options.value] = Column(options.value, of_texts=of_texts, semicolons=semicolons)
        if options.at is not None:
            self.columns[options.at] = Column(options.at, of_texts=of_texts)
        self.rows_total = 0
        for table in self.tables:
            for rows in table.rows(options.columns):
                for name, column in self.columns.items():
                    column.see(rows.cells[name])
                self.rows_total += len(rows) + len(rows.bad)
        for column in self.columns.values():
            column.settle()
        if options.value is not None:
            self.columns[options.value].expect_numbers()
        self.notes += [note for column in self.columns.values() for note in column.notes]
        # The names of an observation, and the columns that they come from.
        parts: list[tuple[str, str | None, Callable[[Any], Any]]] = [
            ("event_id", options.event, identifier_of),
            ("key", options.key, identifier_of),
            ("arm", options.arm, identifier_of),
            ("value", options.value, lambda cell: value_of(self.columns[options.value or ""], cell)),
            ("at", options.at, self.time_of),
        ]
        self._parts = [(name, column, parse) for name, column, parse in parts if column is not None]
        self._latest_ms = time.time_ns() // 1_000_000 + AHEAD_MS

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

    def batches(self) -> Generator[Observed, None, None]:
        """The observations of each table, some thousand at a time."""
        equal = Counter[bytes]()
        for table in self.tables:
            batch = Observed(table.path)
            for rows in table.rows(self._options.columns):
                self._add(rows, batch, equal)
                if len(batch.items) + len(batch.bad) >= BATCH:
                    yield batch
                    batch = Observed(table.path)
            yield batch

    def _add(self, rows: Rows, batch: Observed, equal: Counter[bytes]) -> None:
        batch.bad += rows.bad
        columns = [rows.cells[name] for name in self._options.columns]
        for place, number in enumerate(rows.numbers):
            cells = dict(zip(self._options.columns, (column[place] for column in columns), strict=True))
            item, faults = dict[str, Any](), dict[int, BadRow]()
            for name, column, parse in self._parts:
                try:
                    item[name] = parse(cells[column])
                except ValueError as error:
                    line = None if rows.lines is None else rows.lines[place]
                    note_fault(faults, place, BadRow(number, column, str(error), cells[column], line))
            if faults:
                batch.bad += faults.values()
                continue
            item.setdefault("value", 1.0)
            content = json.dumps(item, sort_keys=True)
            if not self.has_times:
                row = _digest(content)
                equal[row] += 1
                content += f"#{equal[row]}"
            name = "reward_id" if self.is_of_events else "id"
            batch.items.append({name: f"r{urlsafe_b64encode(_digest(content)).decode()}", **item})
            batch.numbers.append(number)

    def time_of(self, cell: Any) -> int:
        """When a row was, ms since 1970. Raises ValueError."""
        if isinstance(cell, dt.datetime | dt.date) and cell == cell:  # noqa: PLR0124 - pandas' NaT
            at_ms = _ms(cell)
        else:
            value = self.columns[self._options.at or ""].value(cell)
            if value is None:
                raise ValueError("is missing")
            at_ms = ms_of(value)
        if not FIRST_MS <= at_ms <= self._latest_ms:
            raise ValueError("is in the future" if at_ms > self._latest_ms else "is before March 1973")
        return at_ms


def _digest(content: str) -> bytes:
    return blake2b(content.encode(), digest_size=15).digest()


def value_of(column: Column, cell: Any) -> float:
    """The number in a cell. Raises ValueError."""
    value = plain(column.value(cell))
    if value is None:
        raise ValueError("is missing")
    if not isinstance(value, int | float):
        reason = f"must be a number, or true or false, and is {kind_of(cell)}"
        raise ValueError(reason)  # noqa: TRY004 - as all that is wrong with a cell
    if abs(value) > MAX_VALUE:
        raise ValueError(f"must be at most {MAX_VALUE:.0f} in magnitude")
    return float(value)


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
