"""The fold: what turns entries of the reward log into states of learners and sums of arms. All of it is pure
but for ``replay``, ``log_pages`` and the reader of ``checkpoints``, which read the store.

``entry_rows`` makes rows of entries; ``learner_sums`` adds them to the sums of learners, ``arm_sums`` adds
the same entries to the sums of arms, and ``places`` to those of the places of lists.

    fold_batches workers fold a batch of the log into learners and arms
    fold         ``fold``, and ``learned``: whoever has entries alone gets learners
    checkpoints  whoever reads a learner: a checkpoint and the tail that is folded into it
    arm_sums     the fits of ``app.learners`` read the sums
    replay       the server's command that compares the log with the stored learners
"""
