"""The algorithms that the battery holds to the common rules: what they solve, their source, how to run them.

``test_battery`` compares the names with the tables from which the service chooses, so none can be missing.

Status
    exact       the best answer, or a draw from p itself, always
    proven      a stated guarantee, with a proof in the paper or in docs/papers
    heuristic   no guarantee that holds as it is run
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shortlist.embedding.behaviour import embed
from shortlist.kcenter import ns_tands, ns_ts, ns_ucb
from shortlist.kcenter.ds_ts import ds_ts
from shortlist.kcenter.ds_ucb import ds_ucb
from shortlist.kcenter.naive_greedy import naive_greedy
from shortlist.kcenter.random_sampling import random_sampling
from shortlist.linear import (
    epsilon_greedy,
    igw,
    linear_elimination,
    linear_ts,
    linucb,
    softmax,
    sub_elim,
    sub_ts,
)
from shortlist.mips.adaptive import adaptive
from shortlist.mips.bounded_me import bounded_me
from shortlist.mips.exact import exact
from shortlist.mips.racing import racing
from shortlist.sampling.gumbel_max import gumbel_max
from shortlist.sampling.lil_ucb import lil_ucb
from shortlist.sampling.racing_ebs import racing_ebs
from shortlist.sampling.racing_normal import racing_normal
from shortlist.slates import exhaustive, icb, sa_foa, saqm
from shortlist.slates.densest_k_subgraph import densest_k_subgraph

Problem = Literal["policy", "mips", "sampling", "slates", "kcenter", "embedding"]
Status = Literal["exact", "proven", "heuristic"]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row. ``paper`` begins as its page in docs/papers/ does, ``source`` the place in the paper."""

    name: str
    problem: Problem
    paper: str
    source: str
    status: Status
    run: Callable[..., object]


SUBLINEAR = "Yang et al. 2022"
BOUNDED_PULLS = "Liu et al. 2019"
FULL_BANDIT = "Kuroki et al. 2020"
NOISY_DISTANCES = "Jali et al."
DISCRETE_SAMPLING = "Chen and Ghahramani 2016"
TEXTBOOK = "Sutton and Barto 2018"
NEWS = "Li, Chu, Langford and Schapire 2010"
REGRESSION_ORACLES = "Foster and Rakhlin 2020"
RANDOMISED_FACTORS = "Halko, Martinsson and Tropp 2011"

ALGORITHMS = (
    Algorithm("linear_ts", "policy", SUBLINEAR, "section 6.1", "proven", linear_ts.choose),
    Algorithm("sub_ts", "policy", SUBLINEAR, "Algorithm 4", "proven", sub_ts.choose),
    Algorithm("sub_elim", "policy", SUBLINEAR, "Algorithms 2 and 3", "proven", sub_elim.play),
    Algorithm("linear_elim", "policy", SUBLINEAR, "section 5", "proven", linear_elimination.choose),
    Algorithm("softmax", "policy", DISCRETE_SAMPLING, "Equation 2", "exact", softmax.choose),
    Algorithm("igw", "policy", REGRESSION_ORACLES, "Algorithm 1", "proven", igw.choose),
    Algorithm("epsilon_greedy", "policy", TEXTBOOK, "section 2.2", "heuristic", epsilon_greedy.choose),
    Algorithm("linucb", "policy", NEWS, "Algorithm 1", "heuristic", linucb.choose),
    Algorithm("adaptive", "mips", SUBLINEAR, "Algorithms 1 and 4", "proven", adaptive),
    Algorithm("exact", "mips", SUBLINEAR, "section 7, baselines", "exact", exact),
    Algorithm("exact", "sampling", DISCRETE_SAMPLING, "Equation 2", "exact", gumbel_max),
    Algorithm("lil_ucb", "sampling", DISCRETE_SAMPLING, "section 3.2", "proven", lil_ucb),
    Algorithm("racing_ebs", "sampling", DISCRETE_SAMPLING, "section 3.3.1", "proven", racing_ebs),
    Algorithm("racing_normal", "sampling", DISCRETE_SAMPLING, "section 3.3.2", "heuristic", racing_normal),
    Algorithm("bounded_me", "mips", BOUNDED_PULLS, "Algorithm 1", "proven", bounded_me),
    Algorithm("racing", "mips", DISCRETE_SAMPLING, "Algorithm 1, with another bound", "proven", racing),
    Algorithm("exhaustive", "slates", FULL_BANDIT, "Algorithm 5", "proven", exhaustive.start),
    Algorithm("icb", "slates", FULL_BANDIT, "Algorithm 4", "proven", icb.start),
    Algorithm("saqm", "slates", FULL_BANDIT, "Algorithm 2", "proven", saqm.start),
    Algorithm("sa_foa", "slates", FULL_BANDIT, "Algorithm 3", "proven", sa_foa.start),
    Algorithm(
        "densest_k_subgraph", "slates", FULL_BANDIT, "Algorithm 1, Theorem 1", "proven", densest_k_subgraph
    ),
    Algorithm("naive", "kcenter", NOISY_DISTANCES, "section VI, baseline", "exact", naive_greedy),
    Algorithm("random", "kcenter", NOISY_DISTANCES, "section VIII, baseline", "proven", random_sampling),
    Algorithm("ds_ucb", "kcenter", NOISY_DISTANCES, "Algorithm 1", "proven", ds_ucb),
    Algorithm("ds_ts", "kcenter", NOISY_DISTANCES, "Algorithm 2", "proven", ds_ts),
    Algorithm("ns_ts", "kcenter", NOISY_DISTANCES, "Algorithm 3", "proven", ns_ts.start),
    Algorithm("ns_ucb", "kcenter", NOISY_DISTANCES, "section VII-A, z = 0", "proven", ns_ucb.start),
    Algorithm("ns_tands", "kcenter", NOISY_DISTANCES, "Algorithm 4", "proven", ns_tands.start),
    Algorithm("behaviour", "embedding", RANDOMISED_FACTORS, "Algorithms 4.4 and 5.1", "proven", embed),
)

BY_NAME = {(row.problem, row.name): row for row in ALGORITHMS}
