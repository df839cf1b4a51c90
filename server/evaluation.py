"""`shortlist evaluate`: what a policy would have earned on an exported log, without a service.

The log is read twice, a piece at a time; besides a piece the arms and the learners are in memory. Learners
know its rewards, those that came before a decision, or all of them, and what a file of learners says.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from pydantic import ValidationError
from threadpoolctl import threadpool_limits

from app.api.bandits import BanditBody, record_of
from app.api.strict_json import invalid
from app.bandits import context as contexts
from app.bandits.bandit import Bandit, bandit_of
from app.bandits.completion import completed, measured
from app.bandits.settings import BanditRecord
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.decision_log.rows import Row
from app.indexes.live import IndexOptions, LiveIndex
from app.learning.learner_copies import checked_state
from app.measuring.drawn_propensities import drawn_policy
from app.measuring.evaluated import ESTIMATOR_NAMES, check_estimators, evaluated_policy
from app.measuring.evaluation_warnings import NOT_DRAWN
from app.measuring.evaluations import (
    Evaluation,
    Evaluations,
    When,
    answer_of,
    check_usable,
    evaluations_of,
)
from app.measuring.evaluator import Evaluator, LearnerLookup
from app.measuring.outcomes import SeenRewards
from app.measuring.past_learners import HeldLearners, PastLearners
from app.measuring.sources import HeldSource
from app.platform.command_line import table
from app.platform.errors import Invalid, ShortlistError
from app.policies.registry import POLICIES
from app.records.encoding import ContextRule
from app.records.records import CatalogueRecord, LearnerState
from server.evaluation_files import ReadDecisions, priors_of, rows_of
from server.other_logs import ARM_FIELD, TABLE, OtherLog, UnreadRows
from shortlist_client.phrases import counted
from shortlist_files.arm_files import arms_of
from shortlist_files.arm_rows import FileError, wrong
from shortlist_files.learner_files import learners_of
from shortlist_files.tables import open_tables

NAME, UID = "log", "0" * 16
MUCH_LOST = 0.5  # of the rows
LogFormat = Literal["shortlist", "vw-dsjson", "table"]


class LogRows(Protocol):
    """Reads the decisions of a log, in pieces; ``read``: those that were read before are left out."""

    def __call__(self, desc: str, *, read: ReadDecisions | None = None) -> Iterator[Sequence[Row]]: ...


def evaluate(
    log: Path,
    catalogue: Path,
    *,
    policy: str,
    estimators: str | None,
    learners: When,
    learners_from: Path | None = None,
    priors: Path | None = None,
    log_format: LogFormat = "shortlist",
    arm_field: str = ARM_FIELD,
    logged_by: str | None = None,
) -> dict[str, Any]:
    """Print the estimates, and return them as the service answers them.

    ``policy``         settings of a bandit as JSON, without its catalogue
    ``estimators``     their names between commas; None: all
    ``learners``       whether decisions are weighed with what was known before them, or with all of the log
    ``learners_from``  what the learners know today, as it was exported; None: what the log says
    ``priors``         versions of the learned prior; None: they are fitted from the log
    ``logged_by``      settings that made the decisions, as JSON: propensities that the log does not have are
                       estimated by draws; None: decisions without propensities are left out
    ``log_format``     whose log it is: see ``other_logs``, which also says what ``arm_field`` is

    Raises ShortlistError, in one line, for files and settings that cannot be used.
    """
    names = list(ESTIMATOR_NAMES) if estimators is None else estimators.split(",")
    try:
        check_estimators(names)
    except Invalid as error:
        raise Invalid(f"--estimators: {error.errors[0][1]}") from None
    settings = _settings(policy)
    with threadpool_limits(1):
        index = _index(catalogue)
        first = _first(log, log_format)
        if learners_from is not None and "intercept" not in settings:
            settings = _as_learned(settings, index, first, learners_from)
        bandit = _bandit(settings, index, first)
        evaluated_policy(bandit)
        if priors is not None and bandit.record.prior != "learned":
            raise Invalid(f"--priors: the policy has the prior {bandit.record.prior}, which has no versions")
        source = HeldSource(priors={} if priors is None else priors_of(priors, bandit))
        if logged_by is not None:
            source.logged_by = _logged_by(logged_by, index, first, learners, log_format)
        rows, unread = partial(rows_of, log), None
        if log_format != "shortlist":
            unread = UnreadRows()
            arms = index.snapshot()
            ids = [arms.id_of(row) for row in arms.eligible().tolist()]
            encoding = None if bandit.context is None else bandit.context.encoding
            rows = partial(
                _rows_of_others, OtherLog(log, log_format, ids, encoding, arm_field=arm_field), unread
            )
        held = None if learners_from is None else _learners(bandit, learners_from)
        work = _evaluated(bandit, rows, names, learners, source=source, held=held, unread=unread)
        evaluation = asyncio.run(work)
    _print(evaluation)
    answer: dict[str, Any] = msgspec.to_builtins(answer_of([evaluation]))
    return answer


async def _evaluated(
    bandit: Bandit,
    rows_read: LogRows,
    estimators: Sequence[str],
    when: When,
    *,
    source: HeldSource,
    held: HeldLearners | None,
    unread: UnreadRows | None,
) -> Evaluation:
    """``held``: what learners know today, by a file. ``unread``: rows of a log of another system that are
    left out; None: it is a log of Shortlist.
    """
    draws = source.logged_by is not None
    past, read = PastLearners(bandit, source, None if held is None else held.state), ReadDecisions()
    seen = SeenRewards(bandit, source.versions)
    lookup: LearnerLookup = past
    if when == "before":
        await past.survey(seen.noted(_pages(rows_read, "counting", read)), from_ms=None, to_ms=None)
    elif held is not None:
        lookup = held.posterior
        if source.priors:
            bandit = bandit.with_prior(source.priors[max(source.priors)])
        async for _ in seen.noted(_pages(rows_read, "counting", read)):
            pass
    else:
        async for rows in seen.noted(_pages(rows_read, "learning", read)):
            await past.learn(rows)
        await past.begin(0)
    if not draws:
        _tell_early(read, 0 if unread is None else sum(unread.counts.values()))
    evaluator = Evaluator(bandit, source, lookup, estimators, seen=seen, draws=draws)
    for rows in rows_read("evaluating"):
        await evaluator.add(rows)
        if evaluator.is_unsupported:
            break
    check_usable(evaluator)
    left_out = list[str]()
    if unread is not None:
        left_out = list(unread.sentences())
        evaluator.counts.capped = (
            0  # what was not offered is the caller's word, as a filter is: no quota has a say
        )
    evaluation = evaluations_of(evaluator, when)[0]
    return replace(evaluation, warnings=[*left_out, *_warnings(read, held), *evaluation.warnings])


def _tell_early(read: ReadDecisions, unread: int) -> None:
    """Say before the log is weighed, which takes longest, that most of it cannot be used."""
    lost, rows = read.unknown + unread, read.decisions + unread
    if MUCH_LOST * rows <= lost < rows:  # none at all is an error, which says so
        parts = [f"{read.unknown:,} show arms without a propensity"] * bool(read.unknown)
        parts += [f"{unread:,} cannot be read"] * bool(unread)
        words = f"{lost / rows:.0%} of {rows:,} rows cannot be used: {', '.join(parts)}"
        print(f"warning: {words}", file=sys.stderr, flush=True)


def _logged_by(text: str, index: LiveIndex, first: Row, when: When, log_format: LogFormat) -> Bandit:
    """The bandit that made the decisions of a log. Raises Invalid: draws cannot tell their propensities."""
    if log_format != "shortlist":
        raise Invalid("--logged-by is of the log of a bandit: others have their probabilities in them")
    try:
        bandit = _bandit(_settings(text), index, first)
    except Invalid as error:
        raise Invalid(error.detail.replace("--policy", "--logged-by")) from None
    try:
        Evaluations.check_draws(bandit, when)
    except Invalid as error:
        raise Invalid(f"--logged-by: {error.errors[0][1]}") from None
    if drawn_policy(bandit.record) is None:
        raise Invalid(f"--logged-by: {NOT_DRAWN}")
    return bandit


def _warnings(read: ReadDecisions, held: HeldLearners | None) -> Iterator[str]:
    if read.repeated:
        differing = f", and {read.differing:,} of them with other rewards" if read.differing else ""
        repeat = counted(read.repeated, "row repeats", "rows repeat")
        yield f"{repeat} a decision of the log{differing}: the first of each counts"
    if read.known_before and held is None:
        knew = (
            f"a learner knew {counted(read.known_before, 'reward', 'rewards')} before its first decision here"
        )
        give = "give what `shortlist export learners` has written with --learners-from"
        yield f"{knew}, which this log does not hold: values are those of another policy; {give}"


async def _pages(rows_read: LogRows, desc: str, read: ReadDecisions) -> AsyncIterator[Sequence[Row]]:
    for rows in rows_read(desc, read=read):
        yield rows


def _rows_of_others(
    log: OtherLog, unread: UnreadRows, desc: str, *, read: ReadDecisions | None = None
) -> Iterator[Sequence[Row]]:
    """As ``rows_of``; what is left out is counted where decisions are read for the first time."""
    if read is None:
        read, unread = ReadDecisions(), UnreadRows()
    for rows in log.rows(desc, unread):
        yield [row for row in rows if read.is_new(row)]


def _learners(bandit: Bandit, path: Path) -> HeldLearners:
    """The learners of a file. Memory: theirs. Raises FileError."""
    states = dict[str, LearnerState]()
    for number, learner in enumerate(learners_of(path)(), start=1):
        try:
            states[learner.key] = checked_state(learner.state, bandit)
        except Invalid as error:
            wrong(path, number, "state", error.errors[0][1] if error.errors else error.detail)
    return HeldLearners(bandit, states)


def _as_learned(settings: dict[str, Any], index: LiveIndex, first: Row, path: Path) -> dict[str, Any]:
    """The settings, without an intercept where the learners of the file have none. Raises FileError."""
    without = {**settings, "intercept": False}
    learner = next(iter(learners_of(path)()), None)
    try:
        if learner is not None:
            checked_state(learner.state, _bandit(without, index, first))
    except Invalid:  # of one number more, or none: that is told where all of them are read
        return settings
    return without


def _settings(policy: str) -> dict[str, Any]:
    try:
        settings = json.loads(policy)
    except ValueError:
        raise Invalid('--policy is not JSON, such as {"exploration": 0}') from None
    if not isinstance(settings, dict):
        raise Invalid("--policy must be a JSON object: the settings of a bandit")
    for name in ("catalogue", "scope", "holdout", "log"):
        if name in settings:
            raise Invalid(f"--policy: {name} is not a setting of a policy: leave it out")
    return settings


def _index(catalogue: Path) -> LiveIndex:
    """All arms of a file. Memory: theirs."""
    index: LiveIndex | None = None
    for arms in arms_of(catalogue):
        index = LiveIndex(arms.features.shape[1], IndexOptions(kind="exact")) if index is None else index
        revisions = range(arms.first, arms.first + len(arms))
        index.upsert(list(arms.ids), arms.features.astype(np.float64), revisions)
        tags = arms.tags or [()] * len(arms)
        metadata = [json.loads(text) if text else {} for text in arms.metadata or [""] * len(arms)]
        index.describe(list(arms.ids), list(zip(tags, metadata, strict=True)))
    if index is None:
        raise FileError(f"{catalogue}: there are no arms in it")
    return index


def _first(log: Path, log_format: LogFormat) -> Row:
    """What a bandit takes its scope and its context from."""
    if log_format != "shortlist":
        has_keys = log_format == TABLE and "key" in open_tables(log, id_column="action")[0].names
        return Row("", 0, "key" if has_keys else None, 1, 0, 0, "other", None, None, None, None, [], [])
    for rows in rows_of(log, "looking"):
        if rows:
            return rows[0]
    raise FileError(f"{log}: there are no decisions in it")


def _bandit(settings: dict[str, Any], index: LiveIndex, first: Row) -> Bandit:
    """The bandit with these settings that a log is of; its first row says what the settings do not."""
    try:
        scope = "global" if first.key is None else "per_key"
        body = BanditBody.model_validate({**settings, "catalogue": NAME, "scope": scope})
    except ValidationError as error:
        raise _named(invalid(error, ())) from None
    record = record_of(body)
    if first.context is not None and record.context is None:
        record = msgspec.structs.replace(record, context=ContextRule(dim=len(first.context)))
    try:
        dim = index.snapshot().table.dim
        catalogue = Catalogue(NAME, UID, CatalogueRecord(dim, asdict(IndexOptions(kind="exact"))), index)
        record = _completed(record, catalogue)
    except ShortlistError as error:
        raise _named(error) from None
    return bandit_of(NAME, version_to_bytes(UID, BanditVersion(record)), catalogue, POLICIES)


def _completed(record: BanditRecord, catalogue: Catalogue) -> BanditRecord:
    snapshot = catalogue.index.snapshot()
    POLICIES[record.policy].check_arms(record, catalogue)
    record = completed(record, POLICIES, stored=record)  # it is compared, not made
    contexts.check_size(record, snapshot.table.dim)
    return contexts.with_directions(measured(record, snapshot), snapshot)


def _named(error: ShortlistError) -> Invalid:
    """One line that names the first setting that is wrong."""
    path, text = next(iter(error.errors), ((), error.detail))
    name = ".".join(str(part) for part in path)
    return Invalid(f"--policy: {name}: {text}" if name else f"--policy: {text}")


def _print(evaluation: Evaluation) -> None:
    for warning in evaluation.warnings:
        print(f"warning: {warning}")
    lines = [
        (estimate.estimator, estimate.value, estimate.interval, estimate.effective_sample_size)
        for estimate in evaluation.estimates
    ]
    logged = evaluation.logged
    lines.append(("logged", logged.value, logged.interval, logged.decisions))
    columns = ("", "value", "from", "to", "effective")
    rows = [(name, value, *(interval or (None, None)), size) for name, value, interval, size in lines]
    print(table([dict(zip(columns, row, strict=True)) for row in rows]))
