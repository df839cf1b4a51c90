"""Limits on what is shown: quotas of arms, shared by all choices, and caps of what one key or visitor sees.

Both are kept in the same way. A process knows which arms may not be shown, as far as it has heard, and a
choice ranks the others. A script of the store charges what is about to be shown, and may refuse it; then the
process has heard more, and the choice is made again. So no limit is ever exceeded, over any number of
processes, and while the store does not answer nothing that has a limit is shown.

    rules, quotas           a quota, and all of them: how they are made and polled
    bandit_quotas           what a process knows of the quotas of one bandit, and charges
    closed_arms             the arms of closed quotas at one moment
    closed_history          which quotas were closed when a logged choice was made
    caps, exposures         frequency caps (the setting ``repeats``)
"""
