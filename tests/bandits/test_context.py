"""What bandits with and without a context store: records, tokens and entries."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.bandits.context import directions_of
from app.bandits.versions import BanditVersion, bytes_to_version, version_to_bytes
from app.catalogues.arms import Arm
from app.indexes.snapshot import Snapshot
from app.platform.errors import Invalid
from app.records.encoding import ContextRule, EncodedField
from app.rewards.tokens import Decision, TokenSigner, raw_of
from headless_service import HeadlessService, bandit_record
from shortlist.linear import bilinear

pytestmark = pytest.mark.anyio

# As it was signed before there were contexts.
TOKEN = (
    "AAAAB5mwMDEyMzQ1Njc4OWFiY2RlZqNhbm6wQUFBQUFBQUFBQUFBQUFBQc8AAAGLz-VoAM8AAAGLz-6PwJKhYaFikgMFwgxG-WPEbAj"
    "WfEbHTBOLVXOk"
)
DECISION = Decision(
    "0123456789abcdef", "ann", "A" * 16, 1_700_000_000_000, 1_700_000_600_000, ["a", "b"], [3, 5], False, 12
)


def signer() -> TokenSigner:
    made = TokenSigner()
    made.use({7: b"0123456789abcdef"}, current=7)
    return made


def test_a_token_without_a_context_has_the_bytes_that_it_always_had():
    assert signer().sign(DECISION) == TOKEN
    assert signer().verify(TOKEN, now_ms=0) == DECISION
    assert DECISION.encoded_context is None


def test_a_token_carries_its_context_bit_for_bit():
    context = np.array([0.1, -3.5e-20, 1e6], dtype=np.float32)
    decision = msgspec.structs.replace(DECISION, context=context.tobytes())
    token = signer().sign(decision)
    found = signer().verify(token, now_ms=0)
    assert found == decision
    assert found.encoded_context is not None
    assert found.encoded_context.tobytes() == context.tobytes()
    assert len(raw_of(token)) == len(raw_of(TOKEN)) + 1 + 2 + 12, "its version, and the context"


@pytest.mark.rest
def test_a_record_with_a_context_is_read_as_it_was_written():
    fields = [EncodedField("device", "category", values=["a"]), EncodedField("hour", "cycle", period=24.0)]
    record = bandit_record(context=ContextRule(fields=fields), interactions=2, directions=b"x" * 16)
    version = BanditVersion(record, 3, 1_700_000_000_000, 5)
    assert bytes_to_version(version_to_bytes("0" * 16, version)) == ("0" * 16, version)


async def test_what_is_learned_in_a_context_are_lifted_features(service: HeadlessService):
    bandit = await service.bandit(context=ContextRule(dim=2))
    context = np.array([0.5, 3.0], dtype=np.float32)
    joint = bandit.joint_features(np.array([1.0, 2.0]), context)
    assert joint.tolist() == [1.0, 2.0, 0.5, 3.0, 1.0, 6.0]
    assert bandit.joint_features(np.array([1.0, 2.0]), None).tolist() == [1.0, 2.0, 0.0, 0.0, 0.0, 0.0]
    assert bandit.learner_dim == 6


async def test_directions_are_those_of_all_arms_and_stay(service: HeadlessService):
    await service.catalogue("d", dim=5, arms=1)
    catalogue = await service.parts.catalogues.get("d")
    rows = np.random.default_rng(3).normal(size=(400, 5)) * [9.0, 1.0, 4.0, 0.1, 2.0]
    arms = [Arm(f"r{n}", row) for n, row in enumerate(rows.tolist())]
    await service.parts.catalogues.upsert(catalogue, arms)
    bandit = await service.bandit("b", "d", context=ContextRule(dim=2), interactions=2)
    assert bandit.context is not None
    found = bandit.context.directions
    assert found is not None
    np.testing.assert_allclose(found @ found.T, np.eye(2), atol=1e-12)
    assert np.abs(found[0, 0]) > 0.9
    assert np.abs(found[1, 2]) > 0.9
    assert directions_of(catalogue.index.snapshot(), 2).tobytes() == found.tobytes()
    await service.parts.catalogues.upsert(catalogue, [Arm("far", [0.0, 0.0, 0.0, 1e4, 0.0])])
    same = await service.bandit("b", "d", context=ContextRule(dim=2), interactions=2)
    assert same.context is not None
    assert same.context.directions is found
    assert directions_of(catalogue.index.snapshot(), 2).tobytes() != found.tobytes()


async def snapshot_of(service: HeadlessService, rows: NDArray[np.float64]) -> Snapshot:
    await service.catalogue("d", dim=rows.shape[1], arms=0)
    catalogue = await service.parts.catalogues.get("d")
    await service.parts.catalogues.upsert(
        catalogue, [Arm(f"r{n}", row) for n, row in enumerate(rows.tolist())]
    )
    return catalogue.index.snapshot()


@pytest.mark.rest
@pytest.mark.parametrize("numbers", [1, 40, 1 << 18])
async def test_what_all_arms_have_in_common_is_their_first_direction(service: HeadlessService, numbers: int):
    """Directions are about zero, however many arms are read at a time. About the mean it would be lost."""
    offset = np.array([3.0, -4.0, 12.0, 0.0])
    rows = offset + np.random.default_rng(5).normal(size=(60, 4)) * [0.1, 0.2, 0.1, 1.0]
    found = directions_of(await snapshot_of(service, rows), 2, block_numbers=numbers)
    right = np.linalg.svd(rows.astype(np.float32).astype(np.float64))[2][:2]
    np.testing.assert_allclose(np.abs(np.sum(found * right, axis=1)), 1.0, atol=1e-9)
    assert found[0] @ offset > 0.999 * np.linalg.norm(offset)


@pytest.mark.rest
async def test_directions_of_very_many_arms_are_those_of_an_even_sample(service: HeadlessService):
    """Of as many as cost no more than ``most_products``."""
    rows = np.random.default_rng(6).normal(size=(1_200, 3))
    arms = await snapshot_of(service, rows)
    kept = arms.features_of(arms.eligible()).astype(np.float64)
    for most, step in ((1_200 * 9, 1), (1_200 * 9 - 1, 2), (9 * 400, 3)):
        some = kept[::step]
        assert some.size * 3 <= most
        expected = bilinear.directions(some.T @ some, 3)
        found = directions_of(arms, 3, most_products=most)
        np.testing.assert_allclose(found, expected, atol=1e-9)


async def test_a_bandit_is_found_again_also_when_its_catalogue_is_empty_now(service: HeadlessService):
    bandit = await service.bandit("b", "c", context=ContextRule(dim=2), interactions=1)
    catalogue = await service.parts.catalogues.get("c")
    await service.parts.catalogues.remove(catalogue, [f"a{n}" for n in range(4)])
    assert await service.bandit("b", "c", context=ContextRule(dim=2), interactions=1) is bandit
    with pytest.raises(Invalid) as raised:
        await service.bandit("new", "c", context=ContextRule(dim=2), interactions=1)
    assert raised.value.errors[0][0] == ("interactions",)
