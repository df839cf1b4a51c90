"""What this process knows of one quota: the states of its share, and how one follows from another.

Notation
    window      [start, end) in which a quota counts, by the clock of the store
    share       what this process was granted in the window, spent or not
    spent       what it has spent of the share: a number in ``arrays``, which choices write

States
    Unknown     nothing was heard of the window of now: nothing may be spent before the store was asked
    NoWindow    the quota does not hold now: it limits and counts nothing until ``until``
    Open        some of the quota is left
    UsedUp      all of it is granted (or rewarded, where rewards are counted). What is left of the share may
                still be spent; then the arms are not eligible
    Gone        the store has no such quota

    event                           from                      to
    answered: no such quota         any                       Gone
    answered: outside of from, to   any                       NoWindow
    answered: less than most        any                       Open
    answered: most                  any                       UsedUp
    the window is over              NoWindow, Open, UsedUp    Unknown
    offered back                    Open, UsedUp              the same with a smaller share
    spent, given back               any                       the same: ``arrays.spent`` changes
    the quota was changed           any                       the same, until the store has answered

``Unknown`` remembers the start of the window: if the store says that it goes on, what was spent in it stays
spent. Times are monotonic seconds, but for those in ms, which are the store's.
"""

from __future__ import annotations

import math

import msgspec

from app.quotas.arrays import MOST_AHEAD, UNBOUNDED, QuotaArrays
from app.quotas.rules import BanditQuota, QuotaRule
from app.storage.types import Share, ShareAsked

NEVER = float("inf")
FOREVER_MS = 2**52
NO_WINDOW_MS = -1  # the start of a window that is not there

FIRST = 8  # how much is asked for where there is none
PLENTY = 1_000  # a process may hold so many times ``FIRST``: then it keeps that, before it shows any
MOST_HELD = 100_000  # of one quota, by one process, besides what it needs
IDLE, LARGE = 10, 16  # a half goes back after so many idle rounds, or of so many times what a round uses


class ShareState(msgspec.Struct, frozen=True):
    """One of the states. ``start_ms``: of the window, or of the one that is over; -1: there was none.

    ``until``   when another state follows: of a window a little early, never late
    ``share``   what this process may spend in the window, or has spent
    ``spent``   of that, when the store was last asked
    ``free``    what is granted to no process
    ``fair``    what this process may hold at most, unless a choice needs it at once
    """

    start_ms: int = NO_WINDOW_MS
    until: float = NEVER
    share: int = 0
    spent: int = 0
    free: int = 0
    fair: int = 0


class Unknown(ShareState, frozen=True):
    """Of the window of now nothing was heard."""


class NoWindow(ShareState, frozen=True):
    """The quota does not hold until then."""


class Gone(ShareState, frozen=True):
    """The quota was deleted, and this process will hear of it."""


class Window(ShareState, frozen=True, kw_only=True):
    """A window as the store last answered. ``ends_ms`` None: it has no end.

    ``others``: what other processes have spent; ``granted``: to all, spent or not.
    """

    ends_ms: int | None
    began: float
    others: int
    granted: int
    rewarded: int


class Open(Window, frozen=True):
    """Some of the quota is left."""


class UsedUp(Window, frozen=True):
    """Nothing of the quota is left but what processes hold."""


def answered(rule: QuotaRule, sent: ShareAsked, share: Share, asked_at: float, now_ms: int) -> ShareState:
    """The state after the store has answered. ``asked_at``: when it was asked; ``now_ms``: its time then."""
    if not share.known:
        return Gone()
    # The clock was read before the question left: so this process ends a window too early, never too late.
    until = asked_at + (share.until_ms - now_ms) / 1_000
    if not share.holds:
        return NoWindow(until=until)
    # What the store counts has the part that this process reported; the rest was spent by others.
    reported = sent.spent if sent.window_ms == share.start_ms else 0
    # By what is granted, not by what is shown: what others hold may still be shown there, but not here.
    counted = share.rewarded if rule.counts == "rewarded" else share.granted
    kind = UsedUp if counted >= share.most else Open
    return kind(
        start_ms=share.start_ms,
        ends_ms=share.until_ms if share.until_ms < FOREVER_MS else None,
        began=asked_at + (share.start_ms - now_ms) / 1_000,
        until=until,
        share=share.mine,
        spent=reported,
        others=share.spent - reported,
        granted=share.granted,
        rewarded=share.rewarded,
        free=max(share.most - share.granted, 0),
        fair=share.fair,
    )


def end(state: ShareState) -> ShareState:
    """The window is over, or will be soon: nothing more is spent in it, and of the next nothing is known."""
    return state if isinstance(state, Gone) else Unknown(state.start_ms)


def offer_back(state: ShareState, most: int) -> ShareState:
    """Hold no more than ``most`` in all: the store is asked to take back the rest.

    If the answer is lost, the store may have taken back what was offered: to spend it then would be to show
    more than is allowed. To hold too little only costs another question.
    """
    return state if state.share <= most else msgspec.structs.replace(state, share=most)


class Demand(msgspec.Struct, frozen=True):
    """How much of a quota this process wants to hold.

    ``idle``: rounds since it was spent of; ``seen``: what was spent by the last round.
    """

    size: int = 0
    idle: int = 0
    seen: int = 0

    def grow(self) -> Demand:
        """It ran low."""
        return Demand(min(max(2 * self.size, FIRST), MOST_HELD), self.idle, self.seen)

    def after_round(self, spent: int) -> Demand:
        """A round is over: hold less if little was spent in it."""
        used, idle = spent - self.seen, 0 if spent != self.seen else self.idle + 1
        size = self.size // 2 if idle >= IDLE or used < self.size // LARGE else self.size
        return Demand(size, idle, spent)

    def within(self, most: int) -> Demand:
        """Of no more than this: else the last of a quota would lie with a process that does not need it."""
        return self if self.size <= most else Demand(most, self.idle, self.seen)


class QuotaShare:
    """One quota as this process serves it.

    ``window_number``: of its window among those of all quotas, in the order in which they began here.
    """

    __slots__ = ("_arrays", "demand", "number", "quota", "state", "window_number")

    def __init__(self, quota: BanditQuota, number: int, arrays: QuotaArrays) -> None:
        self.quota = quota
        self.number = number
        self.demand = Demand()
        self._arrays = arrays
        self.state: ShareState = Unknown()
        self._begin_window()

    @property
    def spent(self) -> int:
        """Not of a quota that was deleted: another one may have its number."""
        return self._arrays.spent[self.number]

    @property
    def left(self) -> int:
        """What this process may still spend without asking."""
        return self.state.share - self.spent

    @property
    def holds(self) -> bool:
        """Whether it counts now."""
        return not isinstance(self.state, NoWindow | Gone)

    @property
    def limits(self) -> bool:
        """Whether what is shown is taken of a share now."""
        return self.holds and self.quota.rule.counts == "shown"

    @property
    def least_held(self) -> int:
        """What is held of a quota of which there is plenty, also where none is shown."""
        return min(FIRST, self.state.fair // PLENTY)

    @property
    def is_used_up(self) -> bool:
        """Whether nothing more can be had of it."""
        return isinstance(self.state, UsedUp)

    @property
    def most_left(self) -> int:
        """How much a choice may take of it as far as is known."""
        return int(self._arrays.rows["most"][self.number]) - self.spent

    def answer(self, sent: ShareAsked, share: Share, asked_at: float, now_ms: int) -> None:
        """Take what the store answered."""
        state = answered(self.quota.rule, sent, share, asked_at, now_ms)
        is_new = state.start_ms != self.state.start_ms
        self.state = state
        if is_new:
            self._begin_window()
        self.demand = self.demand.within(state.fair)

    def _begin_window(self) -> None:
        self.demand = Demand(self.demand.size, self.demand.idle)
        self._arrays.windows += 1
        self._arrays.spent[self.number] = 0
        self.window_number = self._arrays.windows

    def note(self) -> bool:
        """Write it to the arrays; whether its arms became eligible by that, or no longer are."""
        arrays, number, state, rule = self._arrays, self.number, self.state, self.quota.rule
        row, spent, is_shown = arrays.rows[number], arrays.spent[number], rule.counts == "shown"
        was_out = row["used_up"], row["held_back"]
        # Where rewards are counted the share limits nothing, so none may be left to spend.
        row["used_up"] = isinstance(state, UsedUp) and (not is_shown or spent >= state.share)
        is_limited = is_shown and self.holds
        row["most"] = state.share + state.free if is_limited and isinstance(state, Window) else UNBOUNDED
        arrays.enough[number] = state.share - self.demand.size // 2 - 1 if is_limited else UNBOUNDED
        if isinstance(state, Window) and rule.pace == "even" and state.ends_ms is not None:
            row["rate"] = 1_000 * rule.most / (state.ends_ms - state.start_ms)
            row["began"], row["others"] = state.began, state.others
            most_ahead = row["planned"] + rule.most / MOST_AHEAD
            row["held_back"] |= spent >= most_ahead
            # By a plan that may be of an earlier slice: once as much is spent, it is looked at again.
            arrays.enough[number] = min(arrays.enough[number], math.ceil(most_ahead) - 1)
        else:
            row["rate"], row["held_back"] = 0.0, False
        return was_out != (row["used_up"], row["held_back"])
