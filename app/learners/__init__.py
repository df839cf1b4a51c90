"""Learners as they are served, with what all keys of a bandit teach each of them.

A state of the fold becomes a posterior by the settings of its bandit. All keys together teach a learned prior
and the effects of arms: fits make versions of both, and each process serves the newest (``newest_versions``).

    learners        posteriors for choices, rewards, explanations
    learned_priors  choices and the API: the served prior of a bandit
    served_effects  the same of arm effects; ``effect_pairs``: the pairs of decisions and observations
    prior_fits, effect_fits   workers make the next versions
    learner_copies  the API: exports a learner from one service, imports it into another
"""
