"""Search for the arms of largest inner product by structures that are made once and serve many queries.

They are those of the service, and need the extra `index` of the library. All search the snapshot of a table:

    >>> import numpy as np
    >>> from shortlist.index.exact import scan
    >>> from shortlist.index.norm_pruned import NormBlocks
    >>> from shortlist.index.table import ArmTable
    >>> rng = np.random.default_rng(0)
    >>> arms, query = rng.lognormal(size=(5_000, 1)) * rng.standard_normal((5_000, 8)), np.ones(8)
    >>> table = ArmTable(8)
    >>> _ = table.append([str(row) for row in range(5_000)], arms, np.arange(5_000))
    >>> found = NormBlocks(table.snapshot()).search(table.snapshot(), query, 3)
    >>> found.rows.tolist() == scan(table.snapshot(), query, 3).rows.tolist()
    True
"""
