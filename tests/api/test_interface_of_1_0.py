"""Clients of version 1.0 find every call, every field that they send, and every field that they read,
but for settings that version 3 took out: docs/upgrading.md names them.

``tests/stores/1.0.0/interface.json`` is the /openapi.json of 1.0.0, without prose, bounds and patterns.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from interface_lines import interface_lines
from openapi_document import openapi_document

pytestmark = pytest.mark.rest

FILE = Path(__file__).parents[1] / "stores/1.0.0/interface.json"


def lines_of_1_0() -> list[str]:
    lines = interface_lines(json.loads(FILE.read_text("utf-8")))
    assert len(lines) > 4_000
    return lines


def optional(lines: list[str]) -> set[str]:
    return {line.removesuffix("!") for line in lines}


def test_nothing_that_clients_of_1_0_use_is_gone_but_what_the_upgrade_page_names() -> None:
    gone = optional(lines_of_1_0()) - optional(interface_lines(openapi_document()))
    page = (Path(__file__).parents[2] / "docs/upgrading.md").read_text("utf-8")
    page = page[page.index("## From 2 to 3") : page.index("## From 1.0 to 2.0")]
    named = "\n".join(row for row in page.splitlines() if row.startswith("|"))
    for line in gone:
        fields = re.findall(r"\.([a-z_]+)", line)
        assert any(f"`{field}`" in named for field in fields), line


def test_nothing_is_required_that_clients_of_1_0_do_not_send() -> None:
    of_1_0 = lines_of_1_0()
    sent = optional(of_1_0)
    required = {line for line in interface_lines(openapi_document()) if line.endswith("!")}
    for line in required - set(of_1_0):
        # a field within one that 1.0 did not have is never missed
        around = re.sub(r"( takes )?(\[\]|\.\*)*[.?][^.?]+!$", "", line)
        assert around not in sent, line


@pytest.mark.rest
def test_fields_are_found_at_any_depth() -> None:
    inner = {"properties": {"b": {"enum": ["x"]}}, "required": ["b"]}
    body = {"properties": {"a": {"items": inner}, "c": {"type": "string"}}, "required": ["a"]}
    content = {"content": {"application/json": {"schema": body}}}
    document = {"paths": {"/p": {"put": {"requestBody": content, "responses": {"200": content}}}}}
    assert interface_lines(document) == [
        "PUT /p",
        *(f"PUT /p answers {line}" for line in (".a", ".a[].b", ".c", ".c: string")),
        *(f"PUT /p takes {line}" for line in (".a!", ".a[].b = x", ".a[].b!", ".c")),
    ]
