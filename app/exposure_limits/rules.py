"""The rule of a quota, as stored and answered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

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
LAST_MS = 253_402_300_799_999  # of the year 9999: no date is later
ONE_VALUE = (
    "a quota counts one arm, or the arms with one value of one field: give the arms a field, or a tag, "
    "that says what this filter does"
)

# Of a quota: to change one would be to count from the start.
FIXED_FIELDS = ("filter", "arm", "per_s", "counts", "from_ms", "signal")

QuotaCounts = Literal["shown", "rewarded"]
QuotaPace = Literal["none", "even"]


class OneValue(NamedTuple):
    """A quota counts the arms with this value in a field. ``kind``: in Python True equals 1."""

    field: str
    kind: ValueKind
    value: Value


class QuotaRule(msgspec.Struct, frozen=True):
    """At most ``most`` times in a window, arms with the value of ``filter``, or one ``arm``, are counted.

    Windows are multiples of ``per_s`` since ``from_ms``, else since 1970; without ``per_s`` there is one. The
    quota holds from ``from_ms`` until ``to_ms``. ``signal``: only its rewards are counted; None: all.
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
        if self.filter is not None and _value_of(parse(self.filter)) is None:
            raise Invalid(ONE_VALUE, path=("filter",))
        for name, ms in (("from", self.from_ms), ("to", self.to_ms)):
            if ms is not None and not 0 <= ms <= LAST_MS:
                raise Invalid("must be of the years 1970 to 9999 in UTC", path=(name,))
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
        """True if a reward of this signal counts."""
        return self.counts == "rewarded" and self.signal in (None, signal)

    @property
    def fields(self) -> Collection[str]:
        """The fields of arms read by the quota."""
        return () if self.filter is None else parse(self.filter).fields

    def terms(self, uid: str) -> QuotaTerms:
        """The terms of the quota for the store."""
        per_ms = 0 if self.per_s is None else max(1, round(1_000 * self.per_s))
        return QuotaTerms(uid, self.most, per_ms, self.from_ms or 0, self.to_ms or 0, self.pace, self.counts)


@dataclass(frozen=True, eq=False)
class BanditQuota:
    """A quota of a bandit. ``uid``: of this incarnation. ``record``: the stored bytes."""

    id: str
    uid: str
    rule: QuotaRule
    record: bytes

    @classmethod
    def of(cls, quota_id: str, record: bytes) -> BanditQuota:
        """The quota of a stored record."""
        return cls(quota_id, *split_uid(record, QuotaRule), record)

    @classmethod
    def of_rule(cls, quota_id: str, uid: str, rule: QuotaRule) -> BanditQuota:
        """A new quota, still to be stored."""
        return cls(quota_id, uid, rule, uid.encode() + pack(rule))

    @cached_property
    def value(self) -> OneValue | None:
        """The value of its arms; None of a quota of one arm."""
        return None if self.rule.filter is None else _value_of(parse(self.rule.filter))


def _value_of(arm_filter: Filter) -> OneValue | None:
    """The value of a filter for one value of one field, and nothing else; None for other filters."""
    part = arm_filter.expression
    if not isinstance(part, OneOf) or len(part.members) != 1:
        return None
    value = part.members[0]
    kind = kind_of(value)
    return None if kind is None else OneValue(part.field, kind, value)
