"""What an API key makes of a pass that it has signed; `test_visitor_passes.py` has what HTTP makes of it."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from app.api.api_keys import LEEWAY_S, ApiKeys, configured, new_key
from app.platform.errors import PassExpired, Unauthorized
from shortlist_client import visitor_pass

LASTS_S = 60


def signed(scopes: list[str], expires_in_s: int) -> tuple[ApiKeys, bytes]:
    """The keys of a service, and a pass for ann that one of them signed."""
    key, entry = new_key("web", scopes, {"visitors": str(LASTS_S)})
    return ApiKeys([entry]), visitor_pass(key, visitor="ann", expires_in_s=expires_in_s).encode()


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_file_of_keys_may_begin_with_a_mark_of_byte_order(tmp_path: Path, mark: bytes, end: bytes):
    (key, entry), (other, another) = new_key("web", ["choose"]), new_key("office", ["admin"])
    file = tmp_path / "keys"
    file.write_bytes(mark + end.join([entry.encode(), b"# of the office", another.encode(), b""]))
    keys = configured("", file)
    assert (keys.find(key.encode()).name, keys.find(other.encode()).name) == ("web", "office")


@pytest.mark.parametrize("scopes", [["choose"], ["reward"], ["choose", "reward"], ["admin"]])
def test_a_pass_may_do_what_its_key_may_of_choosing_and_rewarding_alone(scopes: list[str]):
    keys, text = signed(scopes, LASTS_S)
    found = keys.find(text)
    assert found is not None
    assert found.scopes == ({"choose", "reward"} if scopes == ["admin"] else set(scopes))
    assert found.visitor == "ann"


def test_a_pass_lasts_no_longer_than_the_entry_of_its_key_allows():
    keys, text = signed(["choose"], LASTS_S + LEEWAY_S + 10)
    with pytest.raises(Unauthorized) as refused:
        keys.find(text)
    assert not isinstance(refused.value, PassExpired)


def test_a_pass_of_another_service_is_refused():
    keys, _ = signed(["choose"], LASTS_S)
    _, text = signed(["choose"], LASTS_S)
    with pytest.raises(Unauthorized):
        keys.find(text)
