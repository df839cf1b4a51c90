"""`shortlist export log NAME --out DIR_OR_URL --partition day`: the log of a bandit as a lake, each row once.

Rewards come by the cursors of the service, partition by partition. Decisions come by their time, up to two
seconds ago: by then their rows are written. A row written later all the same, as after an outage of the
store, comes within ``AGAIN_MS``, or with its first reward: so possibly repeated rows are looked up.
"""

from __future__ import annotations

import copy
import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist_client import Client
from shortlist_client.answers import ArmRevision, LearnedReward, LoggedDecision, PriorVersion
from shortlist_client.progress import meter
from shortlist_lake import tables
from shortlist_lake.writing import LakeWriter

AGAIN_MS = 600_000  # what is looked at again, for rows that came later


class ExportLimits(NamedTuple):
    """``page``: items of one answer; ``commit_rows``: of one commit, about.

    ``late_ms``: by then rows of the decision log are there.
    """

    page: int = 1_000
    commit_rows: int = 50_000
    late_ms: int = 2_000


LIMITS = ExportLimits()


class Export:
    """One run. ``terms``: of the bandit. ``advance`` is told how many rows each commit brings."""

    def __init__(
        self,
        client: Client,
        name: str,
        lake: LakeWriter,
        terms: Mapping[str, Any],
        advance: Callable[[int], object],
        *,
        limits: ExportLimits = LIMITS,
    ) -> None:
        self._limits = limits
        self._client, self._name, self._lake, self._advance = client, name, lake, advance
        self._terms = terms
        self._at: dict[str, Any] = {
            "partitions": {},
            "decided": 0,
            "arms": None,
            "priors": None,
            "missing": 0,
        }
        self._at |= copy.deepcopy(lake.manifest["at"])
        self._revisions = set(self._known_revisions())
        self._decided: dict[str, NDArray[np.bytes_]] = {}  # decisions in the lake, by day, as they are needed
        self._late: set[str] = set()  # decisions that this run has added for their rewards
        self._new: dict[str, list[Any]] = defaultdict(list)

    def run(self) -> None:
        """Read all rows so far. Raises ShortlistError, of the service and of the lake."""
        self._read_on("arms", self._client.list_revisions, self._add_arms)
        for partition in range(self._lake.manifest["terms"]["partitions"]):
            self._rewards(partition)
        self._decisions()
        # After the decisions: every version named by one of them is there, while it is kept.
        self._read_on("priors", self._client.list_priors, self._add_priors)
        self._commit()

    def _rewards(self, partition: int) -> None:
        cursors, more = self._at["partitions"], True
        while more:
            cursor = cursors.get(str(partition))
            page = self._client.list_learned(
                self._name, partition=partition, cursor=cursor, limit=self._limits.page
            )
            if {item.revision for item in page.items if item.features is None} - self._revisions - {None}:
                page = self._client.list_learned(
                    self._name, partition=partition, cursor=cursor, limit=self._limits.page, include="arms"
                )
                self._add_arms(page.arms)
            self._new["rewards"] += [(partition, item) for item in page.items]
            self._add_late(page.items)
            cursors[str(partition)] = page.position
            self._at["missing"] += page.missing
            more = page.next is not None
            self._commit_many()

    def _read_on(self, name: str, call: Callable[..., Any], add: Callable[[list[Any]], None]) -> None:
        """Read the pages after the lake's last rows."""
        more = True
        while more:
            page = call(self._name, cursor=self._at[name], limit=self._limits.page)
            add(page.items)
            self._at[name], more = page.position, page.next is not None
            self._commit_many()

    def _decisions(self) -> None:
        """Write the decisions until two seconds ago; an unfinished span of an earlier run comes first."""
        scan = self._at.get("scan")
        if scan is None:
            decided = self._at["decided"]
            scan = {
                "from": max(0, decided - AGAIN_MS),
                "to": _now_ms() - self._limits.late_ms,
                "again": decided,
                "cursor": None,
            }
        more = scan["to"] > scan["from"]
        while more:
            page = self._client.list_log(
                self._name, start=scan["from"], end=scan["to"], cursor=scan["cursor"], limit=self._limits.page
            )
            self._add_decisions(page.items, before_ms=scan["again"])
            if page.items:  # of this very ms there may be more
                self._at["decided"] = max(self._at["decided"], page.items[-1].time)
            scan, more = {**scan, "cursor": page.next}, page.next is not None
            self._at["scan"] = scan if more else None
            if not more:
                self._at["decided"] = max(self._at["decided"], scan["to"])
            self._commit_many()

    def _add_priors(self, versions: Iterable[PriorVersion]) -> None:
        self._new["priors"] += versions

    def _add_arms(self, arms: Iterable[ArmRevision]) -> None:
        for arm in arms:
            if arm.revision not in self._revisions:
                self._revisions.add(arm.revision)
                self._new["arms"].append(arm)

    def _add_late(self, rewards: Sequence[LearnedReward]) -> None:
        """Add decisions whose rows were made after their time was read: by these rewards, if not before."""
        by_time = defaultdict[int, set[str]](set)
        for item in rewards:
            if item.logged and item.decided is not None and item.decided < self._at["decided"]:
                by_time[item.decided].add(str(item.id))
        for decided, ids in by_time.items():
            unknown = ids - self._known_ids(tables.day_of(decided), ids) - self._late
            rows = (
                self._client.log(self._name, start=decided, end=decided + 1, page_size=self._limits.page)
                if unknown
                else ()
            )
            for row in rows:
                if (decision := tables.token(row).id) in unknown:
                    self._late.add(decision)
                    self._new["decisions"].append(row)

    def _add_decisions(self, rows: Sequence[LoggedDecision], *, before_ms: int) -> None:
        """``before_ms``: earlier ones may be in the lake already."""
        by_day = defaultdict[str, dict[str, LoggedDecision]](dict)
        for row in rows:
            if row.time < before_ms:
                by_day[tables.day_of(row.time)][tables.token(row).id] = row
            else:
                self._new["decisions"].append(row)
        for day, early in by_day.items():
            new = early.keys() - self._known_ids(day, early.keys()) - self._late
            self._new["decisions"] += [early[decision] for decision in sorted(new)]

    def _known_ids(self, day: str, ids: Collection[str]) -> set[str]:
        """The decisions of a day among ``ids`` which the lake has."""
        if day not in self._decided:
            ids_by_file = [np.array([], dtype="S1")]
            for name in self._lake.files("decisions", day):
                batches = self._lake.batches(name, 1 << 20, ["decision_id"])
                ids_by_file += [np.array(batch.column(0).to_pylist(), dtype="S") for batch in batches]
            self._decided[day] = np.unique(np.concatenate(ids_by_file))
        asked = np.array(sorted(ids), dtype="S")
        return {id_bytes.decode() for id_bytes in asked[np.isin(asked, self._decided[day])].tolist()}

    def _known_revisions(self) -> Iterable[int]:
        for name in self._lake.files("arms"):
            for batch in self._lake.batches(name, 1 << 16, ["revision"]):
                yield from batch.column(0).to_pylist()

    def _commit_many(self) -> None:
        if sum(map(len, self._new.values())) >= self._limits.commit_rows:
            self._commit()

    def _commit(self) -> None:
        if not any(self._new.values()) and self._at == self._lake.manifest["at"]:
            return
        parts: Mapping[str, Mapping[str, Any]] = {
            "decisions": tables.decisions(self._new["decisions"]),
            "rewards": tables.rewards(self._new["rewards"]),
            "arms": tables.arms(self._new["arms"], _now_ms()),
            "priors": tables.priors(self._new["priors"]),
        }
        rows = {(table, day): data for table, days in parts.items() for day, data in days.items()}
        if self._new["rewards"] and self._terms.get("constant") is None:  # the first may have settled it
            self._terms = terms_of(self._client, self._name)
        self._lake.commit(rows, copy.deepcopy(self._at), self._terms)
        self._advance(sum(map(len, self._new.values())))
        self._new.clear()


def export_lake(client: Client, name: str, out: str, *, limits: ExportLimits = LIMITS) -> str:
    """Bring the lake up to date; return a line about its content.

    Raises ShortlistError: the folder is not of this bandit, or damaged. Killed at any time, or after an
    error, the next run goes on where this one was.
    """
    terms = terms_of(client, name)
    lake = LakeWriter.open(out, name, terms)
    try:
        with meter("log", None, "rows") as advance:
            Export(client, name, lake, terms, advance, limits=limits).run()
        rows = [
            (table, count) for table, count in lake.manifest["rows"].items() if count or table != "priors"
        ]
        told = ", ".join(f"{count:,} {table}" for table, count in rows)
        lake.tell_missing()
        return f"{told} in {out}"
    finally:
        lake.close()


def terms_of(client: Client, name: str) -> Mapping[str, Any]:
    """The terms by which rewards of a bandit become sums of learners, with all its moves."""
    page = client.get_terms(name)
    terms, moves = asdict(page), list(page.moves)
    while page.next is not None:
        page = client.get_terms(name, cursor=page.next)
        moves += page.moves
    del terms["next"]
    # In the form of a manifest, for comparison: JSON has lists in place of tuples.
    all_terms: Mapping[str, Any] = json.loads(
        json.dumps({**terms, "moves": [asdict(move) for move in moves]})
    )
    return all_terms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
