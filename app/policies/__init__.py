"""The policies rank arms by the posterior of a learner.

base         the class that every policy extends; ``stateful``: that of policies with a state
targets      the contract of policies that a log can evaluate; ``log_propensities``: which of them
registry     ``POLICIES``: serving, API and evaluations find a policy here
uniform, fixed, missing   serve a holdout, a list of the caller, a policy that is not installed
"""
