"""Maximum inner-product search with a guarantee, from a part of the coordinates.

The vectors are laid out once; a search reads what it needs of them:

    >>> import numpy as np
    >>> from shortlist.mips import blocked, bounded_me, rewards
    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.uniform(size=(200, 20_000)).astype(np.float32)
    >>> vectors[7] += 0.2
    >>> query = np.ones(20_000, dtype=np.float32)
    >>> arms = blocked.build(vectors, rng=rng)
    >>> asked = rewards.blocked_rewards(arms, query)
    >>> found = bounded_me.bounded_me(asked, k=1, epsilon=0.1, delta=0.05)
    >>> int(found.rows[0]), found.reads < 0.5 * vectors.size, found.guarantee.kind
    (7, True, 'pac')
"""
