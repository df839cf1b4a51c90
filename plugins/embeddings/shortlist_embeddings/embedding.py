"""`shortlist embed`: a catalogue of the same arms, by an embedding of what keys liked.

The embedding is computed here, from files; the service makes a catalogue of it in one step, fills it, and
encodes later arms. Nothing is changed before this step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shortlist.embedding import table_map, unliked_arms
from shortlist.embedding.behaviour import ArmEmbedding, embed
from shortlist.embedding.real_share import real_dim, real_share
from shortlist.embedding.table_map import TableMap
from shortlist.errors import InvalidParameter
from shortlist.linear import history_prior
from shortlist_client import Client, errors
from shortlist_client.answers import Arm, Catalogue
from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_embeddings.behaviour import Behaviour, read_behaviour
from shortlist_embeddings.likes import UselessHistory, likes_of
from shortlist_files import HistoryOptions
from shortlist_files.exporting import pages
from shortlist_files.history import ms_of
from shortlist_files.versions import check_version
from shortlist_service.catalogues import (
    MAX_BASIS_NUMBERS,
    MAX_FEATURES,
    MAX_PRIOR_DIM,
    HistoryPriorRecord,
    history_record,
)
from shortlist_service.errors import ShortlistError

LEAST_AUTO_DIM, MOST_AUTO_DIM = 32, 128  # of "auto"
SEED = 0
PAGE = 1_000
BLOCK_ARMS = 1_000
HEAD_BYTES = 4
FILL_S, LOOK_S = 600.0, 0.2
JUDGE_LOOK_S = 0.5
SHOWN_ARMS, SHOWN_NEAREST = 10, 3
USELESS = UselessHistory(
    "--history: all {rows} are of arms that the catalogue has not, such as {arm}: does --arm-column name the "
    "ids of the arms?",
    "--history: no row says that a key liked an arm of the catalogue, with a value above 0, or from --liked "
    "on",
    "--history: all that keys liked is one arm, which says nothing about the others",
    "--history: no key likes two arms, so nothing tells which arms the same keys like: is --key-column who "
    "it was, and no visit or order?",
)


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """``dim`` None: as many as are real. ``liked``: values from here on count as liked.

    ``move``: a bandit to move over afterwards.

    ``prior``: whether the catalogue is given what the history says of keys.

    ``since``: the metadata field that says when an arm came; the history has times then.
    """

    history: HistoryOptions
    dim: int | None
    liked: float | None = None
    move: str | None = None
    since: str | None = None
    prior: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class _Arms:
    """The arms of the followed catalogue. Shapes: table (arms, T), since_ms (arms,), -inf: always."""

    ids: list[str]
    titles: list[str]
    table: NDArray[np.float32]
    since_ms: NDArray[np.float64]


def embed_history(
    client: Client, source: str, name: str, files: Sequence[Path], options: EmbedOptions
) -> Iterator[str]:
    """Make the catalogue ``name``, which follows ``source``; lines that say what was done.

    Raises ShortlistError; errors of the client and its files.
    """
    check_version(client)
    catalogue = client.get_catalogue(source)
    _check(client, catalogue, name, options)
    arms = _read_arms(client, catalogue, options.since)
    numbers = {arm_id: number for number, arm_id in enumerate(arms.ids)}
    timed = options.since is not None
    behaviour = read_behaviour(files, options.history, numbers, liked=options.liked, timed=timed)
    most_dim = min(MOST_AUTO_DIM, MAX_BASIS_NUMBERS // catalogue.dim)
    embedding, by_key = _embedded(behaviour, len(arms.ids), options.dim, most_dim)
    yield from behaviour.lines
    likes, key_count = embedding.likes, by_key.shape[0]
    table_to_embedding = table_map.fit(arms.table, embedding.vectors, likes, np.random.default_rng(SEED))
    liked = np.flatnonzero(likes)
    without = len(likes) - len(liked)
    counts = {"rewards": int(likes.sum()), "keys": key_count, "arms": len(liked), "without": without}
    yield (
        f"{counted(key_count, 'key', 'keys')} liked {len(liked):,} of {len(likes):,} arms, "
        f"{counted(counts['rewards'], 'time', 'times')}; "
        f"{counted(embedding.vectors.shape[1], 'number keeps', 'numbers keep')} {embedding.share:.0%} of it"
    )
    if behaviour.unknown:
        unknown = counted(behaviour.unknown, "row is", "rows are")
        yield f"{unknown} of arms that {source} has not, such as {behaviour.unknown_arm}, and left out"
    share = _share_of_unliked(arms, embedding, table_to_embedding, key_count, behaviour.span_ms)
    yield (
        f"{counted(without, 'arm was', 'arms were')} liked by nobody: their features come from their fields, "
        f"which explain {table_to_embedding.r2:.0%} of the embedding"
    )
    yield from _unliked_lines(share[likes == 0])
    if options.history.dry_run:
        yield from _nearest(arms, embedding)
        yield "dry run: nothing was made"
        return
    # Arms that were passed over have likes of zeros.
    weights = np.where(likes > 0, likes, unliked_arms.passed_over(share, table_to_embedding.kappa))
    prior = _prior(by_key, embedding) if options.prior else None
    head = {"catalogue": name, "version": catalogue.version, "prior": prior, **counts}
    body = body_of(head, table_to_embedding, arms.ids, weights, embedding.vectors)
    created = client.make_embedding(source, body)
    wait_filled(client, name, catalogue.size)
    features = counted(created.dim, "feature", "features")
    yield f"{name} has the arms of {source} with {features} each, and follows it"
    if prior is not None:
        yield f"new bandits on {name} begin with what {prior.keys:,} keys have in common"
    if options.move is not None:
        yield from _move(client, options.move, source, name)


def _move(client: Client, bandit: str, source: str, name: str) -> Iterator[str]:
    """Move a bandit of ``source`` to the catalogue ``name``; lines that say what was done."""
    try:
        done = client.move_bandit(bandit, catalogue=name)
    except errors.TooDifferent:
        raise ShortlistError(
            f"--then-move: {name} was made, and {bandit} was not moved to it (too_different): the features "
            f"of {source} say hardly anything of those of {name}. Make a new bandit with {name}: it begins "
            f"with what the history says of people. Or `shortlist move {bandit} {name} --carry none`: then "
            "its learners begin from nothing, and no row counts again"
        ) from None
    learners = counted(done.learners, "learner", "learners")
    yield f"{bandit} moved from {done.from_} to {done.to}: {learners}, {done.carry}"
    yield from (f"- {warning}" for warning in done.warnings)


def embed_log(client: Client, bandit: str, catalogue: str, dim: int | None, signal: str | None) -> str:
    """Have the log of a bandit judged; what was found. Raises ShortlistError, errors of the client."""
    check_version(client)
    job = client.start_embedding(bandit, catalogue=catalogue, dim=dim, signal=signal).id
    while (answer := client.get_embedding(bandit, job)).state in {"waiting", "running"}:
        time.sleep(JUDGE_LOOK_S)
    if answer.result is None:
        raise ShortlistError(answer.error or "it failed")
    return answer.result.finding


def _check(client: Client, source: Catalogue, name: str, options: EmbedOptions) -> None:
    """The checks before anything is read."""
    dim = 1 if options.dim is None else options.dim
    if not 1 <= dim <= MAX_FEATURES:
        raise ShortlistError(f"--dim: must be from 1 to {MAX_FEATURES:,}")
    if "collection" in source.index:
        raise ShortlistError(
            f"--from: the arms of {source.id} are in an engine, and an embedding needs them in memory"
        )
    if not source.size:
        raise ShortlistError(f"--from: {source.id} has no arms")
    if source.follows is not None:
        raise ShortlistError(f"--from: {source.id} follows {source.follows}: name that")
    if dim * source.dim > MAX_BASIS_NUMBERS:
        most = MAX_BASIS_NUMBERS // source.dim
        features = counted(source.dim, "feature", "features")
        raise ShortlistError(f"--dim: at most {most:,} where arms have {features}")
    if options.liked is not None:
        _check_liked(options.liked, options.history)
    if not options.history.dry_run:
        try:
            client.get_catalogue(name)
        except errors.NotFound:
            pass
        else:
            raise ShortlistError(f"--catalogue: {name} exists already; name another one, or delete it")
    if options.move is not None:
        bandit = client.get_bandit(options.move)
        if bandit.catalogue != source.id:
            raise ShortlistError(
                f"--then-move: {bandit.id} has the catalogue {bandit.catalogue}, not {source.id}"
            )


def _check_liked(liked: float, history: HistoryOptions) -> None:
    if history.value is None:
        raise ShortlistError("--liked: name the column of these values with --value-column")
    if not math.isfinite(liked):
        raise ShortlistError("--liked: must be a finite number")


def _read_arms(client: Client, source: Catalogue, since: str | None) -> _Arms:
    field = None if source.display is None else source.display.title
    ids, titles, tables, times = list[str](), list[str](), list[NDArray[np.float32]](), list[float]()
    with meter("arms", source.size, "arms") as advance:
        for page in pages(lambda cursor: client.list_arms(source.id, cursor=cursor, limit=PAGE)):
            if not page:
                continue
            ids += [arm.id for arm in page]
            titles += [str(arm.metadata.get(field, arm.id)) if field else arm.id for arm in page]
            tables.append(np.array([arm.features for arm in page], dtype=np.float32))
            times += [_since_ms(arm, since) for arm in page]
            advance(len(page))
    # An arm changed while pages were read comes again at the end, in its last state.
    last = {arm_id: number for number, arm_id in enumerate(ids)}
    places = list(last.values())
    table = np.concatenate(tables)[places]
    if table.shape[1] != source.dim:
        raise ShortlistError(f"--from: the features of {source.id} are not fitted yet")
    return _Arms(
        [ids[number] for number in places],
        [titles[number] for number in places],
        table,
        np.array(times)[places],
    )


def _since_ms(arm: Arm, field: str | None) -> float:
    """When an arm came; one that does not say it was always there."""
    value = None if field is None else arm.metadata.get(field)
    if value is None:
        return -math.inf
    try:
        return ms_of(value)
    except ValueError as error:
        raise ShortlistError(f"--since: {field} of {arm.id} {error}") from None


def _embedded(
    behaviour: Behaviour, arm_count: int, dim: int | None, most_dim: int
) -> tuple[ArmEmbedding, sparse.csr_array]:
    """The embedding, and what each key with a like liked. ``most_dim``: where ``dim`` is to be found."""
    liked, _ = likes_of(behaviour, arm_count, USELESS, least_keys=1)
    keys, arms = liked.shape[0], len(np.unique(liked.indices))
    if dim is None:
        least_dim = min(LEAST_AUTO_DIM, most_dim)
        dim = real_dim(liked, np.random.default_rng(SEED), least=least_dim, most=most_dim)
    # Keys with the same likes, and arms that the same keys like, are not told apart either.
    least = min(keys, arms)
    if dim <= least:
        try:
            return embed(liked, dim, np.random.default_rng(SEED)), liked
        except InvalidParameter:
            least = dim - 1
    raise ShortlistError(
        f"--dim: {dim} is more than this history tells apart: at most {least:,}, as "
        f"{counted(keys, 'key likes', 'keys like')} {arms:,} different arms"
    )


def _prior(liked: sparse.csr_array, embedding: ArmEmbedding) -> HistoryPriorRecord | None:
    """The prior of keys by the history; None: of too few, of too many numbers, or keys do not differ."""
    if embedding.vectors.shape[1] > MAX_PRIOR_DIM:
        return None
    share = real_share(liked, embedding.vectors.shape[1], np.random.default_rng(SEED))
    prior = history_prior.of_embedding(liked, embedding.vectors, share)
    return None if prior is None else history_record(prior)


def _share_of_unliked(
    arms: _Arms,
    embedding: ArmEmbedding,
    table_to_embedding: TableMap,
    key_count: int,
    span_ms: tuple[float, float] | None,
) -> NDArray[np.float64]:
    """The share of arms without likes in the estimate by their fields. Shape: (arms,)."""
    exposure = np.ones(len(arms.ids))
    if span_ms is not None:
        first, last = span_ms
        exposure = np.clip((last - arms.since_ms) / max(last - first, 1.0), 0.0, 1.0)
    expected = table_to_embedding.expected(arms.table)
    return unliked_arms.shares(expected, embedding.vectors, embedding.likes, key_count, exposure=exposure)


def _unliked_lines(share: NDArray[np.float64]) -> Iterator[str]:
    """Sentences on arms without likes. Shape: share (k,)."""
    passed_over, full_count = share[share < 1.0], np.count_nonzero(share == 1.0)
    if len(passed_over):
        count = counted(
            len(passed_over), "of these was passed over, and gets", "of these were passed over, and get"
        )
        yield (
            f"{count} {passed_over.mean():.1%} of that"
            + (f"; {full_count:,} came later than the history, and get all of it" if full_count else "")
        )


def body_of(
    head: Mapping[str, Any],
    table_to_embedding: TableMap,
    ids: Sequence[str],
    likes: NDArray[np.floating],
    vectors: NDArray[np.floating],
) -> bytes:
    """The body of ``POST …/embeddings``; ``head``: the other fields of its first block.

    ``likes``: the weight of each vector, 0 of unknown ones. Shapes: likes (arms,), vectors (arms, d).
    """
    body = {
        **head,
        "linear": table_to_embedding.linear.astype("<f4").tobytes(),
        "shift": table_to_embedding.shift.astype("<f4").tobytes(),
        "kappa": table_to_embedding.kappa,
    }
    liked_rows = np.flatnonzero(likes)
    parts: list[dict[str, object]] = [body]
    for start in range(0, len(liked_rows), BLOCK_ARMS):
        rows = liked_rows[start : start + BLOCK_ARMS]
        parts.append(
            {
                "ids": [ids[row] for row in rows.tolist()],
                "likes": likes[rows].astype("<f4").tobytes(),
                "vectors": vectors[rows].astype("<f4").tobytes(),
            }
        )
    blocks = map(msgspec.msgpack.encode, parts)
    return b"".join(len(block).to_bytes(HEAD_BYTES, "little") + block for block in blocks)


def wait_filled(client: Client, name: str, size: int) -> None:
    """Return once the catalogue has had all arms."""
    until, before = time.monotonic() + FILL_S, 0
    with meter("filled", size, "arms") as advance:
        while not (catalogue := client.get_catalogue(name)).filled:
            advance(catalogue.size - before)
            before = catalogue.size
            if time.monotonic() > until:
                raise ShortlistError(
                    f"{name} was made, and has only {catalogue.size:,} arms after {FILL_S:.0f} s"
                )
            time.sleep(LOOK_S)
        advance(catalogue.size - before)


def _nearest(arms: _Arms, embedding: ArmEmbedding) -> Iterator[str]:
    """The nearest of the arms that most keys liked, by the angle between them."""
    lengths = np.linalg.norm(embedding.vectors, axis=1, keepdims=True)
    directions = embedding.vectors / np.maximum(lengths, np.finfo(float).tiny)
    for row in np.argsort(-embedding.likes, kind="stable")[:SHOWN_ARMS].tolist():
        cosines = directions @ directions[row]
        cosines[row] = -np.inf
        nearest = np.argsort(-cosines, kind="stable")[:SHOWN_NEAREST].tolist()
        yield f"near {arms.titles[row]}: {', '.join(arms.titles[other] for other in nearest)}"
