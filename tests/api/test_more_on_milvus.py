"""As ``test_on_milvus``, and longer."""

# ruff: noqa: F401 - pytest collects what is imported, with its fixtures

import pytest
from test_catalogue_changes import (
    test_a_catalogue_made_again_is_empty_and_may_differ,
    test_a_sample_draws_every_arm_alike_and_the_same_for_the_same_seed,
    test_an_id_twice_in_a_batch_is_refused_where_it_repeats,
    test_writes_to_one_catalogue_at_once,
)
from test_catalogues import test_a_catalogue_in_use_is_not_deleted, test_a_page_of_long_arms_has_fewer
from test_choosing import (
    test_a_batch_is_its_requests_in_order,
    test_a_choice_from_nothing_is_refused,
    test_an_error_in_a_batch_names_its_place,
    test_the_arms_of_a_batch_are_bounded_together,
)
from test_diverse import test_a_list_of_unlike_arms_from_draws, test_with_pins_filters_exclusions_and_limits
from test_filters_everywhere import test_bad_filters_and_rules_are_named
from test_included import test_a_repeat_for_an_event_is_the_same_choice_with_the_metadata_of_now
from test_on_milvus import api, shared
from test_repeats import (
    test_callers_at_once_events_dry_runs_pins_and_batches,
    test_visitors_of_a_global_bandit,
)
from test_rewards import (
    api_with_bandits,
    test_a_reward_twice_in_one_call_or_in_many_at_once,
    test_observations_are_counted_once_by_id,
    test_the_arm_is_named_when_there_were_several,
    test_wait_applied_answers_when_it_is_visible,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
