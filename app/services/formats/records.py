"""Formats of what is stored: msgpack for documents, raw little-endian float64 for numbers.

A record of the registry begins with its uid (16 hexadecimal characters); of the rest the store knows nothing.
Reading any of these formats can run no code.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist.linear.ridge_sums import RidgeSums
from shortlist.types import Vector

UID_LENGTH = 16
STATE_FORMAT, UNWEIGHED_STATE_FORMAT, DISCOUNTED_STATE_FORMAT = 1, 2, 3
_STATE_HEADER = struct.Struct("<BxHxxxxQQ")  # format, dim, version, observations
_UNWEIGHED_HEADER = struct.Struct("<Qd")  # follows in a discounted state: time_ms, half_life_s
_DISCOUNT_HEADER = struct.Struct("<Qdd")  # the same, and the weight of the observations
_MSGPACK_MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))  # first bytes
POOLED = "_pool"  # name of the learner that sums all learners of a bandit in one partition

T = TypeVar("T")


class CatalogueRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a catalogue is made with."""

    dim: int
    index: dict[str, str | int | None]


class RewardRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What counts as a reward of a bandit.

    ``min``, ``max``   smallest and largest value that is accepted
    ``aggregate``      several rewards of one arm of a decision: the first counts, or their sum
    ``wait_s``         how long a decision waits for rewards; None: without a reward it teaches nothing
    ``default``        what an arm without a reward counts as, after that time
    """

    min: float | None = None
    max: float | None = None
    aggregate: Literal["first", "sum"] = "first"
    wait_s: float | None = None
    default: float | None = None


class ExploreRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The warm-up of new keys: they are first shown this many arms that cover the catalogue."""

    centers: int


class ContextField(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named field of a context. Which parameters it has depends on its kind: see ``bandits.encoding``."""

    name: str
    kind: str
    values: list[str] | None = None
    period: float | None = None
    mean: float | None = None
    scale: float | None = None
    size: int | None = None


class ContextRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a context is: a vector of ``dim`` numbers, or named ``fields``."""

    dim: int | None = None
    fields: list[ContextField] | None = None


class ServedArms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """These arms, in this order."""

    arms: list[str]


class HoldoutRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This share of the keys, or of the decisions of a global bandit, is served without the policy."""

    share: float
    serve: Literal["random"] | ServedArms = "random"


class LogRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This share of the decisions is logged with its rewards, and kept for so long."""

    keep_s: float = 604_800.0
    share: float = 1.0

    @property
    def keep_ms(self) -> int:
        return round(1_000 * self.keep_s)


class BanditRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a bandit is made with.

    ``interactions``, ``directions``: set where ``context`` is. ``directions`` are those of the catalogue when
    the bandit was made, float64 row by row; unset with interactions "all". What is unset is not stored.
    """

    catalogue: str
    policy: str
    scope: Literal["global", "per_key"]
    ridge: float
    exploration: float | str
    delta: float
    horizon: int
    shortlist: int
    eta: float | None
    reward: RewardRule
    prior: Literal["plain", "pooled"] = "plain"
    prior_strength: float = 0.3
    half_life_s: float | None = None
    idle_ttl_s: float | None = None
    temperature: float | None = None
    explore: ExploreRule | None = None
    shift_rewards: bool = False
    solver: Literal["shortlist", "adaptive"] = "shortlist"
    filter: dict[str, Any] | None = None
    gamma: float | None = None
    context: ContextRule | msgspec.UnsetType = msgspec.UNSET
    interactions: int | Literal["all"] | msgspec.UnsetType = msgspec.UNSET
    directions: bytes | msgspec.UnsetType = msgspec.UNSET
    holdout: HoldoutRule | None = None
    log: LogRule | None = None


# Whether a bandit's field may be changed later: None, or why it may not. A row for each field of a body.
CHANGES: Mapping[str, str | None] = {
    "catalogue": "learners learn from the features of its arms",
    "policy": None,
    "scope": "it says whose rewards a learner sums",
    "ridge": None,
    "exploration": None,
    "delta": None,
    "horizon": None,
    "shortlist": None,
    "eta": None,
    "reward": None,
    "prior": "rewards that came before would be missing from the pooled prior",
    "prior_strength": None,
    "half_life_s": "the sums of learners are discounted by it",
    "idle_ttl_s": None,
    "temperature": None,
    "explore": None,
    "shift_rewards": "learners sum transformed features and rewards",
    "solver": None,
    "filter": None,
    "gamma": None,
    "holdout": None,
    "log": None,
    "context": "a learner's numbers belong to those of the context",
    "interactions": "a learner has numbers for each direction",
}


class BanditVersion(msgspec.Struct, frozen=True, array_like=True):
    """A bandit as it is, or was, since it was made or changed.

    ``number``          counted from 1
    ``since_ms``        when it was made or changed; None: before this was recorded
    ``idle_since_ms``   when ``idle_ttl_s`` was last changed; 0: never
    """

    record: BanditRecord
    number: int = 1
    since_ms: int | None = None
    idle_since_ms: int = 0


class ArmDocument(msgspec.Struct, frozen=True, array_like=True):
    """What an arm carries besides its features."""

    tags: list[str]
    metadata: dict[str, Any]


class RewardTerms(msgspec.Struct, frozen=True, array_like=True):
    """What the fold must know of a bandit that waits for rewards, discounts, pools or shifts.

    ``default``       the reward that the entry replaces, if the log says that it replaces one
    ``decided_ms``    when the arm was chosen
    ``half_life_s``   0: nothing is discounted
    ``pooled``        the entry is added to the pooled prior as well
    ``shifted``       features and values are as they came; the fold transforms them (``shifted_rewards``)
    """

    default: float = 0.0
    decided_ms: int = 0
    half_life_s: float = 0.0
    pooled: bool = False
    shifted: bool = False


class RewardPayload(msgspec.Struct, frozen=True, array_like=True):
    """Payload of an entry of the reward log: the features of the arm when it was chosen, and the reward.

    An entry with a ``state`` gives it to a learner that has none; one with neither state nor features forgets
    the learner.
    """

    features: bytes
    value: float = 0.0
    terms: RewardTerms | None = None
    state: bytes = b""


class LoggedDecision(msgspec.Struct, frozen=True, array_like=True):
    """A decision that waits for rewards, with what its defaults need.

    ``payloads``      for each arm, the payload of the entry that its default makes
    ``places``        of the arms among those of the decision, if it has a row in the decision log
    ``known_entry``   as in ``storage.protocol.RewardWrite``
    """

    bandit_uid: str
    learner: str
    id: str
    issued_ms: int
    expires_ms: int
    arms: list[str]
    payloads: list[bytes]
    known_entry: int | None = None
    places: list[int] | None = None


@dataclass(frozen=True, slots=True)
class LearnerState:
    """The state of a learner.

    ``version``       number of log entries that were folded into the sums
    ``time_ms``       with a half-life: when its newest decision was made; the sums are discounted to it
    ``half_life_s``   0: nothing is discounted
    """

    version: int
    sums: RidgeSums
    time_ms: int = 0
    half_life_s: float = 0.0


def reward_payload(record: BanditRecord, features: Vector, value: float, decided_ms: int) -> bytes:
    """The payload of a reward of this bandit. ``decided_ms``: when the arm was chosen."""
    waits, discounts = record.reward.wait_s is not None, record.half_life_s is not None
    terms = None
    if waits or discounts or record.prior == "pooled" or record.shift_rewards:
        default = record.reward.default or 0.0
        pooled, half_life_s = record.prior == "pooled", record.half_life_s or 0.0
        terms = RewardTerms(default, decided_ms, half_life_s, pooled, record.shift_rewards)
    return msgspec.msgpack.encode((vector_to_bytes(features), value, terms))  # a reward gives no state


def pack(record: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(record)


def unpack(data: bytes, kind: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=kind)


def with_uid(uid: str, record: msgspec.Struct) -> bytes:
    return uid.encode("ascii") + pack(record)


def split_uid(data: bytes, kind: type[T]) -> tuple[str, T]:
    return data[:UID_LENGTH].decode("ascii"), unpack(data[UID_LENGTH:], kind)


def split_version(data: bytes) -> tuple[str, BanditVersion]:
    """Uid and version of a bandit. Until 0.1.0 the record stood alone, a map: that is version 1."""
    if data[UID_LENGTH] in _MSGPACK_MAPS:
        uid, record = split_uid(data, BanditRecord)
        return uid, BanditVersion(record)
    return split_uid(data, BanditVersion)


def vector_to_bytes(vector: Vector) -> bytes:
    return np.ascontiguousarray(vector, dtype="<f8").tobytes()


def context_to_bytes(context: NDArray[np.float32]) -> bytes:
    return context.astype("<f4", copy=False).tobytes()


def bytes_to_context(data: bytes) -> NDArray[np.float32]:
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)


def bytes_to_vector(data: bytes) -> Vector:
    return np.frombuffer(data, dtype="<f8").astype(np.float64, copy=False)


def state_bytes(dim: int, *, discounted: bool) -> int:
    """Size of what ``state_to_bytes`` makes."""
    return _STATE_HEADER.size + discounted * _DISCOUNT_HEADER.size + 8 * dim * (dim + 3)


def state_to_bytes(state: LearnerState) -> bytes:
    """Header, then the lower triangles of gram and of its errors, the moment and its errors.

    Size: 24 + 8 d (d + 3) bytes, 24 more when discounted.
    """
    sums, dim = state.sums, state.sums.dim
    kind = DISCOUNTED_STATE_FORMAT if state.half_life_s else STATE_FORMAT
    header = _STATE_HEADER.pack(kind, dim, state.version, sums.observations)
    if state.half_life_s:
        header += _DISCOUNT_HEADER.pack(state.time_ms, state.half_life_s, sums.weight)
    numbers = (sums.total[:-dim], sums.error[:-dim], sums.total[-dim:], sums.error[-dim:])
    return header + b"".join(map(vector_to_bytes, numbers))


def bytes_to_state(data: bytes) -> LearnerState:
    """Inverse of ``state_to_bytes``, bit for bit.

    Until 0.1.0 a discounted state had no weight. It is taken for the number of observations, the most that it
    can be; what is too much of it fades with the sums.
    """
    kind, dim, version, observations = _STATE_HEADER.unpack_from(data)
    offset, time_ms, half_life_s, weight = _STATE_HEADER.size, 0, 0.0, float(observations)
    if kind == DISCOUNTED_STATE_FORMAT:
        time_ms, half_life_s, weight = _DISCOUNT_HEADER.unpack_from(data, offset)
        offset += _DISCOUNT_HEADER.size
    elif kind == UNWEIGHED_STATE_FORMAT:
        time_ms, half_life_s = _UNWEIGHED_HEADER.unpack_from(data, offset)
        offset += _UNWEIGHED_HEADER.size
    elif kind != STATE_FORMAT:
        raise ValueError(f"learner state of unknown format {kind}")
    numbers = np.frombuffer(data, dtype="<f8", offset=offset)
    if len(numbers) != dim * (dim + 3):
        raise ValueError(f"learner state of dimension {dim} with {len(numbers)} numbers")
    half = dim * (dim + 1) // 2
    total = np.concatenate((numbers[:half], numbers[-2 * dim : -dim]), dtype=np.float64)
    error = np.concatenate((numbers[half : 2 * half], numbers[-dim:]), dtype=np.float64)
    return LearnerState(version, RidgeSums(total, error, observations, weight), time_ms, half_life_s)
