"""API keys, scopes and origins: nobody gets in who should not, and every route says what it needs."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.api_keys import configured, new_key, scope_of
from app.platform.errors import StartupError
from openapi_document import openapi_document

pytestmark = pytest.mark.anyio


def documented() -> list[tuple[str, str]]:
    """(method, path) of every route, with names filled in."""
    paths = openapi_document()["paths"]
    return sorted(
        (method.upper(), re.sub(r"{\w+}", "x", path)) for path, methods in paths.items() for method in methods
    )


EXPECTED = {
    "choose": {"/v1/bandits/x/choose", "/v1/bandits/x/choose/batch", "/v1/choose/batch", "/v1/slates/x/ask",
        "/v1/centers/x/ask"},
    "reward": {"/v1/rewards", "/v1/decisions/activate", "/v1/activations"},
    "observe": {"/v1/bandits/x/observations", "/v1/slates/x/tell", "/v1/centers/x/tell"},
}  # fmt: skip
OPEN = {"/", "/healthz", "/readyz", "/docs", "/openapi.json"}
QUESTIONS = {"mips", "sample", "centers", "evaluations", "explain"}


def purpose(method: str, path: str) -> str | None:
    """The scope that a route needs by what it is for; None: anybody may call it."""
    if path in {"/", "/healthz", "/readyz"}:
        return None
    if method == "GET":
        return "read"
    for scope, paths in EXPECTED.items():
        if path in paths:
            return scope
    if "/evaluations/" in path or (  # who may start one may end it
        method == "POST" and path.rsplit("/", maxsplit=1)[-1] in QUESTIONS and path != "/v1/centers"
    ):
        return "read"
    return "admin"


def test_every_endpoint_needs_the_scope_that_its_purpose_says():
    routes = documented()
    assert {route: scope_of(*route) for route in routes} == {route: purpose(*route) for route in routes}


@given(
    st.text("/v1abcdefgh.%{}\n ", max_size=40),
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]),
)
def test_what_is_not_known_needs_admin(path: str, method: str):
    known = {*OPEN, "/metrics", "/v1/status"}
    assert scope_of(method, path) == "admin" or (path.rstrip("/") or "/") in known


def test_a_bad_line_of_the_file_is_named_with_its_file(tmp_path: Path):
    _, entry = new_key("app", ["read"])
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{entry}\n\nother:raed:{'0' * 64}\n")
    with pytest.raises(StartupError, match=r"keys, line 4: the scopes of the API key other must be of"):
        configured("", path)


def test_a_key_in_place_of_its_entry_is_not_shown(tmp_path: Path):
    key, _ = new_key("app", ["read"])
    path = tmp_path / "keys"
    path.write_text(key)
    with pytest.raises(StartupError, match=r"keys, line 1: an API key must be written") as raised:
        configured("", path)
    assert key not in str(raised.value)
