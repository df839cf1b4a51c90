"""Algorithms of five papers on bandits, inner-product search and sampling: arrays in, arrays and a cost out.

One problem is one folder, one algorithm is one file, named as in its paper.

    linear      linear bandits: Sub-TS, Sub-Elim, their exact counterparts, softmax, inverse-gap weighting
    mips        maximum inner-product search with a guarantee: BoundedME, racing, the adaptive ladder
    sampling    draws from a softmax of many terms: racing samplers, lil'UCB, Gumbel-max
    slates      the best slate from total rewards: SAQM, SA-FOA, ICB
    kcenter     k representative points from sampled or noisy distances: DS- and NS- algorithms
    evaluation  what another policy would have earned on a log: IPS, SNIPS, DR, confidence sequences

A graph index is not part of it: Thompson sampling takes any object with a method `search`. README.md has an
example with hnswlib.
"""

__version__ = "1.0.0"
