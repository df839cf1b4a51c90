"""Worlds by their noise, a part of `shortlist bench defaults`: one learner without a setting, and an oracle.

Arms are N(0, I / d), theta is normal. Regret is that of expected rewards, as a share of what random arms
lose.

Columns
    signal      the standard deviation of the arms' expected rewards, over that of the noise
    D, K        numbers that are learned, the constant among them; arms
    ours        without a setting
    before      with the settings that ``auto: 1`` makes; gain: before - ours
    oracle      knows the prior of theta and the noise, and explores with the whole posterior; it learns no
                constant
    ratio       ours / oracle: the largest is first
    ..._error   standard errors over draws
"""

from __future__ import annotations

SEED = 7_203
SIGNALS = (30.0, 10.0, 3.0, 1.0, 0.3)
ROUNDS = {16: 300, 64: 500}  # by d
ARMS, QUICK_ARMS = (1_000, 20_000), (1_000,)
