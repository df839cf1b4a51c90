"""Rules of slate campaigns in the store: what they were made with, and snapshots of their states."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.records.records import pack, unpack
from shortlist.slates.campaign_state import SlateState
from shortlist.slates.matroids import PartitionMatroid
from shortlist_campaigns.fold import pack_state, size_of, unpack_state
from shortlist_campaigns.slates import AtMostRule, SlateParameters, SlateRules, Slates, partition

pytestmark = pytest.mark.rest

ARMS = ["a", "b", "c", "d", "e", "f"]
RULES = SlateRules([AtMostRule("maker", 2)])
PARAMETERS = SlateParameters(
    arms=ARMS, k=3, method="icb", epsilon=0.1, delta=0.05, noise_range=None, noise_std=1.0,
    independent_noise=False, allocation="uniform", bound="certified", rules=RULES,
    metadata={"a": {"maker": 1}, "b": {"maker": True}, "c": {"maker": 1.0}, "d": {"maker": "1"}},
)  # fmt: skip


def test_groups_are_values_and_their_kinds():
    found = partition(ARMS, PARAMETERS.metadata or {}, RULES, 3)
    assert found == PartitionMatroid((0, 1, 0, 2, 3, 4), (2, 2, 2, 1, 1), 3)


def test_what_a_campaign_is_made_with_comes_back():
    assert unpack(pack(PARAMETERS), SlateParameters) == PARAMETERS


@pytest.mark.parametrize("allocation", ["uniform", "g", "xy"])
def test_a_snapshot_goes_on_as_the_state_would_have(allocation: str):
    slates = Slates()
    given = {name: getattr(PARAMETERS, name) for name in PARAMETERS.__struct_fields__}
    state = slates.start(SlateParameters(**{**given, "allocation": allocation}), 7)
    state, pulls = slates.ask(state, 30)
    state = slates.tell(state, [(pull.number, math.sin(pull.number)) for pull in pulls])
    again = unpack_state(pack_state(state), SlateState)
    assert again is not None
    assert again.settings == state.settings
    assert pack_state(again) == pack_state(state)
    assert size_of(again) > 1_024
    for one, other in zip(slates.ask(state, 50)[1], slates.ask(again, 50)[1], strict=True):
        assert one == other
        groups = np.array([0, 1, 0, 2, 3, 4])[list(one.slate)]
        assert np.bincount(groups).max() <= 2
