"""A basis that is fitted changes the features of arms and nothing else of them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from app.catalogues.arms import Arm, fit_reduction, prepare_arms
from app.catalogues.catalogue import difference_of
from app.catalogues.kept_arms import FoundArms
from app.records.features import EmbeddingRule, FeatureEncoding, FeaturesRule, ReduceRule, Reduction
from app.records.records import CatalogueRecord, attributes_of
from headless_service import INDEX

RULE = FeaturesRule(embedding=EmbeddingRule(4, ReduceRule(2)))
BASIS = Reduction(np.eye(2, 4, dtype="<f4").tobytes())


@pytest.mark.anyio
async def test_arms_keep_their_tags_and_metadata_when_a_basis_is_fitted():
    encoding = FeatureEncoding(RULE, None, 2)
    kinds = [((), {}), (("t",), {}), ((), {"price": 3}), (("t", "u"), {"name": "x"})]
    rows = np.random.default_rng(5).normal(size=(12, 4)).astype(np.float32)
    arms = [Arm(f"a{place}", row, *kinds[place % 4]) for place, row in enumerate(rows)]
    before = await prepare_arms(encoding, arms)
    documents = [write.document for write in before.writes]
    unfitted = FoundArms([arm.id for arm in arms], before.features, [])
    _, writes = fit_reduction(encoding, unfitted, documents)
    assert [write.id for write in writes] == [arm.id for arm in arms]
    found = [attributes_of(write.document) for write in writes]
    assert found == [(list(arm.tags), arm.metadata) for arm in arms]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"reduction": Reduction(BASIS.basis[::-1])}, "its features are others, and they cannot be changed"),
        ({"features": None}, "its features are others, and they cannot be changed"),
        ({"dim": 3}, "dim is 2, not 3"),
        ({"target_recall": 0.9}, "index.target_recall is 0.95, not 0.9"),
        ({"index": INDEX | {"m": 8}}, "index.m is 16, not 8"),
    ],
    ids=lambda each: "" if isinstance(each, str) else next(iter(each), "nothing"),
)
def test_who_makes_a_catalogue_again_is_told_what_differs(changes, said):
    record = CatalogueRecord(2, INDEX, features=RULE, reduction=BASIS)
    assert difference_of(record, msgspec.structs.replace(record, **changes)) == said
