"""The types of the Python client are those of /openapi.json."""

import copy
from typing import Any

import pytest

import generate_types
from openapi_document import openapi_document
from shortlist_client.answers import Move, Quota
from shortlist_client.decoding import decoder


def test_the_types_of_the_client_are_those_of_the_service():
    for path, text in generate_types.generated().items():
        assert path.read_text() == text, f"{path.name} is stale, run: make client-types"


def test_what_the_document_says_reaches_the_client():
    document = copy.deepcopy(openapi_document())
    schemas = document["components"]["schemas"]
    before = generate_types.Generator(document).modules()
    schemas["ReceiptView"]["properties"]["mood"] = {"type": "string"}
    schemas["ReceiptView"]["description"] += " null is fine."
    schemas["RewardItem"]["properties"]["floor"] = {"type": "integer"}
    schemas["BanditBody"]["properties"]["ridge"] = {"type": "number", "default": 2.0}
    after = generate_types.Generator(document).modules()
    new = {name: set(after[name].splitlines()) - set(before[name].splitlines()) for name in before}
    assert new["settings.py"] == {"    ridge: float", "    ridge: float = 2.0"}
    assert new["bodies.py"] == {"    floor: int"}
    assert "    mood: str | None = None" in new["answers.py"]
    assert any("None is fine." in line for line in new["answers.py"])


def test_schemas_of_one_class_have_the_same_fields():
    document = copy.deepcopy(openapi_document())
    document["components"]["schemas"]["SampleCostView"]["properties"]["mood"] = {"type": "string"}
    with pytest.raises(ValueError, match="one class for schemas of other fields"):
        generate_types.Generator(document).modules()


@pytest.mark.parametrize(("kind", "fields"), [(Quota, {"from": "2026-01-01"}), (Move, {"from": "films"})])
def test_a_field_that_python_cannot_name_is_read(kind: Any, fields: dict[str, Any]):
    document = dict.fromkeys((field for field in kind.__dataclass_fields__ if field != "from_"), None)
    document |= {"arms": {"common": 1, "only_from": 0, "only_to": 0}, "warnings": (), **fields}
    assert decoder(kind)(document).from_ == fields["from"]
