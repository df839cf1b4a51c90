"""What is not well with a service is said, with what to do about it."""

from typing import Any

import pytest

from app.replication.health import findings
from app.storage.embedded.losses import Loss
from app.storage.types.registry import KINDS

pytestmark = pytest.mark.rest

WELL: dict[str, Any] = {
    "worker": True,
    "backlog": 3,
    "dead": 0,
    "durability": "always",
    "held": {**dict.fromkeys(KINDS, 80), "repeats": 55},  # of those new keys are not limited from 69 on
    "bounds": dict.fromkeys(KINDS, 100),
    "loss": None,
    "failures": {},
    "disk_full": False,
}


def test_a_service_that_is_well_has_nothing_else():
    assert [(found.name, found.good) for found in findings(**WELL)] == [
        ("backlog", True),
        ("durability", True),
    ]


@pytest.mark.parametrize(
    ("different", "name", "good", "words"),
    [
        ({"dead": 2}, "dead", False, "shortlist dead-letters list"),
        ({"worker": False}, "worker", None, "shortlist worker"),
        ({"durability": "everysec"}, "durability", False, "everysec"),
        ({"held": {**WELL["held"], "dedupe": 81}}, "space", False, "81% of SHORTLIST_MAX_DEDUPE_MB"),
        ({"held": {**WELL["held"], "repeats": 56}}, "space", False, "from 69% on new keys"),
        ({"disk_full": True}, "disk", False, "the disk of SHORTLIST_DATA_DIR is full"),
        ({"failures": {"shop": "MemoryError: 3 GB"}}, "index", False, "the index of shop stays as it was"),
        ({"quotas": ["the bandit home has quotas"]}, "quotas", False, "the bandit home has quotas"),
        ({"loss": Loss(at="today", what="10 rewards")}, "loss", False, "today: 10 rewards"),
    ],
)
def test_what_is_not_well_is_named(different: dict[str, Any], name: str, good: bool | None, words: str):
    (found,) = [each for each in findings(**{**WELL, **different}) if not each.good]
    assert (found.name, found.good) == (name, good)
    assert words in found.text


def test_a_full_log_is_as_it_should_be():
    assert all(found.good for found in findings(**{**WELL, "held": {**WELL["held"], "log": 100}}))
