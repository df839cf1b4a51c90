"""One choice, for every policy: the request, the allowed arms, the search.

A ``ChooseRequest`` (``request``) of the API becomes a ``SelectionRequest`` with a snapshot of the arms left
by filters, quotas and caps. A policy takes arms from its ``Candidates`` and returns a ``Ranking``.

    selection      policies and serving: ``SelectionRequest``, ``Candidates``, ``Ranking``, ``Selection``
    limits, rules  constraints: arms of one value, pinned arms, different arms
    arm_effects    policies: the search with the effects of arms, kept by row in ``effect_tables``
    covers         exploring policies: arms such that every arm is near one of them
    computing      the computing of a choice: in the loop or in a thread, and by which generator
"""
