"""Every call of the service, described once for both clients.

A method returns a ``Call``, or goes through several with ``yield from`` and returns what they come to.
Keyword arguments are the fields of the request (see ``bodies``); the service checks them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Unpack

from shortlist_client import bodies, routes, settings
from shortlist_client.answers import (
    Activation,
    Arm,
    ArmDraws,
    ArmEffects,
    Bandit,
    BanditVersion,
    CampaignName,
    Catalogue,
    CatalogueField,
    CenterCampaign,
    Centers,
    CenterTold,
    Choice,
    Choices,
    Deleted,
    Draws,
    DryRun,
    EmbeddingJob,
    EmbeddingJobHead,
    Evaluation,
    EvaluationJob,
    EvaluationResult,
    Explanation,
    Exposures,
    Health,
    LearnedPage,
    Learner,
    LearnerCopy,
    LearningTerms,
    LoggedDecision,
    MipsAnswer,
    Move,
    OneArmEffect,
    Page,
    Policies,
    Prior,
    PriorVersions,
    Pulls,
    Queries,
    Quota,
    Ready,
    Receipt,
    Rejected,
    Report,
    Revisions,
    Root,
    Sets,
    SlateCampaign,
    SlateTold,
    StartedEmbedding,
    StartedEvaluation,
    Status,
    Upserted,
    VectorsAnswer,
)
from shortlist_client.batches import (
    ACTIVATIONS,
    ARMS,
    CHOICES,
    COLUMN,
    IDS,
    OBSERVATIONS,
    RESULTS,
    REWARDS,
    VECTORS,
    Batch,
    arms_of,
    as_float32,
    batches,
    checked_list,
    encoded_items,
    is_large,
    items_of,
    reward_item,
    same_length,
    send_all,
    sender,
    with_options,
    with_time,
)
from shortlist_client.binding import endpoint, every_page
from shortlist_client.decoding import decoder
from shortlist_client.errors import (
    Forbidden,
    InvalidArgument,
    NotFound,
    RewardRejected,
    ServiceError,
    problem_error,
)
from shortlist_client.exchange import Steps
from shortlist_client.routes import GLOBAL_LEARNER, RAW, Call, Route, Sink, encoded

PAGE = 100
Moment = datetime | float  # a number: ms since 1970
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_ON_A_PAGE = 1_000


class Endpoints:
    """What both clients can do. Errors of all calls: see ``errors``."""

    def __init__(self) -> None:
        # By bandit: whether a choice matters that nobody saw, and of which version that is known.
        self._matters: dict[str, tuple[bool, int | None]] = {}

    # Catalogues and their arms

    @endpoint
    def put_catalogue(self, catalogue: str, **settings: Unpack[bodies.CatalogueBody]) -> Call[Catalogue]:
        """Make a catalogue, or find that the same one exists. Raises Conflict if another one does."""
        return routes.PUT_CATALOGUE.call(catalogue, body=settings)

    @endpoint
    def get_catalogue(self, catalogue: str, **parts: Unpack[bodies.CatalogueQuery]) -> Call[Catalogue]:
        """Its size, its version, and how it is searched; with ``include="basis"`` that of its reduction."""
        return routes.GET_CATALOGUE.call(catalogue, query=parts)

    @endpoint
    def fit_features(self, catalogue: str) -> Call[Catalogue]:
        """Reduce the embeddings by the basis that fits the arms of now best; it stays."""
        return routes.FIT_FEATURES.call(catalogue)

    @endpoint
    def patch_catalogue(self, catalogue: str, **changes: Unpack[bodies.CataloguePatch]) -> Call[Catalogue]:
        """Change how it is shown to people, by a JSON merge patch: ``display``. All else is immutable."""
        return routes.PATCH_CATALOGUE.call(catalogue, body=changes)

    @endpoint
    def list_fields(
        self, catalogue: str, *, cursor: str | None = None, limit: int = PAGE
    ) -> Call[Page[CatalogueField]]:
        """One page of the fields that its arms have, by name, with types and frequent values."""
        return routes.LIST_FIELDS.call(catalogue, query={"cursor": cursor, "limit": limit})

    @endpoint
    def list_catalogues(self, *, cursor: str | None = None, limit: int = PAGE) -> Call[Page[Catalogue]]:
        """One page of the catalogues, by name."""
        return routes.LIST_CATALOGUES.call(query={"cursor": cursor, "limit": limit})

    @every_page
    def catalogues(self, *, page_size: int = PAGE) -> Callable[[str | None], Call[Page[Catalogue]]]:
        """All catalogues by name, asked for page by page."""
        return lambda cursor: routes.LIST_CATALOGUES.call(query={"cursor": cursor, "limit": page_size})

    @endpoint
    def delete_catalogue(self, catalogue: str) -> Call[None]:
        """Delete a catalogue with its arms. Raises Conflict while a bandit uses it."""
        return routes.DELETE_CATALOGUE.call(catalogue)

    @endpoint
    def upsert_arms(
        self,
        catalogue: str,
        arms: Iterable[bodies.ArmBody | bodies.Vector] | bodies.Array,
        *,
        ids: Iterable[str] | None = None,
        tags: Iterable[Sequence[str]] | None = None,
        metadata: Iterable[Mapping[str, Any]] | None = None,
    ) -> Steps[Upserted]:
        """Insert or replace arms: rows of vectors with their ``ids``, or documents without.

        Long lists go in batches, each all or nothing. An error names the row, counted from 0, and says how
        many rows were applied before. ``added`` and ``updated`` count all batches.
        """
        given: Any = checked_list("arms", arms, f"{VECTORS}, and ids=df[column]")
        if ids is not None:
            given = arms_of(given, ids, tags, metadata)
        elif isinstance(given, Sequence):
            for _ in same_length(given):
                pass
        items = encoded_items(same_length(given), "row")
        found = yield from send_all(batches("arms", items, ARMS), sender(routes.UPSERT_ARMS, catalogue))
        parts = [part for _, part in found]
        return Upserted(sum(p.added for p in parts), sum(p.updated for p in parts), parts[-1].version)

    @endpoint
    def get_arm(self, catalogue: str, arm: str) -> Call[Arm]:
        """One arm with its features."""
        return routes.GET_ARM.call(catalogue, arm)

    @endpoint
    def list_arms(
        self,
        catalogue: str,
        *,
        cursor: str | None = None,
        limit: int = PAGE,
        sample_seed: int | None = None,
        sort: str | None = None,
        order: bodies.Order | None = None,
    ) -> Call[Page[Arm]]:
        """One page of the arms, those first that have been as they are for longest.

        With ``sample_seed``: ``limit`` arms drawn uniformly without replacement, fewer where they are long.
        With ``sort``: by the values of a field, of at most 100,000 arms; ``desc``: the largest first.
        """
        query = {"cursor": cursor, "limit": limit, "sample_seed": sample_seed, "sort": sort, "order": order}
        return routes.LIST_ARMS.call(catalogue, query=query)

    @every_page
    def arms(
        self, catalogue: str, *, page_size: int = MOST_ON_A_PAGE
    ) -> Callable[[str | None], Call[Page[Arm]]]:
        """All arms, asked for page by page."""
        return lambda cursor: routes.LIST_ARMS.call(catalogue, query={"cursor": cursor, "limit": page_size})

    @endpoint
    def delete_arm(self, catalogue: str, arm: str) -> Call[None]:
        """Delete one arm. Raises NotFound."""
        return routes.DELETE_ARM.call(catalogue, arm)

    @endpoint
    def delete_arms(self, catalogue: str, ids: Iterable[str]) -> Steps[Deleted]:
        """Delete the arms that are there, in batches, and name those that are not."""
        items = (encoded(arm) for arm in checked_list("ids", ids, COLUMN))
        found = yield from send_all(batches("ids", items, IDS), sender(routes.DELETE_ARMS, catalogue))
        parts = [part for _, part in found]
        missing = tuple(arm for part in parts for arm in part.missing)
        return Deleted(sum(part.deleted for part in parts), missing, parts[-1].version)

    @endpoint
    def import_arms(self, catalogue: str, lines: bytes | Iterable[bytes]) -> Call[Upserted]:
        """Insert or replace arms of NDJSON, streamed: any size. Raises Invalid with the first bad line.

        Lines before it are applied, nothing after it is. A stream cannot be sent again by itself.
        """
        return routes.IMPORT_ARMS.call(catalogue, content=_streamed("lines", lines))

    @endpoint
    def import_blocks(self, catalogue: str, blocks: bytes | Iterable[bytes]) -> Call[Upserted]:
        """As ``import_arms``, of blocks of numbers: several times as fast. The format: docs/files.md.

        What is given as bytes can be sent again by itself, since the same arms change nothing.
        """
        return routes.IMPORT_BLOCKS.call(
            catalogue, content=_streamed("blocks", blocks), safe=isinstance(blocks, bytes)
        )

    @endpoint
    def make_embedding(self, catalogue: str, blocks: bytes | Iterable[bytes]) -> Call[Catalogue]:
        """Make a catalogue that follows this one, by an embedding that was computed: `shortlist embed` does.

        What is given as bytes can be sent again by itself.
        """
        return routes.MAKE_EMBEDDING.call(
            catalogue, content=_streamed("blocks", blocks), safe=isinstance(blocks, bytes)
        )

    # Bandits and learners

    @endpoint
    def put_bandit(self, bandit: str, **fields: Unpack[settings.BanditBody]) -> Call[Bandit]:
        """Make a bandit, or find that the same one exists. Raises Conflict if another one does.

        A field that is None is as absent, but for ``position``: None is none, and absent may be "auto".
        """
        self._matters.pop(bandit, None)
        return routes.PUT_BANDIT.call(bandit, body=fields)

    @endpoint
    def get_bandit(self, bandit: str) -> Call[Bandit]:
        """The settings of a bandit."""
        return routes.GET_BANDIT.call(bandit)

    @endpoint
    def list_bandits(self, *, cursor: str | None = None, limit: int = PAGE) -> Call[Page[Bandit]]:
        """One page of the bandits, by name."""
        return routes.LIST_BANDITS.call(query={"cursor": cursor, "limit": limit})

    @every_page
    def bandits(self, *, page_size: int = PAGE) -> Callable[[str | None], Call[Page[Bandit]]]:
        """All bandits by name, asked for page by page."""
        return lambda cursor: routes.LIST_BANDITS.call(query={"cursor": cursor, "limit": page_size})

    @endpoint
    def patch_bandit(
        self, bandit: str, *, if_match: str | None = None, **changes: Unpack[settings.BanditPatch]
    ) -> Call[Bandit]:
        """Change a bandit by a JSON merge patch; its learners are kept. None: back to the default.

        ``if_match``: the ``etag`` of what is changed; if it is another by now, PreconditionFailed is raised.
        Then a change whose answer is lost is not sent again: read the bandit. Raises NotChangeable.
        """
        self._matters.pop(bandit, None)
        tag = {} if if_match is None else {"if-match": if_match}
        return routes.PATCH_BANDIT.call(bandit, body=changes, safe=if_match is None, headers=tag)

    @endpoint
    def list_versions(
        self, bandit: str, *, cursor: str | None = None, limit: int = PAGE
    ) -> Call[Page[BanditVersion]]:
        """One page of what a bandit is and was, the newest first."""
        return routes.LIST_VERSIONS.call(bandit, query={"cursor": cursor, "limit": limit})

    @every_page
    def versions(
        self, bandit: str, *, page_size: int = PAGE
    ) -> Callable[[str | None], Call[Page[BanditVersion]]]:
        """All that a bandit is and was, the newest first."""
        return lambda cursor: routes.LIST_VERSIONS.call(bandit, query={"cursor": cursor, "limit": page_size})

    @endpoint
    def list_log(
        self,
        bandit: str,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        cursor: str | None = None,
        limit: int = PAGE,
        order: bodies.Order | None = None,
    ) -> Call[Page[LoggedDecision]]:
        """One page of the logged decisions made from ``start`` until before ``end``, the oldest first.

        ``order``: ``desc`` for the newest first; a cursor is of one order. Times without a zone are UTC,
        numbers are ms since 1970.
        """
        return routes.LIST_LOG.call(bandit, query=_log_query(start, end, cursor, limit, order))

    @every_page
    def log(
        self,
        bandit: str,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        page_size: int = PAGE,
        order: bodies.Order | None = None,
    ) -> Callable[[str | None], Call[Page[LoggedDecision]]]:
        """All logged decisions made from ``start`` until before ``end``, the oldest first.

        ``order``: ``desc`` for the newest first.
        """
        return lambda cursor: routes.LIST_LOG.call(
            bandit, query=_log_query(start, end, cursor, page_size, order)
        )

    @endpoint
    def list_learned(
        self,
        bandit: str,
        *,
        partition: int = 0,
        cursor: str | None = None,
        limit: int = PAGE,
        include: Literal["arms"] | None = None,
    ) -> Call[LearnedPage]:
        """Rewards, defaults and observations of a partition, in the order in which they are learned from.

        ``include``: also the arms that they name.
        """
        query = {"partition": partition, "cursor": cursor, "limit": limit, "include": include}
        return routes.LIST_LEARNED.call(bandit, query=query)

    @endpoint
    def list_revisions(self, bandit: str, *, cursor: str | None = None, limit: int = PAGE) -> Call[Revisions]:
        """The arms of the bandit's catalogue by their revisions: those that are new or changed come last."""
        return routes.LIST_REVISIONS.call(bandit, query={"cursor": cursor, "limit": limit})

    @endpoint
    def list_priors(
        self, bandit: str, *, cursor: str | None = None, limit: int = PAGE
    ) -> Call[PriorVersions]:
        """The versions of the learned prior that rows of the log may name, the oldest first."""
        return routes.LIST_PRIORS.call(bandit, query={"cursor": cursor, "limit": limit})

    @endpoint
    def get_terms(self, bandit: str, *, cursor: str | None = None) -> Call[LearningTerms]:
        """How rewards become what learners know; one of the moves of the bandit a page."""
        return routes.GET_TERMS.call(bandit, query={"cursor": cursor})

    @endpoint
    def report(
        self,
        bandit: str,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        bucket_s: int | None = None,
    ) -> Call[Report]:
        """What the policy and the holdout have earned by the log, from ``start`` until before ``end``.

        Times without a zone are UTC, numbers are ms since 1970. ``bucket_s``: also in pieces of
        this many seconds. A long log takes longer than the ``timeout_s`` of most clients.
        """
        query = {"from": _moment(start), "to": _moment(end), "bucket_s": bucket_s}
        return routes.REPORT.call(bandit, query=query)

    @endpoint
    def export_log(
        self,
        bandit: str,
        into: Sink,
        *,
        format: bodies.ExportFormat = "ndjson",  # noqa: A002 - the service's name for it
        start: Moment | None = None,
        end: Moment | None = None,
    ) -> Call[None]:
        """Write the log to a file that is open for bytes, a piece at a time; it may be of any length.

        Raises ConnectionFailed when the answer breaks off: then the file is not whole. NotInstalled: the
        service lacks what it needs for Parquet.
        """
        query = {"format": format, "from": _moment(start), "to": _moment(end)}
        return routes.EXPORT_LOG.call(bandit, query=query, into=into)

    @endpoint
    def explain(self, bandit: str, decision: str) -> Call[Explanation]:
        """Why a logged decision showed these arms; ``decision`` is its token. Raises NotFound."""
        return routes.EXPLAIN.call(bandit, body={"decision": decision})

    @endpoint
    def evaluate(
        self,
        bandit: str,
        policy: settings.BanditPatch,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        estimators: Sequence[bodies.Estimator] | None = None,
        learners: bodies.LearnersThen | None = None,
        signal_places: bool | None = None,
        propensities: bodies.Propensities | None = None,
    ) -> Call[Evaluation]:
        """What the bandit would have earned with another policy, on its log from ``start`` until ``end``.

        ``policy`` is what ``patch_bandit`` would change; nothing is. ``estimators``: all, unless some are
        named. ``learners``: whether decisions are weighed with what was known ``before`` them (unless asked
        otherwise), or ``now``. ``signal_places``: whether estimates of signals have their places too.
        ``propensities``: of decisions of Thompson sampling, which have none in the log, left out (``logged``,
        unless asked otherwise) or estimated (``draws``). Times without a zone are UTC. A long log takes
        longer than the ``timeout_s`` of most clients: ``start_evaluation`` does not wait.
        """
        body = _evaluation(policy, start, end, estimators, learners, signal_places, propensities)
        return routes.EVALUATE.call(bandit, body=body)

    @endpoint
    def start_evaluation(
        self,
        bandit: str,
        policy: settings.BanditPatch,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        estimators: Sequence[bodies.Estimator] | None = None,
        learners: bodies.LearnersThen | None = None,
        signal_places: bool | None = None,
        propensities: bodies.Propensities | None = None,
    ) -> Call[StartedEvaluation]:
        """As ``evaluate``, but the answer is an id at once: ``get_evaluation`` says how it stands."""
        body = _evaluation(policy, start, end, estimators, learners, signal_places, propensities)
        return routes.START_EVALUATION.call(bandit, body=body, query={"wait": "none"})

    @endpoint
    def list_evaluations(
        self, bandit: str, *, cursor: str | None = None, limit: int = PAGE
    ) -> Call[Page[EvaluationJob]]:
        """The evaluations of a bandit that were started, and go on or ended in the last hour."""
        return routes.LIST_EVALUATIONS.call(bandit, query={"cursor": cursor, "limit": limit})

    @endpoint
    def get_evaluation(self, bandit: str, evaluation: str) -> Call[EvaluationResult]:
        """How an evaluation stands that was started, and its result once it is done. Raises NotFound."""
        return routes.GET_EVALUATION.call(bandit, evaluation)

    @endpoint
    def delete_evaluation(self, bandit: str, evaluation: str) -> Call[None]:
        """Forget an evaluation; one that goes on is cancelled. Raises NotFound."""
        return routes.DELETE_EVALUATION.call(bandit, evaluation)

    @endpoint
    def start_embedding(
        self,
        bandit: str,
        *,
        catalogue: str,
        dim: int | None = None,
        every: str | None = None,
        signal: str | None = None,
    ) -> Call[StartedEmbedding]:
        """Judge coordinates made of the bandit's own log, and move it to ``catalogue`` if they gain.

        ``every``: judge again after this time until they do, such as ``"7d"``. ``signal``: the one that is
        judged, of a bandit with signals; None: their weighted sum.
        """
        body = {"catalogue": catalogue, "dim": dim, "every": every, "signal": signal}
        return routes.START_EMBEDDING.call(bandit, body=body)

    @endpoint
    def list_embeddings(
        self, bandit: str, *, cursor: str | None = None, limit: int = PAGE
    ) -> Call[Page[EmbeddingJobHead]]:
        """The jobs of ``start_embedding`` that go on, or ended in the last hour."""
        return routes.LIST_EMBEDDINGS.call(bandit, query={"cursor": cursor, "limit": limit})

    @endpoint
    def get_embedding(self, bandit: str, embedding: str) -> Call[EmbeddingJob]:
        """How it stands, and what was found once it is done. Raises NotFound."""
        return routes.GET_EMBEDDING.call(bandit, embedding)

    @endpoint
    def delete_embedding(self, bandit: str, embedding: str) -> Call[None]:
        """Forget it; one that goes on is cancelled. Raises NotFound."""
        return routes.DELETE_EMBEDDING.call(bandit, embedding)

    @endpoint
    def put_quota(
        self,
        bandit: str,
        quota: str,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        **fields: Unpack[bodies.QuotaBody],
    ) -> Call[Quota]:
        """Make a quota, or give it another ``most``, ``pace`` or ``to``. Raises Conflict for all else.

        ``start``, ``end``: the fields ``from``, which Python has as a word of its own, and ``to``.
        """
        times = {"from": _moment(start), "to": _moment(end)}
        given = {name: time for name, time in times.items() if time is not None}
        return routes.PUT_QUOTA.call(bandit, quota, body={**fields, **given})

    @endpoint
    def get_quota(self, bandit: str, quota: str) -> Call[Quota]:
        """A quota, and its counts in the current window."""
        return routes.GET_QUOTA.call(bandit, quota)

    @endpoint
    def list_quotas(self, bandit: str, *, cursor: str | None = None, limit: int = PAGE) -> Call[Page[Quota]]:
        """One page of the quotas of a bandit, by id."""
        return routes.LIST_QUOTAS.call(bandit, query={"cursor": cursor, "limit": limit})

    @every_page
    def quotas(self, bandit: str, *, page_size: int = PAGE) -> Callable[[str | None], Call[Page[Quota]]]:
        """All quotas of a bandit by id, asked for page by page."""
        return lambda cursor: routes.LIST_QUOTAS.call(bandit, query={"cursor": cursor, "limit": page_size})

    @endpoint
    def delete_quota(self, bandit: str, quota: str) -> Call[None]:
        """Delete a quota. One that is made again counts from 0."""
        return routes.DELETE_QUOTA.call(bandit, quota)

    @endpoint
    def delete_bandit(self, bandit: str) -> Call[None]:
        """Delete a bandit and all that it has learned."""
        self._matters.pop(bandit, None)
        return routes.DELETE_BANDIT.call(bandit)

    @endpoint
    def get_learner(
        self, bandit: str, key: str = GLOBAL_LEARNER, **query: Unpack[bodies.LearnerQuery]
    ) -> Call[Learner]:
        """What was learned for a key; ``include`` asks for a matrix too: precision, or directions."""
        return routes.GET_LEARNER.call(bandit, key, query=query)

    @endpoint
    def list_learners(
        self,
        bandit: str,
        *,
        cursor: str | None = None,
        limit: int = PAGE,
        include: Literal["state"] | None = None,
    ) -> Call[Page[LearnerCopy]]:
        """One page of the learners that have rewards; a page of large ones has fewer than ``limit``."""
        query = {"cursor": cursor, "limit": limit, "include": include}
        return routes.LIST_LEARNERS.call(bandit, query=query)

    @every_page
    def learners(
        self, bandit: str, *, page_size: int = PAGE, include: Literal["state"] | None = None
    ) -> Callable[[str | None], Call[Page[LearnerCopy]]]:
        """All learners that have rewards, asked for page by page."""
        query = {"limit": page_size, "include": include}
        return lambda cursor: routes.LIST_LEARNERS.call(bandit, query={**query, "cursor": cursor})

    @endpoint
    def put_learner(self, bandit: str, key: str = GLOBAL_LEARNER, *, state: str | bytes) -> Call[LearnerCopy]:
        """Give a learner without rewards the ``state`` of another one. Raises Conflict if it has rewards.

        ``state``: bytes, of any length, or their base64.
        """
        if isinstance(state, bytes):
            return routes.PUT_LEARNER_STATE.call(bandit, key, content=state)
        return routes.PUT_LEARNER.call(bandit, key, body={"state": state})

    @endpoint
    def get_learner_state(self, bandit: str, key: str = GLOBAL_LEARNER) -> Call[bytes]:
        """All that is stored of a learner, as ``put_learner`` takes it. Raises NotFound without rewards."""
        return routes.GET_LEARNER_STATE.call(bandit, key, headers={"accept": RAW})

    @endpoint
    def delete_learner(self, bandit: str, key: str = GLOBAL_LEARNER) -> Call[None]:
        """Forget a learner for good; rewards for its decisions so far are refused from now on."""
        return routes.DELETE_LEARNER.call(bandit, key)

    @endpoint
    def delete_visitor(self, bandit: str, visitor: str) -> Call[None]:
        """Erase rows, exposures and events of a visitor of a global bandit; what was learned stays.

        Repeat it when the tokens of the visitor have expired: a reward until then writes a row again.
        """
        return routes.DELETE_VISITOR.call(bandit, visitor)

    @endpoint
    def get_sets(self, bandit: str, key: str = GLOBAL_LEARNER) -> Call[Sets]:
        """What elimination has left of the arms for a learner."""
        return routes.GET_SETS.call(bandit, key)

    @endpoint
    def get_exposures(self, bandit: str, key: str) -> Call[Exposures]:
        """What counts for ``repeats``: what a key, or a visitor of a global bandit, has had.

        Raises NotFound: the bandit has no ``repeats``.
        """
        return routes.GET_EXPOSURES.call(bandit, key)

    @endpoint
    def list_policies(self) -> Call[Policies]:
        """The policies that a bandit can have, with their options and what they need."""
        return routes.LIST_POLICIES.call()

    @endpoint
    def get_prior(self, bandit: str, **query: Unpack[bodies.PriorQuery]) -> Call[Prior]:
        """What the keys of a bandit have in common, and how they differ; ``include`` asks for the covariance.

        Raises NotFound: the bandit has no learned prior.
        """
        return routes.GET_PRIOR.call(bandit, query=query)

    @endpoint
    def list_arm_effects(self, bandit: str, **query: Unpack[bodies.ArmEffectsQuery]) -> Call[ArmEffects]:
        """The arms that do better than their features say, or worse: ``order``.

        Raises NotFound: the bandit has no arm effects.
        """
        return routes.LIST_ARM_EFFECTS.call(bandit, query=query)

    @endpoint
    def get_arm_effect(self, bandit: str, arm: str) -> Call[OneArmEffect]:
        """What one arm has beyond its features. Raises NotFound: no such arm, or no arm effects."""
        return routes.GET_ARM_EFFECT.call(bandit, arm)

    @endpoint
    def move_bandit(self, bandit: str, **move: Unpack[bodies.MoveBody]) -> Call[Move]:
        """Move a bandit to another catalogue with other features of the same arms, and what was learned.

        ``dry_run`` says what would become of it. Raises Conflict: the features have too little in common, or
        learners are being carried by another move.
        """
        return routes.MOVE_BANDIT.call(bandit, body=move)

    @endpoint
    def refresh_prior(self, bandit: str) -> Call[Prior]:
        """Fit the learned prior now, and the arm effects, from all rewards that are applied."""
        return routes.REFRESH_PRIOR.call(bandit)

    # Choices and rewards

    @endpoint
    def choose(
        self, bandit: str, *, once: bool | None = None, **request: Unpack[bodies.ChooseBody]
    ) -> Steps[Choice]:
        """Choose up to k arms, the best first.

        ``once``: an answer that is lost on the way is asked for again, and is the same decision; for that an
        ``event_id`` is sent. By default so where it matters: for bandits that count a decision without reward
        (``wait_s``). Whether a bandit does is asked for once, with its first choice. False: a choice whose
        answer is lost is an error.
        """
        if "dry_run" in request:  # its answer has no decision
            raise InvalidArgument("dry_run is no field of a choice: call dry_run()")
        once = (yield from self._once(bandit)) if once is None else once
        if once and request.get("event_id") is None:
            request["event_id"] = secrets.token_hex(16)
        safe = request.get("event_id") is not None or self._is_harmless(bandit)
        choice = yield from routes.CHOOSE.call(bandit, body=request, safe=safe)
        self._compare_version(bandit, choice)
        return choice

    @endpoint
    def dry_run(self, bandit: str, **request: Unpack[bodies.DryRunRequest]) -> Call[DryRun]:
        """What ``choose`` would choose now, with what the learner knows of each arm; nothing is decided.

        With a ``seed`` it is what a choice with that seed would be. Needs a key of scope read.
        """
        body: bodies.DryRunBody = {**request, "dry_run": True}
        return routes.DRY_RUN.call(bandit, body=body)

    @endpoint
    def choose_batch(
        self,
        bandit: str,
        requests: Iterable[bodies.ChooseBody],
        *,
        once: bool | None = None,
        distinct: bool = False,
    ) -> Steps[Choices]:
        """Choose for several requests, in batches; an error of one is the error of its batch.

        ``distinct``: no request shows an arm that one before it shows; then all of them must fit into one
        batch.
        """
        given, safe = yield from self._choices(bandit, requests, once=once)
        parts = with_options(_parts(given), partial=False, distinct=distinct)
        found = yield from send_all(parts, sender(routes.CHOOSE_BATCH, bandit, safe=safe))
        choices = tuple(choice for _, part in found for choice in part.results)
        for choice in choices[:1]:
            self._compare_version(bandit, choice)
        return Choices(choices)

    @endpoint
    def choose_each(
        self,
        bandit: str,
        requests: Iterable[bodies.ChooseBody],
        *,
        once: bool | None = None,
        distinct: bool = False,
    ) -> Steps[tuple[Choice | ServiceError, ...]]:
        """``choose_batch`` that answers each request by itself: in place of a choice stands its error.

        What concerns a whole batch, such as the key or its size, is raised. Needs a service of 2.0.
        """
        given, safe = yield from self._choices(bandit, requests, once=once)
        parts = with_options(_parts(given), partial=True, distinct=distinct)
        return _each((yield from send_all(parts, sender(_CHOOSE_EACH, bandit, safe=safe))))

    @endpoint
    def choose_page(
        self, requests: Iterable[bodies.PageItem], *, once: bool | None = None, distinct: bool = False
    ) -> Steps[Choices]:
        """``choose_batch`` for requests of several bandits, each of which names its ``bandit``: the rows of a
        page. Needs a service of 3.0.
        """
        given, safe = yield from self._page(requests, once=once)
        parts = with_options(_parts(given), partial=False, distinct=distinct)
        found = yield from send_all(parts, sender(routes.CHOOSE_PAGE, safe=safe))
        choices = tuple(choice for _, part in found for choice in part.results)
        for request, choice in zip(given, choices, strict=False):
            self._compare_version(request["bandit"], choice)
        return Choices(choices)

    @endpoint
    def choose_page_each(
        self, requests: Iterable[bodies.PageItem], *, once: bool | None = None, distinct: bool = False
    ) -> Steps[tuple[Choice | ServiceError, ...]]:
        """``choose_page`` that answers each request by itself, as ``choose_each`` does."""
        given, safe = yield from self._page(requests, once=once)
        parts = with_options(_parts(given), partial=True, distinct=distinct)
        return _each((yield from send_all(parts, sender(_CHOOSE_PAGE_EACH, safe=safe))))

    @endpoint
    def activate(self, decisions: Iterable[str | bodies.DecisionItem]) -> Steps[Activation]:
        """Say that decisions made with ``activate=False`` were shown: from now on rewards count.

        Each is its token, or the event that it was made for: see ``reward``.
        """
        items = map(encoded, checked_list("decisions", decisions, COLUMN))
        found = yield from send_all(batches("decisions", items, ACTIVATIONS), sender(routes.ACTIVATE))
        parts = [part for _, part in found]
        activated, duplicate = sum(part.activated for part in parts), sum(part.duplicate for part in parts)
        return Activation(activated, duplicate, _rejected(found))

    @endpoint
    def reward(
        self,
        decision: str | bodies.DecisionItem,
        value: float = 1.0,
        arm: str | None = None,
        *,
        reward_id: str | None = None,
        signal: str | None = None,
        at: int | None = None,
        wait: bool = False,
    ) -> Steps[Receipt]:
        """Reward a decision. It counts once, however often it is sent. Raises RewardRejected.

        ``decision``: its token, or the event that it was made for, ``{"bandit": "home", "event_id": "o-17"}``
        with ``key`` of a bandit of scope per_key, and ``visitor`` where it was chosen with a pass.

        ``arm`` is needed where a token has several; of an event, the first is meant if it is absent.
        ``wait`` until it is applied. Bandits that add
        rewards up tell them apart by ``reward_id``, those with several rewards by ``signal``. ``at``: when it
        was so, in ms since 1970, now if absent: where the last reward counts, it is the one that is latest.
        """
        item = reward_item(decision, value, arm, reward_id=reward_id, signal=signal, at=at)
        (batch,) = batches("rewards", encoded_items([item], "reward"), REWARDS)
        receipt = yield from routes.REWARDS.call(content=batch.content, query=_waiting(wait))
        for rejected in receipt.rejected:
            raise RewardRejected(rejected.code)
        return receipt

    @endpoint
    def reward_batch(self, rewards: Iterable[bodies.RewardItem], *, wait: bool = False) -> Steps[Receipt]:
        """Send many rewards, in batches. The receipt names those that were rejected, by their number.

        Those without a time ``at`` are of now.
        """
        items = encoded_items(map(with_time, items_of("reward", rewards)), "reward")
        send = sender(routes.REWARDS, query=_waiting(wait))
        return _receipt((yield from send_all(batches("rewards", items, REWARDS), send)))

    @endpoint
    def observe(
        self, bandit: str, observations: Iterable[bodies.ObservationItem], *, wait: bool = False
    ) -> Steps[Receipt]:
        """Teach history, in batches, once per observation id and key."""
        items = encoded_items(observations, "observation")
        send = sender(routes.OBSERVE, bandit, query=_waiting(wait))
        return _receipt((yield from send_all(batches("observations", items, OBSERVATIONS), send)))

    # One-shot questions

    @endpoint
    def mips(self, catalogue: str, **question: Unpack[bodies.CatalogueMipsBody]) -> Call[MipsAnswer]:
        """The arms of largest inner product with ``query``, or the nearest ones."""
        return routes.MIPS.call(catalogue, body=question)

    @endpoint
    def mips_vectors(self, **question: Unpack[bodies.VectorsMipsBody]) -> Call[VectorsAnswer]:
        """The same among ``vectors`` of the request. More than 4 MB of JSON are sent as float32."""
        options: dict[str, Any] = dict(question)
        vectors, query = checked_list("vectors", options.pop("vectors"), VECTORS), options.pop("query")
        if not is_large(lambda: routes.MIPS_VECTORS.call(body=question), vectors):
            return routes.MIPS_VECTORS.call(body=question)
        if options.get("value_range") is not None:
            options["value_range"] = ",".join(map(str, options["value_range"]))
        options |= {"n": len(vectors), "dim": len(vectors[0])}
        return routes.MIPS_RAW.call(content=as_float32([query], vectors), query=options)

    @endpoint
    def mips_raw(self, numbers: bytes, **question: Unpack[bodies.VectorsMipsQuery]) -> Call[VectorsAnswer]:
        """The same among ``numbers``, little-endian float32: the query and then n x dim, row after row."""
        return routes.MIPS_RAW.call(content=numbers, query=question)

    @endpoint
    def sample(self, **question: Unpack[bodies.SampleBody]) -> Call[Draws]:
        """Draw rows x with p(x) proportional to exp(log_prior[x] + sum of log_factors[x]).

        More than 4 MB of JSON are sent as float32.
        """
        options: dict[str, Any] = dict(question)
        factors = checked_list("log_factors", options.pop("log_factors"), VECTORS)
        prior = options.pop("log_prior", None)
        if not is_large(lambda: routes.SAMPLE.call(body=question), factors):
            return routes.SAMPLE.call(body=question)
        options |= {"n": len(factors), "dim": len(factors[0])}
        numbers = as_float32(factors) if prior is None else as_float32(factors, [prior])
        return routes.SAMPLE_RAW.call(content=numbers, query=options)

    @endpoint
    def sample_arms(self, catalogue: str, **question: Unpack[bodies.CatalogueSampleBody]) -> Call[ArmDraws]:
        """Draw arms with p proportional to exp(query.x / temperature)."""
        return routes.SAMPLE_ARMS.call(catalogue, body=question)

    @endpoint
    def find_centers(self, catalogue: str, **question: Unpack[bodies.CentersBody]) -> Call[Centers]:
        """``k`` arms that cover the catalogue."""
        return routes.FIND_CENTERS.call(catalogue, body=question)

    # Campaigns

    @endpoint
    def create_slates(self, **settings: Unpack[bodies.SlateBody]) -> Call[SlateCampaign]:
        """Make a campaign for the k best arms, or find that the same one exists. Raises Conflict."""
        return routes.CREATE_SLATES.call(body=settings)

    @endpoint
    def get_slates(self, campaign: str) -> Call[SlateCampaign]:
        """Where a campaign stands."""
        return routes.GET_SLATES.call(campaign)

    @endpoint
    def list_slates(self, *, cursor: str | None = None, limit: int = PAGE) -> Call[Page[CampaignName]]:
        """One page of the campaigns, by id."""
        return routes.LIST_SLATES.call(query={"cursor": cursor, "limit": limit})

    @every_page
    def slates(self, *, page_size: int = PAGE) -> Callable[[str | None], Call[Page[CampaignName]]]:
        """All campaigns by id, asked for page by page."""
        return lambda cursor: routes.LIST_SLATES.call(query={"cursor": cursor, "limit": page_size})

    @endpoint
    def delete_slates(self, campaign: str) -> Call[None]:
        """Delete a campaign with its results."""
        return routes.DELETE_SLATES.call(campaign)

    @endpoint
    def ask_slates(self, campaign: str, **request: Unpack[bodies.AskBody]) -> Call[Pulls]:
        """Which slates to show next."""
        return routes.ASK_SLATES.call(campaign, body=request)

    @endpoint
    def tell_slates(self, campaign: str, results: Iterable[bodies.ResultItem]) -> Steps[SlateTold]:
        """Totals, in any order and in batches; of each pull the first one counts."""
        items = encoded_items(results, "result")
        found = yield from send_all(batches("results", items, RESULTS), sender(routes.TELL_SLATES, campaign))
        told = [part for _, part in found]
        observed, duplicate = sum(each.observed for each in told), sum(each.duplicate for each in told)
        return SlateTold(observed, duplicate, told[-1].done, told[-1].outside)

    @endpoint
    def teach_slates(
        self, campaign: str, *, wait: bool = False, **request: Unpack[bodies.TeachBody]
    ) -> Call[Receipt]:
        """A learner takes up, once, what a finished campaign found out."""
        return routes.TEACH_SLATES.call(campaign, body=request, query=_waiting(wait))

    @endpoint
    def create_centers(self, **settings: Unpack[bodies.CenterCampaignBody]) -> Call[CenterCampaign]:
        """Make a campaign for k centres, or find that the same one exists. Raises Conflict."""
        return routes.CREATE_CENTERS.call(body=settings)

    @endpoint
    def get_centers(self, campaign: str) -> Call[CenterCampaign]:
        """Where a campaign stands."""
        return routes.GET_CENTERS.call(campaign)

    @endpoint
    def list_centers(self, *, cursor: str | None = None, limit: int = PAGE) -> Call[Page[CampaignName]]:
        """One page of the campaigns, by id."""
        return routes.LIST_CENTERS.call(query={"cursor": cursor, "limit": limit})

    @every_page
    def centers(self, *, page_size: int = PAGE) -> Callable[[str | None], Call[Page[CampaignName]]]:
        """All campaigns by id, asked for page by page."""
        return lambda cursor: routes.LIST_CENTERS.call(query={"cursor": cursor, "limit": page_size})

    @endpoint
    def delete_centers(self, campaign: str) -> Call[None]:
        """Delete a campaign with its answers."""
        return routes.DELETE_CENTERS.call(campaign)

    @endpoint
    def ask_centers(self, campaign: str, **request: Unpack[bodies.AskQueriesBody]) -> Call[Queries]:
        """Which distances to measure next."""
        return routes.ASK_CENTERS.call(campaign, body=request)

    @endpoint
    def tell_centers(self, campaign: str, results: Iterable[bodies.DistanceItem]) -> Steps[CenterTold]:
        """Distances, in any order and in batches; of each query the first one counts."""
        items = encoded_items(results, "result")
        found = yield from send_all(batches("results", items, RESULTS), sender(routes.TELL_CENTERS, campaign))
        told = [part for _, part in found]
        observed, duplicate = sum(each.observed for each in told), sum(each.duplicate for each in told)
        return CenterTold(observed, duplicate, told[-1].done)

    # Operations

    @endpoint
    def health(self) -> Call[Health]:
        """The process is alive."""
        return routes.HEALTH.call()

    @endpoint
    def ready(self) -> Call[Ready]:
        """Requests can be served. Raises Unavailable."""
        return routes.READY.call()

    @endpoint
    def metrics(self) -> Call[str]:
        """Counters and gauges, as Prometheus reads them."""
        return routes.METRICS.call()

    @endpoint
    def status(self) -> Call[Status]:
        """What is running, and how much of it there is."""
        return routes.STATUS.call()

    @endpoint
    def root(self) -> Call[Root]:
        """Who answers at the address; needs no key."""
        return routes.ROOT.call()

    def _choices(
        self, bandit: str, requests: Iterable[bodies.ChooseBody], *, once: bool | None
    ) -> Steps[tuple[list[bodies.ChooseBody], bool]]:
        """The requests of a batch, with events if choices are made once; whether they may be sent again."""
        once = (yield from self._once(bandit)) if once is None else once
        given = list(items_of("request", requests))
        if once:
            given = [{"event_id": secrets.token_hex(16), **_named(request)} for request in given]
        return given, self._is_harmless(bandit) or all(request.get("event_id") for request in given)

    def _page(
        self, requests: Iterable[bodies.PageItem], *, once: bool | None
    ) -> Steps[tuple[list[bodies.PageItem], bool]]:
        """``_choices`` of requests that name their bandits."""
        given, safe = list[bodies.PageItem](), True
        for request in items_of("request", requests):
            matters, bandit = once, request.get("bandit")
            if matters is None and bandit is not None:
                with suppress(NotFound):  # the service says which request it is
                    matters = yield from self._once(bandit)
            is_event = request.get("event_id") is not None
            if matters and not is_event:
                given.append({**request, "event_id": secrets.token_hex(16)})
                continue
            given.append(request)
            safe = safe and (is_event or (bandit is not None and self._is_harmless(bandit)))
        return given, safe

    def _once(self, bandit: str) -> Steps[bool]:
        """Whether it matters that a choice is made once: asked for once, and taken for granted if secret."""
        if bandit not in self._matters:
            try:
                found = yield from routes.GET_BANDIT.call(bandit)
            except Forbidden:
                self._matters[bandit] = True, None
            else:
                self._matters[bandit] = found.reward.get("wait_s") is not None, found.version
        return self._matters[bandit][0]

    def _is_harmless(self, bandit: str) -> bool:
        """A choice that nobody saw is known to teach nothing."""
        return bandit in self._matters and not self._matters[bandit][0]

    def _compare_version(self, bandit: str, choice: Choice) -> None:
        """Ask again when a choice shows that the bandit was changed."""
        known = self._matters.get(bandit, (False, None))[1]
        if known is not None and choice.bandit_version not in {known, None}:
            del self._matters[bandit]


def _streamed(name: str, content: bytes | Iterable[bytes]) -> bytes | Iterable[bytes]:
    return content if isinstance(content, bytes | str) else checked_list(name, content, "its rows as bytes")


@dataclass(frozen=True, slots=True)
class _Results:
    """Of a batch with ``partial``: choices, and what has the field ``error``."""

    results: tuple[Mapping[str, Any], ...]


_CHOOSE_EACH = Route("POST", routes.CHOOSE_BATCH.path, _Results, routes.CHOOSE_BATCH.repeat)
_CHOOSE_PAGE_EACH = Route("POST", routes.CHOOSE_PAGE.path, _Results, routes.CHOOSE_PAGE.repeat)
_choice_of = decoder(Choice)


def _parts(requests: Sequence[bodies.ChooseBody]) -> Iterable[Batch]:
    """Batches of choices."""
    arms = (_arms(request.get("k")) for request in requests)
    return batches("requests", encoded_items(requests, "request"), CHOICES, arms)


def _each(found: Sequence[tuple[int, _Results]]) -> tuple[Choice | ServiceError, ...]:
    """The choices of batches with ``partial``, and the errors of the requests that have none."""
    results = list[Choice | ServiceError]()
    for first, part in found:
        for number, each in enumerate(part.results, first):
            if "error" in each:
                error = problem_error(f"request {number}", each["error"])
                error.moved(first, applied=False)
                results.append(error)
            else:
                results.append(_choice_of(each))
    return tuple(results)


def _named(request: bodies.ChooseBody) -> bodies.ChooseBody:
    """Without an event_id of None, which would stand in the way of a new one."""
    found = request.copy()
    if found.get("event_id") is None:
        found.pop("event_id", None)
    return found


def _log_query(
    start: Moment | None, end: Moment | None, cursor: str | None, limit: int, order: bodies.Order | None
) -> bodies.LogQuery:
    return {"from": _moment(start), "to": _moment(end), "cursor": cursor, "limit": limit, "order": order}


def _evaluation(  # noqa: PLR0917 - as the two calls have them
    policy: settings.BanditPatch,
    start: Moment | None,
    end: Moment | None,
    estimators: Sequence[bodies.Estimator] | None,
    learners: bodies.LearnersThen | None,
    signal_places: bool | None,
    propensities: bodies.Propensities | None,
) -> Mapping[str, object]:
    return {
        "policy": policy,
        "from": _moment(start),
        "to": _moment(end),
        "estimators": estimators,
        "learners": learners,
        "signal_places": signal_places,
        "propensities": propensities,
    }


def _moment(moment: Moment | None) -> str | None:
    if moment is None:
        return None
    try:
        if not isinstance(moment, datetime):
            moment = _EPOCH + timedelta(milliseconds=moment)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument("start and end must be datetimes, or ms since 1970") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).isoformat()


def _arms(k: object) -> int:
    """How many arms a choice asks for; what is no number is the service's to refuse."""
    return k if isinstance(k, int) else 1


def _waiting(wait: bool) -> dict[str, str]:
    return {"wait": "applied"} if wait else {}


def _receipt(found: Sequence[tuple[int, Receipt]]) -> Receipt:
    accepted = sum(part.accepted for _, part in found)
    duplicate = sum(part.duplicate for _, part in found)
    return Receipt(accepted, duplicate, _rejected(found))


def _rejected(found: Sequence[tuple[int, Receipt | Activation]]) -> tuple[Rejected, ...]:
    """Of all batches, by their numbers in the whole list."""
    return tuple(Rejected(first + item.index, item.code) for first, part in found for item in part.rejected)
