"""What a quota says, as it is stored and answered."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from app.filters.fields import Value, ValueKind, kind_of
from app.filters.filter import Filter, OneOf, parse
from app.platform.errors import Invalid
from app.records.records import pack, split_uid
from app.storage.types import QuotaTerms

MAX_MOST = 10**12
MAX_PER_S = 3_650 * 86_400
MIN_PER_S = 0.1  # a shorter window is over before the store has answered

MAX_QUOTAS = 10_000  # of a bandit
MAX_FILTERS = 256  # of these, that count the arms of a filter other than one value of one field

# Of a quota: to change one would be to count from the start.
FIXED_FIELDS = ("filter", "arm", "per_s", "counts", "from_ms", "signal")

QuotaCounts = Literal["shown", "rewarded"]
QuotaPace = Literal["none", "even"]
Counted: TypeAlias = "OneArm | OneValue | Filter"
"""What a quota counts."""


class OneArm(NamedTuple):
    """A quota counts the arm with this id."""

    id: str


class OneValue(NamedTuple):
    """A quota counts the arms with this value in a field. ``kind``: in Python True equals 1."""

    field: str
    kind: ValueKind
    value: Value


class QuotaRule(msgspec.Struct, frozen=True):
    """At most ``most`` times in a window, arms that ``filter`` lets in, or one ``arm``, are counted.

    Windows are multiples of ``per_s`` since ``from_ms``, else since 1970; without it there is one. The quota
    holds from ``from_ms`` until ``to_ms``. ``signal``: the one whose rewards are counted; None: all.
    """

    most: int
    filter: dict[str, Any] | None = None
    arm: str | None = None
    per_s: float | None = None
    counts: QuotaCounts = "shown"
    pace: QuotaPace = "none"
    from_ms: int | None = None
    to_ms: int | None = None
    signal: str | None = None

    def checked(self) -> QuotaRule:
        """Itself. Raises Invalid."""
        if (self.filter is None) == (self.arm is None):
            raise Invalid("a quota needs either a filter or an arm", path=("arm",))
        if self.filter is not None:
            parse(self.filter)
        if self.from_ms is not None and self.to_ms is not None and self.from_ms >= self.to_ms:
            raise Invalid("to must be after from", path=("to",))
        is_bounded = self.from_ms is not None and self.to_ms is not None
        if self.pace == "even" and self.per_s is None and not is_bounded:
            raise Invalid("pace needs a window: per_s, or from and to", path=("pace",))
        if self.pace == "even" and self.counts == "rewarded":
            raise Invalid("pace needs counts: shown", path=("pace",))
        if self.signal is not None and self.counts != "rewarded":
            raise Invalid('signal needs "counts": "rewarded"', path=("signal",))
        return self

    def changed_field(self, other: QuotaRule) -> str | None:
        """A field, as the API names it, in which another rule counts something else; None: in none."""
        for field in FIXED_FIELDS:
            if getattr(self, field) != getattr(other, field):
                return field.removesuffix("_ms")
        return None

    def counts_reward_of(self, signal: str | None) -> bool:
        """Whether a reward of this signal counts."""
        return self.counts == "rewarded" and self.signal in (None, signal)

    @property
    def parsed(self) -> Filter | None:
        """The filter; None of a quota of one arm."""
        return None if self.filter is None else parse(self.filter)

    @property
    def counted(self) -> Counted:
        """What it counts. A filter that asks for one value of one field, and nothing else, is that value."""
        if self.arm is not None:
            return OneArm(self.arm)
        arm_filter = parse(self.filter or {})
        part = arm_filter.expression
        if isinstance(part, OneOf) and len(part.members) == 1:
            value = part.members[0]
            kind = kind_of(value)
            assert kind is not None, "filters compare with strings, numbers and booleans"  # noqa: S101
            return OneValue(part.field, kind, value)
        return arm_filter

    def terms(self, uid: str) -> QuotaTerms:
        """What the store has to know of it."""
        per_ms = 0 if self.per_s is None else max(1, round(1_000 * self.per_s))
        return QuotaTerms(uid, self.most, per_ms, self.from_ms or 0, self.to_ms or 0)


class BanditQuota(msgspec.Struct, frozen=True):
    """A quota of a bandit. ``uid``: of this incarnation."""

    id: str
    uid: str
    rule: QuotaRule

    @classmethod
    def of(cls, quota_id: str, data: bytes) -> BanditQuota:
        """The quota of a stored record."""
        uid, rule = split_uid(data, QuotaRule)
        return cls(quota_id, uid, rule)

    @property
    def record(self) -> bytes:
        """As it is stored."""
        return self.uid.encode() + pack(self.rule)
