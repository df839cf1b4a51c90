"""`shortlist evaluate`: what a policy would have earned on an exported log, without a service.

The log is read twice, a piece at a time; besides a piece the arms and the learners are in memory. Learners
know its rewards, those that came before a decision, or all of them, and what a file of learners says.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from shortlist_client.phrases import counted
from shortlist_evaluation.evaluated import ESTIMATOR_NAMES, check_estimators, evaluated_policy
from shortlist_evaluation.evaluation_warnings import NOT_DRAWN
from shortlist_evaluation.evaluations import (
    Evaluation,
    Evaluations,
    When,
    answer_of,
    check_usable,
    evaluations_of,
)
from shortlist_evaluation.evaluator import Evaluator, LearnerLookup
from shortlist_evaluation.log_files import ReadDecisions, priors_of, rows_of
from shortlist_evaluation.other_logs import ARM_FIELD, TABLE, OtherLog, UnreadRows
from shortlist_evaluation.past_learners import HeldLearners, PastLearners
from shortlist_evaluation.seen_rewards import SeenRewards
from shortlist_evaluation.sources import HeldSource
from shortlist_files.arm_files import arms_of
from shortlist_files.arm_rows import FileError, wrong
from shortlist_files.learner_files import learners_of
from shortlist_files.tables import open_tables
from shortlist_service.bandits import Catalogue, offline_bandit, offline_catalogue
from shortlist_service.commands import table
from shortlist_service.decision_log import Row, drawn_policy
from shortlist_service.errors import Invalid
from shortlist_service.learners import LearnerState, checked_state
from shortlist_service.policies import Bandit

NAME = "log"
MUCH_LOST = 0.5  # of the rows
LogFormat = Literal["shortlist", "vw-dsjson", "table"]


class LogRows(Protocol):
    """Reads the decisions of a log, in pieces; ``read``: those that were read before are left out."""

    def __call__(self, desc: str, *, read: ReadDecisions | None = None) -> Iterator[Sequence[Row]]: ...


def evaluate(
    log: Path,
    arms: Path,
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
        catalogue = _catalogue(arms)
        first = _first(log, log_format)
        if learners_from is not None and "intercept" not in settings:
            settings = _as_learned(settings, catalogue, first, learners_from)
        bandit = _bandit(settings, catalogue, first)
        evaluated_policy(bandit)
        if priors is not None and bandit.record.prior != "learned":
            raise Invalid(f"--priors: the policy has the prior {bandit.record.prior}, which has no versions")
        source = HeldSource(priors={} if priors is None else priors_of(priors, bandit))
        if logged_by is not None:
            source.logged_by = _logged_by(logged_by, catalogue, first, learners, log_format)
        rows, unread = partial(rows_of, log), None
        if log_format != "shortlist":
            unread = UnreadRows()
            snapshot = catalogue.index.snapshot()
            ids = [snapshot.id_of(row) for row in snapshot.eligible().tolist()]
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


def _logged_by(text: str, catalogue: Catalogue, first: Row, when: When, log_format: LogFormat) -> Bandit:
    """The bandit that made the decisions of a log. Raises Invalid: draws cannot tell their propensities."""
    if log_format != "shortlist":
        raise Invalid("--logged-by is of the log of a bandit: others have their probabilities in them")
    bandit = _bandit(_settings(text, "--logged-by"), catalogue, first, "--logged-by")
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


def _as_learned(settings: dict[str, Any], catalogue: Catalogue, first: Row, path: Path) -> dict[str, Any]:
    """The settings, without an intercept where the learners of the file have none. Raises FileError."""
    without = {**settings, "intercept": False}
    learner = next(iter(learners_of(path)()), None)
    try:
        if learner is not None:
            checked_state(learner.state, _bandit(without, catalogue, first))
    except Invalid:  # of one number more, or none: that is told where all of them are read
        return settings
    return without


def _settings(text: str, option: str = "--policy") -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except ValueError:
        raise Invalid(f'{option} is not JSON, such as {{"exploration": 0}}') from None
    if not isinstance(settings, dict):
        raise Invalid(f"{option} must be a JSON object: the settings of a bandit")
    for name in ("catalogue", "scope", "holdout", "log"):
        if name in settings:
            raise Invalid(f"{option}: {name} is not a setting of a policy: leave it out")
    return settings


def _catalogue(path: Path) -> Catalogue:
    """All arms of a file. Memory: theirs."""
    catalogue: Catalogue | None = None
    for arms in arms_of(path):
        catalogue = catalogue or offline_catalogue(NAME, arms.features.shape[1])
        revisions = range(arms.first, arms.first + len(arms))
        catalogue.in_memory.upsert(list(arms.ids), arms.features.astype(np.float64), revisions)
        tags = arms.tags or [()] * len(arms)
        metadata = [json.loads(text) if text else {} for text in arms.metadata or [""] * len(arms)]
        catalogue.in_memory.describe(list(arms.ids), list(zip(tags, metadata, strict=True)))
    if catalogue is None:
        raise FileError(f"{path}: there are no arms in it")
    return catalogue


def _first(log: Path, log_format: LogFormat) -> Row:
    """What a bandit takes its scope and its context from."""
    if log_format != "shortlist":
        has_keys = log_format == TABLE and "key" in open_tables(log, id_column="action")[0].names
        return Row("", 0, "key" if has_keys else None, 1, 0, 0, "other", None, None, None, None, [], [])
    for rows in rows_of(log, "looking"):
        if rows:
            return rows[0]
    raise FileError(f"{log}: there are no decisions in it")


def _bandit(settings: dict[str, Any], catalogue: Catalogue, first: Row, option: str = "--policy") -> Bandit:
    """The bandit with these settings that a log is of; its first row says what the settings do not."""
    context_dim = None if first.context is None else len(first.context)
    try:
        return offline_bandit(settings, catalogue, has_keys=first.key is not None, context_dim=context_dim)
    except Invalid as error:
        raise Invalid(f"{option}: {error.detail}") from None


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
