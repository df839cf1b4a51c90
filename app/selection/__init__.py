"""How one choice is carried out, whichever policy makes it: the request, the arms it may take, the search.

A ``ChooseRequest`` (``request``) of the API becomes a ``SelectionRequest`` with a snapshot of the arms that
filters, quotas and caps leave. A policy takes arms from its ``Candidates`` and returns a ``Ranking``.

    selection      policies and serving: ``SelectionRequest``, ``Candidates``, ``Ranking``, ``Selection``
    limits, rules  constraints: how many arms may share a value, pinned arms, arms that differ
    arm_effects    policies: the search with the effects of arms, which ``effect_tables`` keeps by row
    covers         policies that explore: arms such that every arm is near one of them
    computing      whoever computes a choice: in the loop or in a thread, and with which generator
"""
