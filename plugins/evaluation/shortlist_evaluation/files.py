"""`shortlist evaluate`: what a policy would have earned on an exported log, without a service.

The log is read twice, a piece at a time; besides a piece the arms and the learners are in memory. Learners
know its rewards, those that came before a decision, or all of them, and what a file of learners says.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from shortlist_client.phrases import counted
from shortlist_evaluation.answers import Evaluation, When, answer_of
from shortlist_evaluation.evaluated import ESTIMATOR_NAMES, check_estimators
from shortlist_evaluation.evaluation import Log, Pages, check_draws
from shortlist_evaluation.evaluation import evaluate as evaluate_log
from shortlist_evaluation.evaluation_warnings import NOT_DRAWN
from shortlist_evaluation.log_files import ReadDecisions, priors_of, rows_of
from shortlist_evaluation.other_logs import ARM_FIELD, TABLE, OtherLog, UnreadRows
from shortlist_evaluation.sources import HeldSource
from shortlist_files.arm_rows import FileError, wrong
from shortlist_files.learner_files import learners_of
from shortlist_files.table_arms import arms_of
from shortlist_files.tables import open_tables
from shortlist_service.bandits import Catalogue, offline_bandit, offline_catalogue
from shortlist_service.commands import table
from shortlist_service.decision_log import Row, drawn_policy, evaluable_policy
from shortlist_service.errors import Invalid
from shortlist_service.learners import LearnerState, checked_state
from shortlist_service.policies import Bandit

NAME = "log"
MUCH_LOST = 0.5  # of the rows
LogFormat = Literal["shortlist", "vw-dsjson", "table"]


@dataclass(slots=True)
class LogFile:
    """A log in a file. Each time it is read, a decision that comes again is left out.

    ``other``        reads it where it is of another system; None: it is of Shortlist
    ``needs_logged``  whether decisions without propensities are of no use
    ``read``         what was read the first time; None: nothing yet. ``unread``: what cannot be used of it
    """

    path: Path
    other: OtherLog | None
    needs_logged: bool
    read: ReadDecisions | None = None
    unread: UnreadRows = field(default_factory=UnreadRows)

    async def pages(self, reason: str) -> Pages:
        """Its rows, in pieces, with a bar that says ``reason``."""
        read, unread = ReadDecisions(), UnreadRows()
        if self.read is None:
            self.read, self.unread = read, unread
        elif self.needs_logged:
            self._tell_early(self.read)
        if self.other is None:
            for rows in rows_of(self.path, reason, read=read):
                yield rows
        else:
            for rows in self.other.rows(reason, unread):
                yield [row for row in rows if read.is_new(row)]

    def _tell_early(self, read: ReadDecisions) -> None:
        """Say before the log is weighed, which takes longest, that most of it cannot be used."""
        unread = sum(self.unread.counts.values())
        lost, rows = read.unknown + unread, read.decisions + unread
        if MUCH_LOST * rows <= lost < rows:  # none at all is an error, which says so
            parts = [f"{read.unknown:,} show arms without a propensity"] * bool(read.unknown)
            parts += [f"{unread:,} cannot be read"] * bool(unread)
            words = f"{lost / rows:.0%} of {rows:,} rows cannot be used: {', '.join(parts)}"
            print(f"warning: {words}", file=sys.stderr, flush=True)

    def warnings(self) -> Iterator[str]:
        """Sentences on errors of its rows."""
        yield from self.unread.sentences()
        read = self.read or ReadDecisions()
        if read.repeated:
            differing = f", and {read.differing:,} of them with other rewards" if read.differing else ""
            repeat = counted(read.repeated, "row repeats", "rows repeat")
            yield f"{repeat} a decision of the log{differing}: the first of each counts"


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
    ``learners_from``  what the learners knew before the log, or know now, as it was exported; None: what the
                       log says
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
        evaluable_policy(bandit.record)
        if priors is not None and bandit.record.prior != "learned":
            raise Invalid(f"--priors: the policy has the prior {bandit.record.prior}, which has no versions")
        source = HeldSource(priors={} if priors is None else priors_of(priors, bandit))
        if logged_by is not None:
            source.logged_by = _logged_by(logged_by, catalogue, first, learners, log_format)
        if learners_from is not None:
            source.learners = _learners(bandit, learners_from)
        other = None
        if log_format != "shortlist":
            snapshot = catalogue.index.snapshot()
            ids = [snapshot.id_of(row) for row in snapshot.eligible().tolist()]
            encoding = None if bandit.context is None else bandit.context.encoding
            other = OtherLog(log, log_format, ids, encoding, arm_field=arm_field)
        file, draws = LogFile(log, other, needs_logged=logged_by is None), logged_by is not None
        work = evaluate_log([bandit], Log(file.pages), source, names, when=learners, draws=draws)
        evaluation = asyncio.run(work)[0]
    evaluation = replace(evaluation, warnings=[*file.warnings(), *evaluation.warnings])
    _print(evaluation)
    answer: dict[str, Any] = msgspec.to_builtins(answer_of([evaluation]))
    return answer


def _logged_by(text: str, catalogue: Catalogue, first: Row, when: When, log_format: LogFormat) -> Bandit:
    """The bandit that made the decisions of a log. Raises Invalid: draws cannot tell their propensities."""
    if log_format != "shortlist":
        raise Invalid("--logged-by is of the log of a bandit: others have their probabilities in them")
    bandit = _bandit(_settings(text, "--logged-by"), catalogue, first, "--logged-by")
    try:
        check_draws(bandit, when)
    except Invalid as error:
        raise Invalid(f"--logged-by: {error.errors[0][1]}") from None
    if drawn_policy(bandit.record) is None:
        raise Invalid(f"--logged-by: {NOT_DRAWN}")
    return bandit


def _learners(bandit: Bandit, path: Path) -> dict[str, LearnerState]:
    """The learners of a file, by name. Memory: theirs. Raises FileError."""
    states = dict[str, LearnerState]()
    for number, learner in enumerate(learners_of(path)(), start=1):
        try:
            states[learner.key] = checked_state(learner.state, bandit)
        except Invalid as error:
            wrong(path, number, "state", error.errors[0][1] if error.errors else error.detail)
    return states


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
        features = np.asarray(arms.features, dtype=np.float64)
        catalogue = catalogue or offline_catalogue(NAME, features.shape[1])
        catalogue.in_memory.upsert(arms.ids, features, arms.numbers)
        catalogue.in_memory.describe(arms.ids, list(zip(arms.tags, arms.metadata, strict=True)))
    if catalogue is None:
        raise FileError(f"{path}: there are no arms in it")
    return catalogue


def _first(log: Path, log_format: LogFormat) -> Row:
    """The row from which a bandit takes its scope and its context."""
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
