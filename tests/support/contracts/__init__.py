"""Contracts as classes: a package that adds a policy, an index, a constraint or a store runs them on itself.

Subclass one in a test file and give it the one fixture that its docstring names; pytest finds the rest.
"""
