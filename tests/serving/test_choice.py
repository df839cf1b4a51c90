"""Records of choices for an event: small, and the same answer again to the bit."""

import struct

import msgspec
import numpy as np
import pytest

from app.records.kept_choice import KeptChoice
from app.records.records import pack, unpack
from app.rewards.tokens import Decision, TokenSigner
from app.serving.choice import Choice, ChosenArm, choice_of, kept_choice, kept_decision, part_of

SCORES = (-0.0, 5e-324, 1.7976931348623157e308, -1 / 3, 1e-17)


@pytest.fixture
def signer() -> TokenSigner:
    signer = TokenSigner()
    signer.use({7: bytes(range(32))}, current=7)
    return signer


def choice(signer: TokenSigner, k: int, *, drawn: bool = False, stale_s: float | None = None) -> Choice:
    rng = np.random.default_rng(k)
    ids = [f"arm-{row}" for row in rng.permutation(5_000)[:k].tolist()]
    revisions = rng.integers(1, 100_000, k).tolist()
    decision = Decision("0123456789abcdef", "ann", "decided", 1, 2, ids, revisions, bandit_version=3)
    scores = [*SCORES, *np.sort(rng.standard_normal(k))[::-1].tolist()][:k]
    columns = [ids, scores, rng.random(k).tolist()] if drawn else [ids, scores]
    arms = list(map(ChosenArm, *columns))
    policy = "softmax" if drawn else "sub_ts"
    return Choice(signer.sign(decision), arms, policy, 12, 2**40, drawn, 3, stale_s)


def with_rules(made: Choice) -> Choice:
    """The same choice under a filter, with its second and its last arm pinned."""
    last = len(made.arms) - 1
    arms = [msgspec.structs.replace(arm, pinned=place in {1, last}) for place, arm in enumerate(made.arms)]
    return msgspec.structs.replace(made, arms=arms, eligible=3_000)


def bits(choice: Choice) -> list[bytes]:
    numbers = [(arm.score, arm.propensity) for arm in choice.arms]
    return [struct.pack("<d", number) for pair in numbers for number in pair if number is not None]


@pytest.mark.parametrize("k", [1, 2, 10, 30, 31, 100, 1_000])
@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("stale_s", [None, 1.25])
@pytest.mark.parametrize("ruled", [False, True])
def test_a_choice_is_answered_again_to_the_bit(signer, k, drawn, stale_s, ruled):
    made = choice(signer, k, drawn=drawn, stale_s=stale_s)
    if ruled:
        made = with_rules(made)
    kept = kept_choice(made, b"asked")
    again = choice_of(unpack(pack(kept), KeptChoice))
    assert again == made
    assert bits(again) == bits(made)
    assert msgspec.json.encode(again) == msgspec.json.encode(made)
    assert kept_choice(again, b"asked") == kept


@pytest.mark.rest
@pytest.mark.parametrize(("k", "most"), [(1, 140), (10, 320), (100, 1_800), (1_000, 16_000)])
def test_what_is_kept_is_small(signer, k, most):
    assert len(pack(kept_choice(choice(signer, k), b"asked"))) <= most


@pytest.mark.parametrize("k", [1, 40])
@pytest.mark.parametrize("known", [0, 7, 2**40])
def test_a_record_says_what_was_known_of_the_log(signer, k, known):
    made = choice(signer, k)
    decision = Decision("0123456789abcdef", "ann", "d", 1, 2, ["a"] * k, [1] * k, known_entry=known)
    made = msgspec.structs.replace(made, decision=signer.sign(decision))
    assert kept_decision(pack(kept_choice(made, b"asked"))).known_entry == known


@pytest.mark.parametrize("end", [0, 1, 2, 30, 60, 100, -1])
def test_of_a_damaged_record_nothing_is_said(signer, end):
    assert kept_decision(pack(kept_choice(choice(signer, 40), b"asked"))[:end]) is None
    assert kept_decision(bytes(end % 256)) is None


def test_of_metadata_only_the_fields_that_are_named_are_shown():
    metadata = {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": [{"g": 4, "h": 5}, 6], "bx": 7}
    assert part_of(metadata, {"a", "b.d", "f.g"}) == {"a": 1, "b": {"d": {"e": 3}}, "f": [{"g": 4}]}
    assert part_of(metadata, {"b.d.e", "missing"}) == {"b": {"d": {"e": 3}}}
