"""Limits on exposures: quotas of arms, shared by all choices, and caps for one key or visitor.

Both are kept in the same way. A process knows the arms which may not be shown, as last heard, and a choice
ranks the others. A script of the store charges the list about to be shown, and may refuse; then the process
has heard more, and the choice is made again. So no limit is ever exceeded, over any number of processes, and
while the store does not answer no arm with a limit is shown.

    rules, quotas           a quota, and all of them: how they are made and polled
    bandit_quotas           one process's knowledge of the quotas of one bandit, and its charges
    closed_arms             the arms of closed quotas at one moment
    closed_history          the quotas closed at the time of a logged choice
    caps, exposures         frequency caps (the setting ``repeats``)
"""
