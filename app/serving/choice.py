"""A choice, its record kept for an ``event_id``, and the metadata of its arms.

A repeated request with the same ``event_id`` is answered again, bit for bit, from a ``KeptChoice``: the same
request gets the same answer, and another one gets none.

Metadata of the arms is read from the store for the answer, as it is then, and is not part of the record.
``include`` asks for metadata: "metadata", or "metadata." and the name of a field, as filters name it.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Annotated, Any, TypeVar

import msgspec

from app.filters.fields import MAX_FIELD_CHARS
from app.platform.answer_memory import FREE_BYTES, hold
from app.platform.deadlines import yield_to_others
from app.platform.documents import Answer, ShownAs
from app.platform.errors import TooLarge
from app.records.kept_choice import KeptChoice, token_of
from app.records.records import attributes_of
from app.rewards.tokens import Decision, decision_of, raw_of, text_of
from app.selection.request import ChooseRequest
from app.selection.selection import Selection, SelectionRequest
from app.storage.arms import ArmStore

ARM_BYTES = 400  # about what an arm of an answer takes, with its part of the token, the row and the JSON
METADATA, RANKING = "metadata", "ranking"
MAX_INCLUDED_BYTES = 8 << 20
READ_TOGETHER = 500  # arms
FIRST_BYTES = FREE_BYTES  # that are read at first, and then twice as many each time
COPIES = 2  # of what is read: by itself, and in the answer
_encode = msgspec.json.Encoder().encode


A = TypeVar("A", bound="ChosenArm")


class ChosenArm(Answer, frozen=True, omit_defaults=True, gc=False):
    """``propensity``: the probability of this arm given those before it, of a policy that knows it and of the
    holdout.
    ``pinned``: the arm stands here because of a rule. ``metadata``: where ``include`` asks for them.
    """

    id: str
    score: float
    propensity: float | None = None
    pinned: bool = False
    # Read again for every answer, and not kept for an event.
    metadata: Annotated[msgspec.Raw | None, ShownAs(dict[str, Any] | None)] = None


class RankedCandidate(Answer, frozen=True, omit_defaults=True, gc=False):
    """``first``: the propensity of standing first, of a policy that knows propensities and of a random
    holdout: 0 of one that is not eligible. ``eligible``: false of one that filters, exclusions, rules, quotas
    or caps leave out; absent of the others, and of pinned ones.
    """

    id: str
    score: float
    first: float | None = None
    eligible: bool = True


class Choice(Answer, frozen=True, omit_defaults=True, gc=False):
    """Arms, the best first. ``decision``: the token to reward them with. ``bandit_version``: of the settings
    of the choice. ``eligible``: number of arms matched by the filters, if any. ``group``: "policy" or
    "holdout", of a bandit with a holdout. ``weights``: of the signals, of a bandit with some.
    ``prior_version``: of the learned prior, 0 while there is none; absent of a bandit with another prior.
    ``effects_version``: of the arm effects, 0 while none are found; absent of a bandit without. ``unknown``:
    number of candidates missing in the catalogue; absent for 0. ``ranking``: all existing candidates, the
    largest score first, where ``include`` asks for a ranking; absent of a choice made for its event before.
    """

    decision: str
    arms: list[ChosenArm]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    bandit_version: int
    stale_s: float | None = None  # nothing was heard of the store for so long: what it holds may be newer
    eligible: int | None = None
    group: str | None = None
    weights: dict[str, float] | None = None
    prior_version: int | None = None
    effects_version: int | None = None
    unknown: int = 0
    ranking: list[RankedCandidate] | None = None


def arms_of(request: SelectionRequest, selection: Selection, ids: list[str]) -> list[ChosenArm]:
    """The selected arms, as an answer shows them; ``ids`` are theirs."""
    columns = [ids, selection.hits.scores.tolist()]
    if selection.propensities is not None:
        columns.append(selection.propensities)
    arms = list(map(ChosenArm, *columns))
    if not request.pins:
        return arms
    pinned = set(request.pinned)
    return [msgspec.structs.replace(arm, pinned=True) if arm.id in pinned else arm for arm in arms]


def kept_choice(choice: Choice, asked: bytes) -> KeptChoice:
    """The kept record of a choice. ``asked``: digest of its request.

    Packed about 120 bytes, and for an arm 9 and a part of its id: the ids of many arms compress to a half.
    """
    propensities = [arm.propensity for arm in choice.arms if arm.propensity is not None]
    return KeptChoice(
        token=zlib.compress(raw_of(choice.decision), 1),
        asked=asked,
        scores=[arm.score for arm in choice.arms],
        policy=choice.policy,
        learner_version=choice.learner_version,
        catalogue_version=choice.catalogue_version,
        exact=choice.exact,
        propensities=propensities or None,
        pinned=[number for number, arm in enumerate(choice.arms) if arm.pinned],
        stale_s=choice.stale_s,
        eligible=choice.eligible,
        group=choice.group,
        prior_version=choice.prior_version,
        effects_version=choice.effects_version,
        unknown=choice.unknown,
    )


def choice_of(record: KeptChoice) -> Choice:
    """The choice of which ``kept_choice`` is kept, bit for bit."""
    token = zlib.decompress(record.token)
    decision = decision_of(token)
    arms = list(map(ChosenArm, decision.arms, record.scores, record.propensities or repeat(None)))
    for number in record.pinned:
        arms[number] = msgspec.structs.replace(arms[number], pinned=True)
    return Choice(
        decision=text_of(token),
        arms=arms,
        policy=record.policy,
        learner_version=record.learner_version,
        catalogue_version=record.catalogue_version,
        exact=record.exact,
        stale_s=record.stale_s,
        eligible=record.eligible,
        bandit_version=decision.bandit_version,
        group=record.group,
        weights=decision.weights,
        prior_version=record.prior_version,
        effects_version=record.effects_version,
        unknown=record.unknown,
    )


def kept_decision(data: bytes) -> Decision | None:
    """The decision of a packed ``KeptChoice``; None if unreadable."""
    token = token_of(data)
    try:
        return None if token is None else decision_of(token)
    except msgspec.MsgspecError:
        return None


def include_name(name: str) -> str:
    """Return the name. Raises ValueError for a name which cannot come with a choice."""
    what, dot, field = name.partition(".")
    if name != RANKING and (what != METADATA or bool(dot) != bool(field) or len(field) > MAX_FIELD_CHARS):
        raise ValueError('must be "ranking", "metadata", or "metadata." and the name of a field')
    return name


async def described(
    store: ArmStore,
    catalogue_uids: Sequence[str],
    lists: Sequence[Sequence[A]],
    requests: Sequence[ChooseRequest],
) -> list[list[A]]:
    """Lists of arms with the metadata named by the ``include`` of each request; an arm which is gone has
    none, and an arm of the request its own. ``catalogue_uids``: of each list.

    A round trip for each ``READ_TOGETHER`` arms of a catalogue, and of long ones for each ``FIRST_BYTES`` and
    twice as much each time. Raises TooLarge (more than ``MAX_INCLUDED_BYTES``), Unavailable (the store, or
    too many large answers at once).
    """
    answer = [list(arms) for arms in lists]
    wanted = [
        (uid, arms, position, fields, {} if request.candidates is None else request.candidates.request_arms)
        for uid, arms, request in zip(catalogue_uids, answer, requests, strict=True)
        if (include := request.include)
        for fields in [
            None if METADATA in include else {name.removeprefix(METADATA + ".") for name in include}
        ]
        for position in range(len(arms))
    ]
    wanted.sort(key=itemgetter(0))  # those of one catalogue are read together
    size = done = held_bytes = 0
    most = FIRST_BYTES  # no answer is refused before it is known not to be small
    while done < len(wanted):
        hold(held_bytes)
        together = wanted[done : done + READ_TOGETHER]
        uid = together[0][0]
        ids = [arms[position].id for of, arms, position, _, _ in together if of == uid]
        documents = await store.documents(uid, ids, most_bytes=most)
        read = sum(map(len, documents))
        size, done = size + read, done + len(documents)
        if size > MAX_INCLUDED_BYTES:
            message = (
                f"the metadata of the arms take more than {MAX_INCLUDED_BYTES:,} bytes: ask for fewer arms"
            )
            raise TooLarge(message, path=("include",))
        for (_, arms, position, fields, own_documents), document in zip(together, documents, strict=False):
            await yield_to_others()
            brought = own_documents.get(arms[position].id)
            metadata = attributes_of(document if brought is None else brought.document)[1]
            # As JSON, which takes less memory than objects.
            part = msgspec.Raw(_encode(metadata if fields is None else part_of(metadata, fields)))
            arms[position] = msgspec.structs.replace(arms[position], metadata=part)
        hold(COPIES * read - held_bytes)
        # Doubled: many arms of short metadata take few round trips, and long metadata is never read far
        # beyond the limit.
        held_bytes = most = min(2 * most, MAX_INCLUDED_BYTES)
    return answer


def part_of(document: Mapping[str, Any], fields: Collection[str], prefix: str = "") -> dict[str, Any]:
    """The fields of these dotted names, within the objects that hold them. Cost: O(its fields)."""
    part: dict[str, Any] = {}
    for key, content in document.items():
        name = prefix + key
        if name in fields:
            part[key] = content
        elif any(field.startswith(name + ".") for field in fields):
            if isinstance(content, Mapping):
                part[key] = part_of(content, fields, name + ".")
            elif isinstance(content, list):
                inner = [
                    part_of(inner_document, fields, name + ".")
                    for inner_document in content
                    if isinstance(inner_document, Mapping)
                ]
                part[key] = inner
    return part
