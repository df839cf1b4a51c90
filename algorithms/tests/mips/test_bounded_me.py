"""BoundedME and racing: exact where they say so, never more reads than a scan, what a schedule promises."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from finite_arms import LAYOUTS, best, truth
from shortlist.mips.bounded_me import bounded_me
from shortlist.mips.racing import racing

SEARCHES = {"bounded_me": bounded_me, "racing": racing}


@settings(max_examples=80)
@given(
    n=st.integers(1, 120),
    dim=st.sampled_from([1, 3, 16, 100, 700]),
    k=st.integers(1, 12),
    epsilon=st.sampled_from([1e-6, 0.05, 1.0, 50.0]),
    objective=st.sampled_from(["inner_product", "nearest"]),
    layout=st.sampled_from(sorted(LAYOUTS)),
    search=st.sampled_from(sorted(SEARCHES)),
    ties=st.booleans(),
)
def test_an_answer_is_well_formed_and_exact_if_it_says_so(
    *, n, dim, k, epsilon, objective, layout, search, ties
):
    rng = np.random.default_rng((n, dim))
    vectors = rng.standard_normal((n, dim)).astype(np.float32)
    if ties:
        vectors = vectors[rng.integers(n, size=n)].round(1)
    query = rng.standard_normal(dim)
    found = SEARCHES[search](
        LAYOUTS[layout](vectors, query, objective, seed=n), k=k, epsilon=epsilon, delta=0.1
    )
    assert len(set(found.rows.tolist())) == len(found.rows) == min(k, n)
    scores = truth(vectors, query, objective)
    sign = 1.0 if objective == "inner_product" else -1.0
    np.testing.assert_allclose(found.values, sign * scores[found.rows], rtol=1e-9, atol=1e-9)
    assert (np.diff(sign * found.values) <= 0).all()
    assert 0 < found.reads <= found.exhaustive_reads == n * dim
    assert found.guarantee.kind in {"exact", "pac"}
    if found.guarantee.kind == "exact":
        assert found.rows.tolist() == best(vectors, query, objective, k)
        assert found.reads == n * dim
    if dim <= 100:
        assert (found.guarantee.kind, found.guarantee.reason is None) == ("exact", False)
