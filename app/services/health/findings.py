"""What is well with a running service and what is not: the words of `shortlist doctor` and of the console."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.services.quotas.membership import MAX_OF_ARM
from app.storage.losses import Loss
from app.storage.protocol import Kind
from app.storage.protocol.usage import KINDS, SIXTEENTHS_FOR_NEW
from app.storage.redis_client import DISK_FULL

NEARLY_FULL = 0.8


@dataclass(frozen=True, slots=True)
class Finding:
    """``good``: None says that it is neither good nor bad. ``text``: a sentence without a full stop."""

    name: str
    good: bool | None
    text: str


def findings(
    *,
    worker: bool,
    backlog: int,
    dead: int,
    durability: str,
    held: Mapping[Kind, float],
    bounds: Mapping[Kind, int],
    loss: Loss | None,
    failures: Mapping[str, str],
    beyond: Mapping[str, int],
    disk_full: bool,
) -> Iterator[Finding]:
    """``dead``: rewards that could not be applied. ``held`` and ``bounds``: bytes in the store by kind.
    ``failures``: of catalogues, why the last work on their index failed. ``beyond``: of bandits, how many
    arms would count for too many quotas. ``disk_full``: of the data folder.
    """
    yield Finding("backlog", True, f"{backlog} rewards are waiting to be applied")
    if dead:
        yield Finding("dead", False, f"{dead} rewards could not be applied: shortlist dead-letters list")
    if not worker:
        yield Finding("worker", None, "this process applies no rewards: shortlist worker does")
    if disk_full:
        text = f"{DISK_FULL}: the embedded store cannot write, and indexes are not kept"
        yield Finding("disk", False, text)
    yield Finding("durability", durability == "always", f"the store's appendfsync is {durability}")
    for kind, most in bounds.items():
        full = SIXTEENTHS_FOR_NEW / 16 if kind == "repeats" else 1.0
        if kind != "log" and held[kind] > NEARLY_FULL * full * most:  # of the log the oldest rows make room
            share = held[kind] / most
            text = f"{KINDS[kind]} take {share:.0%} of SHORTLIST_MAX_{kind.upper()}_MB"
            if kind == "repeats":
                text += f": from {full:.0%} on new keys and visitors are not limited by repeats"
            yield Finding("space", False, text)
    for catalogue, failure in failures.items():
        text = f"the index of {catalogue} stays as it was, because work on it failed: {failure}"
        yield Finding("index", False, text)
    for bandit, count in beyond.items():
        what, verb = ("1 arm", "is") if count == 1 else (f"{count:,} arms", "are")
        text = f"{what} of the bandit {bandit} would count for too many quotas, and {verb} not eligible"
        yield Finding("quotas", False, f"{text}: {MAX_OF_ARM} are the most")
    if loss is not None:
        yield Finding("loss", False, f"{loss.at}: {loss.what}")
