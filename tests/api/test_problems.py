"""Problem documents: a status for every class of errors, and where in the request its fields are."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from api_client import Api
from app.api.problems import KINDS, Part, from_path, kind_of, problem_of, problem_response
from app.platform.errors import Invalid, NotFound, ShortlistError, StoreFull, TooLarge, within
from shortlist.errors import InvalidParameter


def classes(base: type[ShortlistError] = ShortlistError) -> Iterator[type[ShortlistError]]:
    yield base
    for each in base.__subclasses__():
        yield from classes(each)


def locations(body: bytes) -> list[list[str | int]]:
    return [error["loc"] for error in json.loads(body)["errors"]]


def test_every_class_of_errors_has_its_status_and_title_and_a_code_of_its_own():
    found = [each for each in classes() if each.__module__ == "app.platform.errors"]
    assert set(found) == set(KINDS)
    assert len({each.code for each in found}) == len(found)
    assert all(400 <= kind.status < 600 and kind.title for kind in KINDS.values())


@pytest.mark.rest
def test_a_class_without_a_row_is_answered_as_the_one_it_is_made_from():
    class CatalogueNotFound(NotFound):
        pass

    assert kind_of(CatalogueNotFound("not found")) == KINDS[NotFound]


@pytest.mark.parametrize(
    ("method", "path", "location"),
    [
        ("POST", ("rules", "pin", 2, "arm"), ["body", "rules", "pin", 2, "arm"]),
        ("POST", ("query",), ["body", "query"]),
        ("POST", (), ["body"]),
        ("GET", ("cursor",), ["query", "cursor"]),
        ("PUT", (Part.HEADER, "if-match"), ["header", "if-match"]),
        ("POST", (Part.QUERY, "n"), ["query", "n"]),
    ],
)
def test_the_path_of_a_field_becomes_a_location_in_the_request(method, path, location):
    response = problem_response(Invalid("wrong", path=path), method)
    assert locations(bytes(response.body)) == [location]


@pytest.mark.rest
def test_an_error_of_no_field_has_no_location():
    assert locations(problem_of(NotFound("not found"))) == []


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (Invalid("is required", path=("policy",)), "policy: is required"),
        (
            Invalid("must be a number", path=("arms", 3, "metadata", "price")),
            "arms.3.metadata.price: must be a number",
        ),
        (Invalid("breaks its rule", path=("k",)), "k: breaks its rule"),
        (Invalid("key is required here", path=("key",)), "key is required here"),
        (Invalid("must be JSON", path=()), "must be JSON"),
        (Invalid("is too long", path=(Part.HEADER, "if-match")), "if-match: is too long"),
        (NotFound("not found"), "not found"),
    ],
)
def test_the_detail_names_the_field(error: ShortlistError, detail: str):
    assert json.loads(problem_of(error))["detail"] == detail


@pytest.mark.rest
def test_a_field_of_the_path_is_said_to_be_there():
    with pytest.raises(Invalid) as raised, from_path("bandit"):
        raise Invalid.many([(("bandit",), "wrong"), (("k",), "wrong")])
    assert locations(problem_of(raised.value)) == [["path", "bandit"], ["body", "k"]]


def test_an_error_of_an_item_of_a_batch_names_the_item():
    with pytest.raises(TooLarge) as raised, within(("requests", 3)):
        raise TooLarge("too large", path=("exclude",))
    assert locations(problem_of(raised.value)) == [["body", "requests", 3, "exclude"]]


def test_an_argument_of_an_algorithm_is_a_field_of_the_request():
    response = problem_response(InvalidParameter("must be positive", argument="epsilon"))
    assert response.status_code == 422
    assert locations(bytes(response.body)) == [["body", "epsilon"]]


@pytest.mark.rest
@pytest.mark.anyio
async def test_a_small_bound_is_written_as_people_write_it(shared: Api):
    for delta, bound in ((0, "greater than or equal to 1e-100"), (1, "less than 1")):
        told = await shared.refused(
            "PUT",
            "/v1/bandits/b",
            {"catalogue": "c", "policy": "sub_ts", "delta": delta},
            loc=["body", "delta"],
        )
        assert told["detail"] == f"delta: Input should be {bound}"


def test_it_says_when_to_try_again():
    assert problem_response(StoreFull("full")).headers["retry-after"] == "60"


@pytest.mark.anyio
async def test_what_a_body_names_and_is_not_there_is_told_from_what_the_path_names(shared: Api):
    await shared.ok("PUT", "/v1/catalogues/c", {"dim": 2}, status=201)
    await shared.ok("PUT", "/v1/bandits/b", {"catalogue": "c", "policy": "sub_ts"}, status=201)
    made, there = {"catalogue": "none", "policy": "sub_ts"}, {"status": 404, "code": "not_found"}
    rules = {"rules": {"at_most": [{"field": "f", "count": 1}]}, "catalogue": "none"}
    slates = {"id": "s", "arms": ["a", "b"], "k": 1, "noise_range": 1.0, "epsilon": 0.5, **rules}
    for method, path, body in (
        ("PUT", "/v1/bandits/new", made),
        ("POST", "/v1/bandits/b/move", {"catalogue": "none"}),
        ("POST", "/v1/bandits/b/move", {"catalogue": "none", "dry_run": True}),
        ("POST", "/v1/slates", slates),
    ):
        await shared.refused(method, path, body, loc=["body", "catalogue"], **there)
    await shared.refused("POST", "/v1/bandits/b/choose", {"baseline": "s"}, loc=["body", "baseline"], **there)
    for gone, field in (("noise_range", "noise_std"), ("rules", "metadata")):
        await shared.refused("POST", "/v1/slates", slates | {gone: None}, loc=["body", field])
    unknown = await shared.refused("POST", "/v1/bandits/none/move", {"catalogue": "c"}, **there)
    assert unknown["errors"] == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("GET", "/healthz/", "/healthz"),
        ("POST", "/v1/bandits/c4nary/choose/", "/v1/bandits/{bandit}/choose"),
        ("DELETE", "/v1/catalogues/c4nary//", "/v1/catalogues/{catalogue}"),
    ],
)
async def test_a_slash_too_many_is_named(shared: Api, method: str, path: str, known: str):
    document = await shared.refused(method, path, status=404, code="not_found", canary="c4nary")
    assert document["detail"] == f"there is nothing at this path: leave out the / at its end, as in {known}"


@pytest.mark.rest
@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/nowhere/", "/nowhere", "/v1/bandits//choose/"])
async def test_a_path_that_is_none_is_not_mended(shared: Api, path: str):
    document = await shared.refused("POST", path, status=404, code="not_found")
    assert "leave out" not in document["detail"]
