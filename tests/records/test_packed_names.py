"""Names side by side are found as a dictionary of them finds them."""

import pytest

from app.records.packed_names import PackedNames


def test_names_are_found_where_they_are():
    names = ["b0", "a", "ä", "arm-1", "arm", "日本"]
    packed = PackedNames(names)
    assert list(packed) == [packed[place] for place in range(len(packed))] == names
    asked = [*reversed(names), "b", "ar", "longer than all", ""]
    assert packed.places_of(asked).tolist() == [5, 4, 3, 2, 1, 0, -1, -1, -1, -1]
    assert packed == PackedNames(names)
    assert packed != PackedNames(names[1:])
    assert PackedNames(["ab", "c"]) != PackedNames(["a", "bc"])


@pytest.mark.parametrize("count", [0, 1, 1_001])
def test_many_names_are_found_as_few_are(count: int):
    packed = PackedNames([f"arm-{number}" for number in range(count)])
    asked = [f"arm-{number}" for number in range(count + 3)]
    assert packed.places_of(asked).tolist() == [*range(count), -1, -1, -1]


def test_a_name_takes_its_bytes_and_eight():
    assert PackedNames([f"arm-{number:05}" for number in range(1_000)]).nbytes == 1_000 * (9 + 8)
