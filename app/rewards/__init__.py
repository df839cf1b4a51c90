"""Rewards, from the decision that is rewarded to the entry that is appended to the reward log.

A decision is a signed token (``tokens``), or is found by its event (``events``). One that is deferred is
activated, and one that is waited for gets a default (``decisions``). A reward becomes an entry with the
features that its arm had when it was chosen (``reward_entries``, ``decided_features``), and is appended.

    rewards      ``Rewards.reward`` and ``Rewards.observe``: what the API accepts
    tokens       serving signs here, and every reader of the decision log reads tokens here
    decisions    serving logs what waits for rewards; workers count the defaults
    learned_log  the API shows the entries; ``erasure``: API and workers erase what is kept of a learner
"""
