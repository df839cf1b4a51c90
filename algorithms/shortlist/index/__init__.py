"""Search for the arms of largest inner product by structures that are made once and serve many queries.

They need ``shortlist[index]``.

    table           the arms as append-only arrays, and snapshots of them
    exact           scans
    norm_pruned     exact, in order of norm
    inverted_file   approximate, quickly made
    hnsw            approximate, a graph
    planner         which of them is the fastest that finds enough, by measuring
"""
