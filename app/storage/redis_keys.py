"""Every key of the store: its name, its hash tag, its type and how long it lives.

    name, after ``shortlist3:``                  type    holds                              lives
    {registry}:partitions                        string  number of partitions               forever
    {registry}:catalogues                        hash    name -> record                     forever
    {registry}:bandits                           hash    name -> record                     forever
    {registry}:version                           string  number of changes of the two       forever
    {registry}:deleted                           hash    uid -> "bandit" or "catalogue"     until it is gone
    {registry}:workers                           zset    name -> ms of its last lease       while one lives
    {registry}:versions:<bandit uid>             hash    number of a version -> record      with the bandit
    {registry}:moves:<bandit uid>                hash    number of a move -> record         with the bandit
    {registry}:users:<catalogue name>            set     names of its bandits               while not empty
    {registry}:quotas                            hash    bandit uid -> changes of quotas    with the bandit
    {registry}:priors                            hash    bandit uid -> newest version       with the bandit
    {registry}:prior-changes                     string  number of changes of priors        forever
    {registry}:prior-versions:<bandit uid>       hash    number of a version -> record      see below
    {registry}:prior-times:<bandit uid>          zset    number, ms when it was made        with these
    {registry}:effects                           hash    bandit uid -> newest version       with the bandit
    {registry}:effect-changes                    string  number of changes of effects       forever
    {registry}:effect-versions:<bandit uid>      hash    number of a version -> record      see below
    {registry}:arm-writes                        hash    version: number of these writes    forever
    {registry}:changes                           zset    catalogue uid, its last write      with it
    {registry}:effects-seen                      hash    bandit uid -> folded (see below)   with the bandit
    {registry}:word:<name>                       string  a value written once               ttl_ms or forever
    {registry}:campaigns:<kind>                  set     "<name> <uid>" of all event logs   while not empty
    {registry}:left                              hash    catalogue uid -> ms (see below)    with the catalogue
    {q:<uid>}:quotas                             hash    quota -> record                    with the bandit
    {q:<uid>}:quota:<quota>                      hash    terms, counts (quota.lua)          with the quota
    {q:<uid>}:changes                            stream  changes of quotas (quota.lua)      until trimmed
    {q:<uid>}:closed                             hash    quota -> closed until, in ms       with the bandit
    {c:<uid>}:features                           hash    arm -> revision, came_ms, features with the catalogue
    {c:<uid>}:documents                          hash    arm -> document, not empty         with the catalogue
    {c:<uid>}:counters                           hash    version, arms_version, revision;   with it, then ttl
                                                         deleted; fitted: a reduction; of a copy
                                                         of arms elsewhere: followed,
                                                         followed_arm, collection, quality
    {c:<uid>}:follower                           string  owner of the lease                 ttl_ms
    {c:<uid>}:behaviour                          hash    arm -> what keys liked of it       ttl_ms, then
                                                                                            with the catalogue
    {c:<uid>}:changes                            zset    arm -> version that changed it     with the catalogue
    {c:<uid>}:retired:<revision>                 string  features replaced or deleted       keep_ms
    {c:<uid>}:came:<arm>                         string  when the id of a deleted arm came  keep_ms
    {p:<n>}:log                                  stream  b, l, f, p (see below)             until trimmed
    {p:<n>}:watermark                            string  entry id                           forever
    {p:<n>}:dead                                 stream  b, l, f, p, r: what was left out   until replayed
    {p:<n>}:changes                              zset    uid + learner -> number of entry   forever
    {p:<n>}:deleted                              zset    bandit uid, when it was deleted    DELETED_KEPT_MS
    {p:<n>}:folded                               hash    bandit uid -> entries (see below)  with the bandit
    {p:<n>}:spaces                               hash    bandit uid -> moves (see below)    with the bandit
    {p:<n>}:states:<bandit uid>                  hash    learner -> checkpoint              with the bandit
    {p:<n>}:effects:<bandit uid>                 hash    arm, revision -> sums (see below)  with the bandit
    {p:<n>}:tails:<bandit uid>                   zset    learner + entry id (see below)     with the bandit
    {p:<n>}:seen:<bandit uid>:<learner>:<dedupe key>  string  empty: of observations       ttl_ms
    {p:<n>}:seen-until:<ms>                      hash    dedupe keys of learners            see below
    {p:<n>}:seen-ends                            zset    the ms of seen-until keys          with these
    {p:<n>}:forgotten:<bandit uid>:<learner>     string  "<ms> <entry id>"                  see below
    {p:<n>}:forgotten-until                      zset    uid:learner, until when            with these
    {p:<n>}:refused                              hash    bounds (see below)                 forever
    {p:<n>}:had:<bandit uid>/<learner>           zset    decision:arm of a key, when        ttl_ms
    {p:<n>}:word:<name>                          string  a value written once               ttl_ms or forever
    {jobs}:heads                                 hash    bandit uid/job -> how it stands    until it is over
    {jobs}:results                               hash    bandit uid/job -> its result       until it is over
    {jobs}:until                                 zset    job, until when it is kept         until it is over
    {jobs}:alive                                 zset    job, until when its process lives  until it is over
    {k:<kind>:<name>}:record                     string  record                             with the log
    {k:<kind>:<name>}:events                     list    its events, in order               with the log
    {k:<kind>:<name>}:snapshot                   string  position (8) + state               with the log
    {p:<n>}:decisions                            hash    member -> logged decision          until due
    {p:<n>}:due                                  zset    member, when it is due             until due
    {p:<n>}:active:<member>                      string  empty                              ttl_ms
    {p:<n>}:idle                                 zset    member, until when it lives        until then
    {p:<n>}:erase                                hash    member -> entry id                 until it is done
    {p:<n>}:event:<member>/<event>               string  the choice made for an event       ttl_ms
    {p:<n>}:events:<member>                      zset    event, until when it is kept       ttl_ms
    {p:<n>}:rows:<bandit uid>/<learner>          hash    <ms>-<decision id> -> row          until trimmed
    {p:<n>}:row-times:<bandit uid>               zset    <field>/<learner> (see below)      until trimmed
    {p:<n>}:row-logs                             hash    bandit uid -> keep_ms (see below)  with the bandit

The part in braces is the hash tag. Redis Cluster keeps all keys with the same tag on one node, and there
every script has keys of one tag only. In seen and seen-first <learner> carries its length, so no two pairs of
a learner and a dedupe key share a name.

Entry ids are "<ms>-<n>", where n numbers the entries of a log from 1 without a gap. The backlog is the
difference of two such numbers, without a counter or a scan, and stays right after trimming.

Fields of an entry: b bandit uid, l learner, p payload (``app/records/log_entries.py``); c, unless the entry
is the first of its decision and arm, the signals before the entry and their values, as "A1B0.5"; o, of a
former dead letter, its id before. A dead letter has the id of its entry, and r: the reason.

Fields of seen-until:<ms> are "seen:<bandit uid>:<learner>:<dedupe key>", which hold nothing, and
"seen-first:<bandit uid>:<learner>:<decision key>", which hold the signals so far, in the form of c, behind
"d" if the default was counted before, and with "@<ms>" behind a value if the last one counts. They are of
decisions with an end at <ms> or up to SEEN_PERIOD_MS before. drop_expired.lua says when they are dropped,
with the records of forgotten learners, and what refused has then.

Checkpoints and tails: see types/learners.py, and tails.lua. A new learner has no checkpoint, and after a
checkpoint there is no tail. No entry of a tail is trimmed.

Sums of an arm lie in the partitions of its learners: readers add the sums of all partitions.
write_version.lua says which versions of the effects made of the sums are kept.

Versions of a learned prior are kept as write_version.lua says: the newest, and those which rows of the
decision log may name. folded has two fields of a bandit: its uid holds the number of folded entries, and
"<uid>:replaced" how many of these forgot a learner or set its state. effects-seen has both numbers as of the
last fit of the effects. Fields of effects are "<arm> <revision>", "<arm> -2" of merged sums
(merge_arm_sums.lua), and "" with the bytes of all.

spaces has three fields of a bandit moved to another catalogue: its uid holds the number of the last move with
a folded entry, "<uid>:log" the number of the last one in the log, and "<uid>:carried" the number of the last
one through which every checkpoint of the partition was carried.

left has, of each catalogue which a bandit has left, until when decisions from before can be rewarded: until
then the features stay, also of a deleted catalogue.

Keys named changes: see changes.lua, with CHANGES_KEPT things at most; the registry of a cluster has
none. Rows and their names in row-times: see rows.lua. row-logs has two fields of a bandit: its uid holds
how long rows are kept, in ms, and "<uid>:from" the ms before which rows were dropped, and are not made again.

<member> is "<bandit uid>/<learner>", with "/<decision id>" behind for a decision. Entries of a forgotten
learner are deleted from the log once they are folded, so the remaining entries are in order, but their
numbers have gaps.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from app.storage.types.decisions import ArmId, DecisionId, LearnerId

PREFIX = "shortlist3:"  # of version 3: a process of version 2 finds no store, and none of its keys is read
CHANGES_KEPT = 50_000
ALL_CHANGES = 1 << 53  # of arms that an engine has a copy of: it follows them, and pages are in their order
DELETED_KEPT_MS = 30 * 86_400_000  # for so long, a process that has not heard of a deletion writes no state
SEEN_PERIOD_MS = 600_000  # decisions that expire in one such period have their dedupe keys in one hash

REGISTRY = PREFIX + "{registry}:"
PARTITIONS = REGISTRY + "partitions"
PARTITIONS_OF_2 = "shortlist:{registry}:partitions"  # of a store of version 2
UPGRADE = REGISTRY + "upgrade"  # while such a store is converted
CATALOGUES = REGISTRY + "catalogues"
BANDITS = REGISTRY + "bandits"
REGISTRY_VERSION = REGISTRY + "version"
DELETED = REGISTRY + "deleted"
WORKERS = REGISTRY + "workers"
LEFT = REGISTRY + "left"
QUOTAS = REGISTRY + "quotas"
PRIORS = REGISTRY + "priors"
PRIOR_CHANGES = REGISTRY + "prior-changes"
EFFECTS = REGISTRY + "effects"
EFFECT_CHANGES = REGISTRY + "effect-changes"
EFFECTS_SEEN = REGISTRY + "effects-seen"
WRITTEN_CATALOGUES = REGISTRY + "arm-writes", REGISTRY + "changes"


JOBS = [f"{PREFIX}{{jobs}}:{part}" for part in ("heads", "results", "until", "alive")]


def _catalogue(uid: str) -> str:
    return f"{PREFIX}{{c:{uid}}}:"


def _partition(partition: int) -> str:
    return f"{PREFIX}{{p:{partition}}}:"


def _in_catalogue(name: str) -> Callable[[str], str]:
    return lambda uid: _catalogue(uid) + name


def _in_partition(name: str) -> Callable[[int], str]:
    return lambda partition: _partition(partition) + name


def of_partition(partition: int, *names: Callable[[int], str]) -> list[str]:
    """Several keys of one partition."""
    return [name(partition) for name in names]


features = _in_catalogue("features")
documents = _in_catalogue("documents")
counters = _in_catalogue("counters")
arm_changes = _in_catalogue("changes")
follower = _in_catalogue("follower")
behaviour = _in_catalogue("behaviour")

log = _in_partition("log")
watermark = _in_partition("watermark")
dead = _in_partition("dead")
learner_changes = _in_partition("changes")
deleted = _in_partition("deleted")
seen_ends = _in_partition("seen-ends")
refused = _in_partition("refused")
forgotten_until = _in_partition("forgotten-until")
decisions = _in_partition("decisions")
due = _in_partition("due")
idle = _in_partition("idle")
erase = _in_partition("erase")
row_logs = _in_partition("row-logs")
folded = _in_partition("folded")
spaces = _in_partition("spaces")


def users(catalogue: str) -> str:
    return f"{REGISTRY}users:{catalogue}"


def versions(bandit_uid: str) -> str:
    return f"{REGISTRY}versions:{bandit_uid}"


def moves(bandit_uid: str) -> str:
    return f"{REGISTRY}moves:{bandit_uid}"


def priors(bandit_uid: str) -> list[str]:
    """The versions of the learned prior of a bandit, and when they were made."""
    return [f"{REGISTRY}prior-versions:{bandit_uid}", f"{REGISTRY}prior-times:{bandit_uid}"]


def effect_versions(bandit_uid: str) -> str:
    return f"{REGISTRY}effect-versions:{bandit_uid}"


def quotas(bandit_uid: str) -> str:
    return f"{_quotas(bandit_uid)}quotas"


def quota(bandit_uid: str, quota_id: str) -> str:
    """Key of one quota; with an empty id the stem, which scripts complete."""
    return f"{_quotas(bandit_uid)}quota:{quota_id}"


def quota_changes(bandit_uid: str) -> list[str]:
    """Keys of the changes of quotas, and of the times until which quotas are closed."""
    return [f"{_quotas(bandit_uid)}changes", f"{_quotas(bandit_uid)}closed"]


def _quotas(bandit_uid: str) -> str:
    return f"{PREFIX}{{q:{bandit_uid}}}:"


def once(partition: int | None, name: str) -> str:
    return f"{REGISTRY if partition is None else _partition(partition)}word:{name}"


def catalogue(uid: str) -> list[str]:
    """Keys with the lifetime of the catalogue."""
    return [features(uid), documents(uid), counters(uid), arm_changes(uid)]


def retired(uid: str, revision: int | None = None) -> str:
    """Key of one revision; without ``revision`` the stem, which scripts complete: only they know the
    revisions.
    """
    return f"{_catalogue(uid)}retired:{'' if revision is None else revision}"


def came(uid: str) -> str:
    """The stem of the keys that say when ids of deleted arms came."""
    return f"{_catalogue(uid)}came:"


def states(partition: int, bandit_uid: str) -> str:
    return f"{_partition(partition)}states:{bandit_uid}"


def arm_sums(partition: int, bandit_uid: str) -> str:
    return f"{_partition(partition)}effects:{bandit_uid}"


OF_REVISION = " "  # no id has it


def sums_field(arm: ArmId) -> str:
    """Field of ``arm_sums`` for an arm with the features of a revision."""
    return f"{arm.arm}{OF_REVISION}{arm.revision}"


def tails(partition: int, bandit_uid: str = "") -> str:
    """Key of the tails of a bandit; without the uid the stem: scripts read the uids from the log."""
    return f"{_partition(partition)}tails:{bandit_uid}"


def seen(partition: int, learner: LearnerId, dedupe_key: str) -> str:
    return _partition(partition) + seen_field(learner, dedupe_key)


def seen_field(learner: LearnerId, dedupe_key: str) -> str:
    return f"seen:{_delimited(learner)}:{dedupe_key}"


def seen_first_field(learner: LearnerId, decision_key: str) -> str:
    return f"seen-first:{_delimited(learner)}:{decision_key}"


def seen_until(partition: int, ends_ms: int | None = None) -> str:
    """Key of the dedupe keys of decisions of one period, see ``seen_ends_ms``; without ``ends_ms`` the
    stem, which scripts complete.
    """
    return f"{_partition(partition)}seen-until:{'' if ends_ms is None else ends_ms}"


def seen_ends_ms(expires_ms: int) -> int:
    """The end of the period of decisions with this expiry."""
    return -(-expires_ms // SEEN_PERIOD_MS) * SEEN_PERIOD_MS


def forgotten(partition: int, learner: LearnerId | None = None) -> str:
    """Key of one forgotten learner, or without ``learner`` the stem, which scripts complete."""
    name = "" if learner is None else f"{learner.bandit_uid}:{learner.name}"
    return f"{_partition(partition)}forgotten:{name}"


def exposures(partition: int, key: LearnerId) -> str:
    """Key of the exposures of a learner, or of a visitor."""
    return f"{_partition(partition)}had:{key.member}"


def bandit_pattern(uid: str) -> str:
    """Pattern of every key of a partition named after the bandit or one of its learners; others may match."""
    return f"{PREFIX}{{p:*:{uid}*"


def bandit_regex(uid: str) -> str:
    """Regular expression of exactly the keys of a bandit and its learners (``bandit_pattern`` has others
    too).
    """
    return rf"{PREFIX}\{{p:\d+\}}:[a-z-]+:{re.escape(uid)}([:/].*)?"


def seen_pattern(uid: str) -> str:
    """Pattern of a bandit's fields in seen-until. No other bandit's field matches, for uids are random."""
    return f"seen*:{uid}:*"


def event_log(kind: str, name: str) -> list[str]:
    """Everything of an event log: record, events, snapshot."""
    return [f"{PREFIX}{{k:{kind}:{name}}}:{part}" for part in ("record", "events", "snapshot")]


def event_logs(kind: str) -> str:
    return f"{REGISTRY}campaigns:{kind}"


def active(partition: int, decision: DecisionId) -> str:
    return f"{_partition(partition)}active:{decision.member}"


def event(partition: int, learner: LearnerId, name: str) -> str:
    return f"{_partition(partition)}event:{learner.member}/{name}"


def events(partition: int, learner: LearnerId) -> str:
    return f"{_partition(partition)}events:{learner.member}"


def rows(partition: int, learner: LearnerId) -> str:
    """Key of the rows of one learner; with an empty name the stem, which scripts complete."""
    return f"{_partition(partition)}rows:{learner.member}"


def row_field(issued_ms: int, decision_id: str) -> str:
    return f"{issued_ms:013}-{decision_id}"


def row_times(partition: int, bandit_uid: str) -> str:
    return f"{_partition(partition)}row-times:{bandit_uid}"


def _delimited(learner: LearnerId) -> str:
    """The name with its length before, so no two pairs of a name and its successor share a key."""
    return f"{learner.bandit_uid}:{len(learner.name)}.{learner.name}"
