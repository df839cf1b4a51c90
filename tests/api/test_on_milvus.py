"""Tests of catalogues, choices, rewards and filters, once more over catalogues in Milvus."""

# ruff: noqa: F401 - pytest collects what is imported, with the fixtures of this module

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from test_catalogue_changes import test_a_listing_gives_every_arm_that_stays_once_while_others_change
from test_catalogues import test_a_change_is_seen_by_the_next_call
from test_choosing import test_a_greedy_choice_is_the_largest_product_with_the_estimate
from test_import import empty, test_a_catalogue_deleted_during_its_import
from test_included import test_all_metadata_or_the_fields_that_are_named
from test_repeats import test_what_was_rewarded_does_not_come_again
from test_rewards import (
    api_with_bandits,
    test_a_reward_is_counted_once,
    test_what_is_learned_from_is_the_arm_as_it_was_chosen,
)

from milvus_engines import OtherKindApi, running_on_milvus

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.fixture
async def api(store_url: str, tmp_path: Path, milvus_uri: str) -> AsyncIterator[OtherKindApi]:
    async with running_on_milvus(store_url, tmp_path, milvus_uri, kind=OtherKindApi) as api:
        yield api


@pytest.fixture(scope="module")
async def shared(
    shared_store_url: str, tmp_path_factory: pytest.TempPathFactory, milvus_uri: str
) -> AsyncIterator[OtherKindApi]:
    folder = tmp_path_factory.mktemp("on-milvus")
    async with running_on_milvus(shared_store_url, folder, milvus_uri, kind=OtherKindApi) as api:
        yield api
