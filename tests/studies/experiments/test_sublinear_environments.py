"""The environments and policies of tables 1 to 5 against what they say they are."""

from __future__ import annotations

import pytest

from shortlist.linear import elimination
from studies.experiments import synthetic
from studies.experiments.elimination_policies import LinearElim, SubElim
from studies.experiments.exact_elimination import ExactElim
from studies.experiments.play import CURVE, play
from studies.experiments.ts_policies import LinearTs, SubTs

pytestmark = pytest.mark.rest


def policies(game, seed):
    rules = elimination.rules(radius=3.0, eta=0.02)
    return {
        "linear_ts": LinearTs(game, exploration=1.0),
        "sub_ts": SubTs(game, exploration=1.0, shortlist=30, seed=seed),
        "linear_elim": LinearElim(game, rules),
        "sub_elim": SubElim(game, rules, shortlist=30),
        "exact_elim": ExactElim(game, radius=3.0),
    }


@pytest.mark.parametrize("name", ["linear_ts", "sub_ts", "linear_elim", "sub_elim", "exact_elim"])
def test_a_run_learns_and_says_what_it_took(name):
    game = synthetic.make(300, 1_000, change=2, seed=8)
    run = play(game, policies(game, 8)[name], seed=8)
    assert len(run.curve) == CURVE
    assert run.curve[-1] == round(run.regret, 1)
    assert all(a <= b for a, b in zip(run.curve, run.curve[1:], strict=False))
    at_random = float((game.best - game.means.mean()).sum())
    assert 0 < run.regret < 0.5 * at_random
    assert run.online > 0
    assert min(run.preparing, run.upkeep) >= 0
    assert ("printed" in run.scans) == name.startswith("linear")
