"""The thought experiment of section 3.2 comes out as the paper says."""

import pytest

from examples import adaptive_queries

pytestmark = pytest.mark.rest


@pytest.mark.parametrize("seed", range(5))
def test_adaptive_queries_find_what_fixed_ones_do_not(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    figures = adaptive_queries.main(seed)
    # Of 11 random unit vectors in 10 dimensions none is within 0.999 but with probability 1e-11.
    assert figures["guessed"] < 0.999
    assert figures["solved"] == pytest.approx(1.0, abs=1e-12)
    (many,) = {int(name.partition("_")[2]) for name in figures if "_" in name} - {1}
    # One solver: as often as it is said to fail, or nearly always. Enough of them: never (delta = 1e-6).
    assert figures["fixed_1"] < 100
    assert figures["adaptive_1"] > 200
    assert figures[f"fixed_{many}"] == figures[f"adaptive_{many}"] == 0
    assert "when adaptive" in capsys.readouterr().out
