"""Learners as they are served, with what all keys of a bandit teach each of them.

A state of the fold becomes a posterior by the settings of its bandit. All keys together teach a learned prior
and the effects of arms: fits make versions of both, and each process serves the newest (``newest_versions``).

    learners        whoever needs what a learner knows: choices, rewards, explanations
    learned_priors  choices and the API: the prior that a bandit is served with
    served_effects  the same of arm effects; ``effect_pairs``: what a decision or an observation says of them
    prior_fits, effect_fits   workers make the next versions
    learner_copies  the API: a learner is exported from one service and imported by another
"""
