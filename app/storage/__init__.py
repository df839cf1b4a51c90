"""All durable data of the service, in Redis or Valkey: a class for each concern, with its contract.

Notation
    uid          random identifier of one incarnation of a catalogue or bandit: a name deleted and made again
                 gets a new one, so nothing old can be mistaken for the new incarnation
    revision     number of one version of one arm's features, ascending within a catalogue
    partition    0 <= partition < ``partitions``; a learner belongs to exactly one (``LearnerId.partition``)
    entry id     position in the reward log of a partition: a Redis stream id, "<ms>-<n>"
    watermark    entry id up to which the log has been folded into the states of a partition
    checkpoint   whole state of a learner at some entry
    tail         entries folded into a learner since its checkpoint
    dedupe key   names a write: of two writes with the same key only the first takes effect

Consistency of every method, unless its docstring says otherwise
    durable       a write is on the primary when the call returns, and on its disk under ``appendfsync
                  always``; a failover to a replica may lose it, since replicas lag behind
    atomic        a write takes effect as a whole or not at all; a write in steps says so
    linearizable  calls on one catalogue, event log or partition, or on the registry, take effect one after
                  the other, each between its start and its end; reads go to the primary
    monotonic     versions, revisions, entry ids and watermarks only grow, unless the store has lost writes
    idempotent    a write repeated with the same arguments changes nothing more: a caller whose
                  reply was lost may repeat the call

Between two catalogues, event logs or partitions no order is promised. A call without an answer from the store
raises ``Unavailable``; whether its write was made is then not known.
"""
