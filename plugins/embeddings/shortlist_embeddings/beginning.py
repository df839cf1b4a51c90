"""`shortlist begin`: from a table of items and a table of clicks to a bandit that knows both.

The command does the work of `import --encode`, `embed` and two calls, and first says their worth: a fifth of
the keys is held out, and their likes are looked for. Nothing is made before all of the files are read and
found right. Then each step can be repeated: the same command goes on where it was stopped.

The results for NAME
    catalogue NAME          the items, with fields that the columns propose: write items here
    catalogue NAME-likes    follows it; features are blocks of ``shortlist.embedding.blocks``, with a prior
    bandit NAME             of NAME-likes, with a log, and a holdout that is served bestsellers
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from scipy import sparse

from shortlist.embedding import feature_prior, held_out
from shortlist.embedding.blocks import BLOCKS, TABLE, FeatureBlocks, make_blocks, real_directions
from shortlist.embedding.held_out import Comparison
from shortlist.embedding.item_to_item import list_length
from shortlist.linear.history_prior import HistoryPrior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist_client import Client, errors
from shortlist_client.answers import Catalogue
from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_client.settings import BanditBody
from shortlist_embeddings import embedding
from shortlist_embeddings.behaviour import Behaviour, read_behaviour
from shortlist_embeddings.likes import UselessHistory, likes_of
from shortlist_files import (
    FileError,
    HistoryOptions,
    ImportOptions,
    import_arms,
    propose_tables,
)
from shortlist_files.versions import check_version
from shortlist_service.catalogues import (
    MAX_BASIS_NUMBERS,
    NO_FEATURES,
    FeatureEncoding,
    FeaturesRule,
    completed,
    history_record,
)
from shortlist_service.errors import ShortlistError
from shortlist_service.learners import LearnerState, state_to_bytes

MOST_NUMBERS = 255  # of an arm, and an intercept: what a bandit with keys takes
MOST_DIRECTIONS = 128
SEED = embedding.SEED
HOLDOUT, SHOWN_BESTSELLERS = 0.1, 100
MOST_TAUGHT_BYTES = 128_000_000  # of learners
REWARDS_A_LIKE = 10.0
LEAST_KEYS = 20  # with two likes: of a fifth less there is a prior
CLEAR = 2.0  # standard errors
ENOUGH = "in data that we know 100 keys with 13 to 60 likes each were enough, 400 with 9 to 18 were not"


@dataclass(frozen=True, slots=True)
class BeginOptions:
    """``liked``: values from here on count as liked. ``blocks``: of features, ``BLOCKS`` of the library.

    ``bad_as_missing``: columns of the items whose bad cells are missing ones. ``people``: whether those of
    the history begin with what they liked.
    """

    items: Path
    id: str
    files: Sequence[Path]
    history: HistoryOptions
    blocks: Sequence[str] = BLOCKS
    liked: float | None = None
    bad_as_missing: Sequence[str] = ()
    people: bool = False

    @property
    def table(self) -> ImportOptions:
        return ImportOptions(
            self.id,
            encoding=self.history.encoding,
            bad_as_missing=self.bad_as_missing,
            encode=True,
            dry_run=self.history.dry_run,
            skip_bad=self.history.skip_bad,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """The content of the two tables. Shapes: table (arms, t); liked is keys x arms. ``keys``: their names,
    ``lines``: sentences about them.
    """

    settings: Mapping[str, Any]
    ids: list[str]
    table: NDArray[np.float64]
    liked: sparse.csr_array
    keys: Sequence[str]
    lines: Sequence[str]

    @property
    def most_directions(self) -> int:
        """The bound on directions of behaviour, beside the table, the likes and an intercept. Raises
        ShortlistError: none.
        """
        numbers = int(self.table.shape[1])
        most = min(MOST_DIRECTIONS, MOST_NUMBERS - numbers - 2, MAX_BASIS_NUMBERS // numbers - 1)
        if most < 1:
            raise ShortlistError(
                f"--items: its columns make {numbers:,} numbers, and a bandit with keys takes "
                f"{MOST_NUMBERS}: leave out some columns of texts or of many values"
            )
        return most


def begin(client: Client, name: str, options: BeginOptions) -> Iterator[str]:
    """Make a bandit of two tables; lines that say what was found and done.

    Raises ShortlistError; errors of the client and its files.
    """
    check_version(client)
    _check_name(client, name)
    read = _read(options)
    yield from read.lines
    comparison = held_out.compare(
        read.liked,
        read.table,
        np.random.default_rng(SEED),
        blocks=options.blocks,
        most_directions=read.most_directions,
    )
    yield from _table(comparison)
    if options.history.dry_run:
        yield from (*_verdict(comparison), "dry run: nothing was made")
        return
    yield from _make(client, name, options, read, is_wide=comparison.directions == read.most_directions)
    yield from _next_calls(client, name)
    yield from _verdict(comparison)


def _check_name(client: Client, name: str) -> None:
    """Raises ShortlistError: there is a bandit of this name, or a catalogue that is in the way."""
    try:
        client.get_bandit(name)
    except errors.NotFound:
        pass
    else:
        raise ShortlistError(f"NAME: there is a bandit {name} already: use another name")
    try:
        likes = client.get_catalogue(_likes(name))
    except errors.NotFound:
        return
    if likes.follows != name:
        raise ShortlistError(f"NAME: there is a catalogue {likes.id} already: use another name")


def _likes(name: str) -> str:
    return f"{name}-likes"


def _read(options: BeginOptions) -> _Read:
    """Both tables. Raises ShortlistError: what is wrong, of the items first, by the names of our options."""
    try:
        return _read_files(options)
    except FileError as error:
        text = str(error).replace("--encode: ", f"--items: {options.items.name}: ")
        raise ShortlistError(re.sub("--(key|arm|value|at)-column", r"--\1", text)) from None


def _read_files(options: BeginOptions) -> _Read:
    proposed = propose_tables([options.items], options.table)
    rule, _ = completed(TypeAdapter(FeaturesRule).validate_python(proposed.settings["features"]))
    encoding = FeatureEncoding(rule, None, 0)
    rows = {
        arm_id: encoding.raw(NO_FEATURES, tags, metadata)  # of an id that comes again the last row counts
        for some in proposed.arms.rows()
        for arm_id, tags, metadata in zip(some.ids, some.tags, some.metadata, strict=True)
    }
    numbers = {arm_id: number for number, arm_id in enumerate(rows)}
    timed = options.history.at is not None
    behaviour = read_behaviour(options.files, options.history, numbers, liked=options.liked, timed=timed)
    liked, liking = _liked(behaviour, list(rows), options)
    keys = [behaviour.key_names[number] for number in liking.tolist()]
    arms = len(np.unique(liked.indices))
    times = counted(liked.nnz, "time", "times")
    lines = [
        *proposed.lines,
        *behaviour.lines,
        f"{counted(liked.shape[0], 'key', 'keys')} liked {arms:,} of {len(rows):,} items, {times}",
    ]
    if behaviour.unknown:
        unknown = counted(behaviour.unknown, "row is", "rows are")
        arm = behaviour.unknown_arm
        lines.append(f"{unknown} of items that {options.items.name} has not, such as {arm}, and left out")
    table = np.array(list(rows.values()), np.float64)
    return _Read(proposed.settings, list(rows), table, liked, keys, lines)


def _liked(
    behaviour: Behaviour, ids: Sequence[str], options: BeginOptions
) -> tuple[sparse.csr_array, NDArray[np.int64]]:
    """Who liked what, of keys that liked anything, and their numbers.

    Raises ShortlistError: that says nothing.
    """
    arm, key = options.history.arm, options.history.key
    useless = UselessHistory(
        "--arm: all {rows} of the history are of items that are not in "
        f"{options.items.name}: does {arm}, such as {{arm}}, name what {options.id} names there, such as "
        f"{ids[0]}?",
        "--value: no row says that a key liked an item, with a value above 0, or from --liked on",
        "--history: all that keys liked is one item, which says nothing of the others",
        f"--key: {{keys}} liked two items or more, and it takes {LEAST_KEYS}: who likes what is "
        f"told by what the same keys liked. Does {key} name who it was, and no visit or order?",
    )
    return likes_of(behaviour, len(ids), useless, least_keys=LEAST_KEYS)


def _table(comparison: Comparison) -> Iterator[str]:
    """The comparison, as a person reads it."""
    sample = ""
    if comparison.sampled:
        keys, items = f"{comparison.fitted:,}", f"{comparison.arms:,}"
        sample = f" (a sample: rankings know {keys} keys and the {items} items most liked)"
    yield (
        f"of 100 likes of {counted(len(comparison.likes), 'key', 'keys')} held out, lists of "
        f"{list_length(comparison.arms)} find, with{sample}:"
    )
    yield f"  {'':16}{'nothing known':>16}{'half of them known':>22}"
    for row in comparison.rows:
        unknown, half = _share(row.unknown, comparison.likes), _share(row.half, comparison.hidden)
        yield f"  {row.name:16}{unknown[0]:>9.1f} ± {unknown[1]:<4.1f}{half[0]:>15.1f} ± {half[1]:<4.1f}"


def _share(hits: NDArray[np.float64], likes: NDArray[np.float64]) -> tuple[float, float]:
    """Likes found of 100, and the standard error over keys."""
    share = hits.sum() / max(likes.sum(), 1.0)
    error = np.sqrt(np.square(hits - share * likes).sum()) / max(likes.sum(), 1.0)
    return 100.0 * float(share), 100.0 * float(error)


def _verdict(comparison: Comparison) -> Iterator[str]:
    """The verdict of the comparison, the worst last."""
    *others, ours = comparison.rows
    bestsellers = others[0]
    lines, gains = list[str](), list[bool]()
    for what, likes in (("unknown", comparison.likes), ("half", comparison.hidden)):
        condition = "with nothing known" if what == "unknown" else "with half of them known"
        our_share = getattr(ours, what)
        best = max(others, key=lambda row: float(getattr(row, what).sum()))
        ratio = float(our_share.sum() / max(getattr(best, what).sum(), 1.0))
        lines.append(
            f"{condition} ours finds {ratio:.2f} times what {best.name} find{'s' * (best is not bestsellers)}"
        )
        more, error = _share(our_share - getattr(bestsellers, what), likes)
        gains.append(more > CLEAR * error)
    yield from lines
    if not any(gains):
        yield (
            "no better than bestsellers: too few likes to tell it from chance, "
            f"{comparison.likes.mean():.0f} of each of {comparison.fitted:,} keys, or all like much the same"
            f"; {ENOUGH}. It begins as bestsellers do, and learns from rewards"
        )


def _features(read: _Read, options: BeginOptions, *, is_wide: bool) -> tuple[FeatureBlocks, HistoryPrior]:
    """Features of all keys, and what they say of new ones. ``is_wide``: with as many directions as may be."""
    rng = np.random.default_rng(SEED)
    directions = read.most_directions
    if not is_wide:
        directions = real_directions(read.liked, directions, rng, blocks=options.blocks)

    def make(liked: sparse.csr_array) -> FeatureBlocks:
        return make_blocks(liked, read.table, directions, np.random.default_rng(SEED), blocks=options.blocks)

    rng = np.random.default_rng(SEED)
    prior = feature_prior.fit(
        read.liked, lambda liked: make(liked).features, rng, directions=max(directions, 1)
    )
    return make(read.liked), prior


def _make(client: Client, name: str, options: BeginOptions, read: _Read, *, is_wide: bool) -> Iterator[str]:
    """Make catalogues and bandit; if stopped, say which exist."""
    blocks, prior = _features(read, options, is_wide=is_wide)
    existing = list[str]()
    try:
        yield import_arms(client, name, [options.items], options.table)[-1]
        existing.append(f"the catalogue {name}")
        with contextlib.suppress(errors.NotFound):  # of a command that was stopped
            client.delete_catalogue(_likes(name))
        catalogue = client.get_catalogue(name)
        head = _head(catalogue, read, blocks, beside=TABLE in options.blocks)
        head["prior"] = history_record(prior)
        created = client.make_embedding(
            name, embedding.body_of(head, blocks.map, read.ids, blocks.weights, blocks.vectors)
        )
        existing.append(f"the catalogue {created.id}")
        embedding.wait_filled(client, created.id, catalogue.size)
        features = counted(created.dim, "feature", "features")
        yield (
            f"{created.id} has the items of {name} with {features} each, {blocks.directions} of them of "
            "behaviour, and follows it"
        )
        client.put_bandit(name, **_bandit(name, read.ids, blocks))
        people = "people of the history begin as new ones do"
        if options.people:
            people = _teach(client, name, read, blocks.features)
    except BaseException:
        if existing:
            is_there = (
                f"{' and '.join(existing)} {'is' if len(existing) == 1 else 'are'} there, and nothing else"
            )
            print(f"stopped: {is_there}; the same command goes on", file=sys.stderr)
        raise
    yield f"the bandit {name} chooses from {created.id}; {people}"


def _teach(client: Client, name: str, read: _Read, features: NDArray[np.float64]) -> str:
    """Give people of the history learners, those with most likes first; a sentence that says of how many.

    A learner has the sums of a key's row of likes over all arms, weighed so that it counts as
    ``REWARDS_A_LIKE`` rewards a like: in full, people would outweigh their rewards of hundreds of lists, and
    what new ones share would be fitted to these rows. The sums know nothing of the intercept.
    If it is stopped, there is no bandit.
    """
    rows = np.column_stack((features, np.zeros(len(features))))
    gram = (rows.T @ rows)[np.tril_indices(rows.shape[1])]
    likes = np.diff(read.liked.indptr)
    most = min(len(likes), MOST_TAUGHT_BYTES // (16 * (len(gram) + rows.shape[1])))
    try:
        with meter("taught", most, "people") as advance:
            for key in np.argsort(-likes, kind="stable")[:most].tolist():
                count = min(len(rows), round(REWARDS_A_LIKE * likes[key]))
                moment = rows[read.liked.indices[read.liked.indptr[key] : read.liked.indptr[key + 1]]].sum(
                    axis=0
                )
                total = np.concatenate((gram, moment)) * count / len(rows)
                squares = float(likes[key]) * count / len(rows)
                sums = RidgeSums(total, np.zeros(len(total)), count, float(count), squares)
                client.put_learner(name, read.keys[key], state=state_to_bytes(LearnerState(1, sums)))
                advance(1)
    except BaseException:
        client.delete_bandit(name)
        raise
    return f"{most:,} of {counted(len(likes), 'person', 'people')} of the history begin with what they liked"


def _head(catalogue: Catalogue, read: _Read, blocks: FeatureBlocks, *, beside: bool) -> dict[str, Any]:
    """The head of the body of ``POST …/embeddings``."""
    without = int(np.count_nonzero(blocks.likes == 0))
    return {
        "catalogue": _likes(catalogue.id),
        "version": catalogue.version,
        "rewards": int(read.liked.nnz),
        "keys": int(read.liked.shape[0]),
        "arms": len(blocks.likes) - without,
        "without": without,
        "beside": beside,
    }


def _bandit(name: str, ids: Sequence[str], blocks: FeatureBlocks) -> BanditBody:
    most_liked = np.argsort(-blocks.likes, kind="stable")[:SHOWN_BESTSELLERS]
    arms = [ids[index] for index in most_liked.tolist() if blocks.likes[index] > 0]
    return {
        "catalogue": _likes(name),
        "policy": "sub_ts",
        "scope": "per_key",
        "reward": {"min": 0.0, "max": 1.0},
        "log": {},
        "holdout": {"share": HOLDOUT, "serve": {"arms": arms}},
    }


def _next_calls(client: Client, name: str) -> Iterator[str]:
    url = f"{client.url}/v1"
    choose, reward = (
        '{"key": "user-41", "k": 5}',
        '{"rewards": [{"decision": "…", "arm": "…", "value": 1.0}]}',
    )
    yield "three calls use it: to choose, to say what was liked, and, next week, to see whether it is better:"
    yield f"  curl {shlex.quote(f'{url}/bandits/{name}/choose')} -d {shlex.quote(choose)}"
    yield f"  curl {shlex.quote(f'{url}/rewards')} -d {shlex.quote(reward)}"
    yield f"  curl {shlex.quote(f'{url}/bandits/{name}/report')}"
    yield (
        f"a tenth of the keys is shown bestsellers: `lift` of the report is ours over theirs. Write items to "
        f"{name}: {_likes(name)} follows it"
    )
    never = '{"repeats": {"most": 1, "within_s": 604800}}'
    at = shlex.quote(f"{url}/bandits/{name}")
    yield f"to show nobody the same twice in a week: curl -X PATCH {at} -d {shlex.quote(never)}"
