"""The tests of catalogues, choices, rewards and filters, once more over catalogues in Milvus."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from test_catalogues import (
    test_a_catalogue_in_use_is_not_deleted,
    test_a_catalogue_made_again_is_empty_and_may_differ,
    test_a_change_is_seen_by_the_next_call,
    test_a_listing_gives_every_arm_that_stays_once_while_others_change,
    test_a_page_of_long_arms_has_fewer,
    test_a_sample_draws_every_arm_alike_and_the_same_for_the_same_seed,
    test_an_id_twice_in_a_batch_is_refused_where_it_repeats,
    test_an_upsert_inserts_and_replaces_everything_of_an_arm,
    test_an_upsert_is_all_or_nothing,
    test_deleting_names_what_was_not_there_and_may_be_repeated,
    test_writes_to_one_catalogue_at_once,
)
from test_choosing import (
    test_a_batch_is_its_requests_in_order,
    test_a_choice_from_nothing_is_refused,
    test_a_greedy_choice_is_the_largest_product_with_the_estimate,
    test_an_error_in_a_batch_names_its_place,
    test_keys_learn_apart,
    test_the_arms_of_a_batch_are_bounded_together,
    test_without_a_seed_choices_differ,
)
from test_choosing_in_context import (
    test_a_batch_has_a_context_for_each,
    test_a_context_decides_what_is_best,
    test_filters_rules_exclusions_and_many_arms,
    test_late_rewards_teach_in_the_context_of_their_decision,
    test_shifted_rewards_with_a_context,
    test_the_same_seed_and_event_give_the_same_choice,
)
from test_diverse import test_a_list_of_unlike_arms_from_draws, test_with_pins_filters_exclusions_and_limits
from test_filters import (
    test_bad_filters_and_rules_are_named,
    test_pins_alone_fill_a_list_and_are_rewarded_like_any_arm,
)
from test_import import test_a_catalogue_deleted_during_its_import
from test_included import (
    test_a_repeat_for_an_event_is_the_same_choice_with_the_metadata_of_now,
    test_all_metadata_or_the_fields_that_are_named,
)
from test_repeats import (
    test_callers_at_once_events_dry_runs_pins_and_batches,
    test_visitors_of_a_global_bandit,
    test_what_was_rewarded_does_not_come_again,
)
from test_rewards import (
    test_a_forgotten_learner_is_gone_for_good,
    test_a_reward_is_counted_once,
    test_a_reward_twice_in_one_call_or_in_many_at_once,
    test_observations_are_counted_once_by_id,
    test_rewards_that_add_up_count_the_arm_once,
    test_the_arm_is_named_when_there_were_several,
    test_wait_applied_answers_when_it_is_visible,
    test_what_is_learned_from_is_the_arm_as_it_was_chosen,
    world,
)

# ruff: noqa: F401 - pytest collects what is imported, with the fixtures of this module
from milvus import MilvusApi, running_on_milvus

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(store_url: str, tmp_path: Path, milvus_uri: str) -> AsyncIterator[MilvusApi]:
    async with running_on_milvus(store_url, tmp_path, milvus_uri) as api:
        yield api


@pytest.fixture(scope="module")
async def shared(
    store_url: str, tmp_path_factory: pytest.TempPathFactory, milvus_uri: str
) -> AsyncIterator[MilvusApi]:
    async with running_on_milvus(store_url, tmp_path_factory.mktemp("on-milvus"), milvus_uri) as api:
        yield api
