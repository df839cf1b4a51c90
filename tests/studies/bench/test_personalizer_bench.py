"""`shortlist bench personalizer`: a world in which random choices earn a third is learned by both."""

import pytest

from studies.bench import personalizer

pytestmark = pytest.mark.rest


def test_we_learn_a_table_over_http():
    pytest.importorskip("sklearn", reason="scikit-learn is of the extra `images`")
    pytest.importorskip("vowpalwabbit", reason="Vowpal Wabbit is of the extra `peers`")
    rows = personalizer.run(quick=True, worlds=["wine"], count=150)["rows"]
    assert max(row["ratio"] for row in rows if row["player"].startswith("vw")) == 1.0
    (ours,) = [row for row in rows if row["player"] == "shortlist"]
    assert ours["mean"] > 0.6
