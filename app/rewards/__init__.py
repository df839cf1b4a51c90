"""Rewards, from a decision to the entry in the reward log.

A decision is a signed token (``tokens``), or is found by its event (``events``). A deferred decision is
activated; a decision with a ``wait_s`` gets defaults (``decisions``). A reward becomes an entry with the
features of its arm at the choice (``reward_entries``, ``decided_features``), and is appended.

    rewards      ``Rewards.reward`` and ``Rewards.observe``: what the API accepts
    tokens       serving signs here, and every reader of the decision log reads tokens here
    decisions    serving logs what waits for rewards; workers count the defaults
    learned_log  the API shows the entries; ``erasure``: API and workers erase the data of a learner
"""
