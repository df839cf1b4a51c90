"""The HTTP interface, the keys of the store and the stored records are what the files in tests/golden say.

A difference is a mistake, or a change that older clients and older stores must bear: then `make golden`
writes the files again.
"""

from __future__ import annotations

import json

import pytest

import golden


@pytest.mark.parametrize("part", golden.PARTS)
def test_what_others_rely_on_is_as_it_was(part: str) -> None:
    found, expected = golden.PARTS[part](), json.loads((golden.FOLDER / f"{part}.json").read_text("utf-8"))
    assert list(found) == list(expected)
    for section in expected:
        assert found[section] == expected[section], section


def test_every_record_is_listed_as_stored_or_not() -> None:
    assert golden.unlisted() == set()
    values = [value for module in golden.modules() for value in vars(module).values()]
    known = {value.__name__ for value in values if isinstance(value, type)}
    assert known >= golden.NOT_STORED


def test_the_files_hold_what_they_are_for() -> None:
    http = golden.http_interface()
    assert len(http["calls"]) > 60
    assert len(http["shapes"]) > 100
    keys = golden.store_keys()
    assert len(keys["table"]) > 60
    assert {"shortlist3:{registry}:bandits", "shortlist3:{p:7}:log"} <= set(keys["named"])
    assert {":replaced", "followed_arm"} <= set(keys["in scripts"])


def test_prose_is_left_out_and_names_of_fields_are_not() -> None:
    schema = {"title": "T", "properties": {"title": {"type": "string", "description": "what it is"}}}
    # private: what is left out of the golden files
    assert golden._bare(schema) == {"properties": {"title": {"type": "string"}}}
