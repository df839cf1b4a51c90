"""Algorithms of five papers on bandits, inner-product search and sampling: arrays in, arrays and a cost out.

One problem is one folder, one algorithm is one file, named as in its paper.

    linear      linear bandits: Sub-TS, Sub-Elim, their exact counterparts, softmax, inverse-gap weighting
    mips        maximum inner-product search with a guarantee: BoundedME, racing, the adaptive ladder
    index       the same by structures made once: graph, inverted file, norm-pruned scan (extra ``index``)
    sampling    draws from a softmax of many terms: racing samplers, lil'UCB, Gumbel-max
    slates      the best slate from total rewards: SAQM, SA-FOA, ICB
    kcenter     k representative points from sampled or noisy distances: DS- and NS- algorithms
    evaluation  what another policy would have earned on a log: IPS, SNIPS, DR, confidence sequences
"""

__version__ = "3.0.0"
