"""Every choice of a method is one table. Its rows are the methods of the contract."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel

from algorithm_table import BY_NAME
from app.api import mips as mips_api
from app.policies.registry import POLICIES
from app.queries import mips
from shortlist.kcenter import ask_tell as noisy_centers_algorithms
from shortlist.kcenter import noisy_state
from shortlist.slates import ask_tell as slate_algorithms
from shortlist.slates import campaign_state
from shortlist_campaigns import catalogue_calls as centers_api
from shortlist_campaigns import catalogue_centers as centers
from shortlist_campaigns import center_calls as center_campaigns_api
from shortlist_campaigns import noisy_centers, sampling, slates
from shortlist_campaigns import sampling_calls as sampling_api
from shortlist_campaigns import slate_calls as slates_api

TABLES: dict[str, tuple[str, Iterable[str], type[BaseModel]]] = {
    "mips": ("mips", mips.METHODS, mips_api.CatalogueMipsBody),
    "vectors": ("mips", mips.METHODS, mips_api.VectorsMipsBody),
    "sampling": ("sampling", sampling.METHODS, sampling_api.SampleBody),
    "arms": ("sampling", sampling.METHODS, sampling_api.CatalogueSampleBody),
    "centers": ("kcenter", centers.METHODS, centers_api.CentersBody),
    "center campaigns": ("kcenter", noisy_centers.METHODS, center_campaigns_api.CenterCampaignBody),
    "slates": ("slates", slates.METHODS, slates_api.SlateBody),
}


def choices(model: type[BaseModel], field: str) -> tuple[str, ...]:
    found: tuple[str, ...] = get_args(model.model_fields[field].annotation)
    return found


@pytest.mark.parametrize(("problem", "table", "body"), TABLES.values(), ids=TABLES)
def test_the_contract_takes_what_the_table_has(problem: str, table: Iterable[str], body: type[BaseModel]):
    assert choices(body, "method") == tuple(table)


def test_campaigns_go_on_by_the_methods_that_they_start_with():
    assert set(noisy_centers_algorithms._METHODS) == set(noisy_centers.METHODS)
    assert set(slate_algorithms._TESTS) == set(slates.METHODS)
    assert set(get_args(noisy_state.NoisyMethod)) == set(noisy_centers.METHODS)
    assert set(get_args(campaign_state.SlateMethod)) == set(slates.METHODS)


CAMPAIGNS: dict[str, tuple[Any, type[BaseModel], type, type, set[str]]] = {
    "centers": (
        noisy_centers.CenterParameters,
        center_campaigns_api.CenterCampaignBody,
        noisy_state.NoisyOptions,
        noisy_state.NoisySettings,
        {"mix", "threshold"},
    ),
    "slates": (
        slates.SlateParameters,
        slates_api.SlateBody,
        campaign_state.SlateOptions,
        campaign_state.SlateSettings,
        set(),
    ),
}
campaigns = pytest.mark.parametrize(
    ("parameters", "body", "options", "settings", "own"), CAMPAIGNS.values(), ids=CAMPAIGNS
)


@campaigns
def test_a_campaign_is_made_with_what_a_body_says(
    parameters: Any, body: type[BaseModel], options: type, settings: type, own: set[str]
):
    given = {name: field for name, field in body.model_fields.items() if name not in {"id", "seed"}}
    assert set(given) == set(parameters.__struct_fields__)
    for name, hint in get_type_hints(parameters).items():
        if get_origin(hint) is Literal:
            assert choices(body, name) == get_args(hint), name
    last_first = zip(
        reversed(parameters.__struct_fields__), reversed(parameters.__struct_defaults__), strict=False
    )
    for name, default in last_first:
        assert given[name].default == default, name


@campaigns
def test_an_algorithm_gets_all_its_options(
    parameters: Any, body: type[BaseModel], options: type, settings: type, own: set[str]
):
    names = set(get_type_hints(options))
    assert {field.name for field in fields(settings)} == names | own | {"method"}
    computed = {"n", "reach", "seed", "matroid"}
    assert names | own <= set(parameters.__struct_fields__) | computed


# The tables from which the service chooses, by problem.
SERVED = {
    "policy": [POLICIES],
    "mips": [mips.METHODS],
    "sampling": [sampling.METHODS],
    "slates": [slates.METHODS],
    "kcenter": [centers.METHODS, noisy_centers.METHODS],
}
# An index, tested in tests/indexes.
NO_ALGORITHM = {("mips", "hnsw")}
# A part of saqm and sa_foa; and what makes catalogues, for which there is no choice of methods.
NOT_SERVED = {("slates", "densest_k_subgraph"), ("embedding", "behaviour")}


def test_the_battery_has_what_the_service_runs_and_nothing_else():
    served = {(problem, name) for problem, tables in SERVED.items() for table in tables for name in table}
    assert served > NO_ALGORITHM
    assert set(BY_NAME) > NOT_SERVED
    assert served - NO_ALGORITHM == set(BY_NAME) - NOT_SERVED
