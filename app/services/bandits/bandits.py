"""Bandits: their configuration, and which learner a request belongs to."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from app.errors import Conflict, Invalid, NotFound, Unavailable
from app.filters.filter import Filter, parse
from app.indexes.snapshot import Snapshot
from app.services.bandits import context as contexts
from app.services.bandits import signals
from app.services.bandits.context import Context
from app.services.bandits.encoding import Numbers32
from app.services.bandits.settings import AUTO, BEFORE_AUTO, BanditRecord
from app.services.bandits.shifted import observed, observed_theta
from app.services.bandits.versions import (
    BanditVersion,
    BanditVersions,
    Changed,
    bytes_to_version,
    check_known,
    etag_of,
    first_version,
    uid_of,
    version_to_bytes,
)
from app.services.bounded.cache import BoundedCache
from app.services.bounded.long_work import REQUESTS
from app.services.catalogues.catalogues import Catalogue, Catalogues
from app.services.catalogues.learner_snapshot import LearnerSnapshot, ShiftedSnapshot
from app.services.formats.pages import page_by_name
from app.services.formats.records import differing, state_bytes, vector_to_bytes
from app.storage.protocol import LearnerId, Store
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums, empty
from shortlist.linear.scales import Scales
from shortlist.linear.signals import Weighing
from shortlist.linear.signals import weighed as weighed_sum
from shortlist.types import TopK, Vector

log = logging.getLogger("shortlist")
GLOBAL_LEARNER = "_global"
MAX_LEARNER_BYTES = 16 << 20
MAX_KEY_LEARNER_BYTES = 4 << 20
EARLIER_BYTES = 4 << 20  # of earlier versions that are kept in memory
MOST_MEASURED = 1 << 20  # numbers of features
OBJECT_BYTES = 2_000  # that a bandit takes in memory besides its record


class PolicyTerms(Protocol):
    """What a bandit has to know of its policy. The table of policies is ``choosing.policies``.

    ``most_signals``: how many signals it takes; None: any, and any weights of a request.
    """

    @property
    def most_signals(self) -> int | None: ...

    def completed(self, record: BanditRecord) -> BanditRecord:
        """The record with the policy's defaults. Raises Invalid, naming every field that it refuses."""
        ...

    def check_arms(self, record: BanditRecord, catalogue: Catalogue) -> None:
        """Raise Invalid when the policy cannot serve the arms: their dimensions, or where they are."""

    def exploration(self, record: BanditRecord, dim: int) -> float:
        """The number that ``exploration`` stands for; ``dim`` is the dimension of what learners learn."""
        ...

    def eta(self, record: BanditRecord) -> float:
        """The number that ``eta`` stands for."""
        ...

    def scales(self, record: BanditRecord, dim: int) -> Scales:
        """How posteriors of its learners are made; ``dim`` is the dimension of what they learn."""
        ...


@dataclass(frozen=True, slots=True)
class Bandit:
    """A bandit that is being served. ``stored``: what is in the store of it, ``version`` is what it says.

    ``weighing``: of its signals; None without any.
    """

    name: str
    uid: str
    stored: bytes
    record: BanditRecord
    catalogue: Catalogue
    exploration: float
    eta: float
    scales: Scales
    arm_filter: Filter | None
    version: BanditVersion
    context: Context | None
    weighing: Weighing | None = None
    fixed_weights: bool = False

    @property
    def etag(self) -> str:
        return etag_of(self.uid, self.version.number)

    @property
    def prior_terms(self) -> tuple[Scales, float]:
        """What a posterior depends on besides what was learned."""
        return self.scales, self.record.prior_strength

    @property
    def learner_dim(self) -> int:
        """Dimension of what learners learn."""
        return _learner_dim(self.record, self.catalogue, self.context)

    @property
    def weights(self) -> dict[str, float] | None:
        """By which its signals are weighed; None without any."""
        if self.weighing is None or self.record.signals is None:
            return None
        return dict(zip(self.record.signals, self.weighing.weights, strict=True))

    def weighed(self, weights: Mapping[str, float] | None) -> Bandit:
        """This bandit, with these weights over its own. Raises Invalid."""
        if weights is None:
            return self
        if self.fixed_weights:
            raise Invalid(f"weights do not go with the policy {self.record.policy}", path=("weights",))
        return dataclasses.replace(self, weighing=signals.weighed_anew(self.record, self.weighing, weights))

    def posterior(self, sums: RidgeSums) -> Posterior:
        """What these sums say of the reward, or of the weighted sum of the signals. Cost: O(D^3)."""
        if self.weighing is None:
            return self.scales.posterior(sums)
        return weighed_sum(sums, self.scales, self.weighing)

    @property
    def begins_with(self) -> tuple[float, float]:
        """Ridge and noise of a learner without rewards and without a prior of others."""
        if self.weighing is None:
            return self.scales.begins_with
        prior = self.posterior(empty(1))
        return self.scales.begins_with[0], prior.sigma

    def filter_with(self, arm_filter: Filter | None) -> Filter | None:
        """What an arm must be like to be chosen: the demands of the bandit, and ``arm_filter``."""
        if self.arm_filter is None or arm_filter is None:
            return self.arm_filter or arm_filter
        return self.arm_filter.both(arm_filter)

    def snapshot(self) -> LearnerSnapshot:
        """The catalogue as it is now, as the learners see its arms."""
        snapshot = self.catalogue.index.snapshot()
        return self.seen(snapshot) if self.record.shift_rewards else snapshot

    def seen(self, snapshot: Snapshot) -> LearnerSnapshot:
        """A snapshot of the catalogue, as the learners see its arms."""
        return ShiftedSnapshot(snapshot) if self.record.shift_rewards else snapshot

    def encoded(self, context: object) -> Numbers32 | None:
        """The numbers of a context as it was sent; None of a bandit without. Raises Invalid.

        ``context`` is needed exactly by a bandit that has one.
        """
        if self.context is None:
            if context is not None:
                raise Invalid("context is not used by this bandit", path=("context",))
            return None
        if context is None:
            raise Invalid("context is required by this bandit", path=("context",))
        return self.context.encoding.encode(context)

    def given(self, posterior: Posterior, context: Numbers32 | None) -> Posterior:
        """The posterior of what the arms are searched with, from that of a learner."""
        if self.context is None or context is None:
            return posterior
        return self.context.given(posterior, context)

    def observed(self, hits: TopK) -> TopK:
        """Scores in the scale of the rewards that users give."""
        return observed(hits) if self.record.shift_rewards else hits

    def observed_theta(self, theta: Vector) -> tuple[Vector, float]:
        """(theta, offset) of the prediction x.theta + offset of rewards as users give them."""
        return observed_theta(theta) if self.record.shift_rewards else (theta, 0.0)

    def observed_noise(self, sigma: float) -> float:
        """The noise of rewards as users give them, from that of a posterior."""
        return 2.0 * sigma if self.record.shift_rewards else sigma

    def joint_features(self, features: Vector, context: Numbers32 | None) -> Vector:
        """The features that a learner learns from, of an arm in a context; none: one of zeros.

        With ``shift_rewards`` the fold transforms them further. Shapes: (d,) -> (D,).
        """
        return features if self.context is None else self.context.joint_features(features, context)

    def learned_features(self, features: Vector, context: Numbers32 | None, place: int) -> Vector:
        """What a reward of an arm is regressed on that stood at a place, from 0: p x, where it is looked at
        with probability p.

        Shapes: (d,) -> (D,). Source: the position-based model; Lagree, Vernade and Cappe, "Multiple-Play
        Bandits in the Position-Based Model" (2016), section 2: the mean reward is p x.theta.
        """
        joint = self.joint_features(features, context)
        return joint if self.record.position is None else self.record.position.at(place) * joint

    def learner_for(self, key: str | None) -> LearnerId:
        """The learner of a request. Raises Invalid when the key is missing, or not used."""
        if self.record.scope == "global":
            if key is not None:
                raise Invalid("key is not used by a bandit of scope global", path=("key",))
            return LearnerId(self.uid, GLOBAL_LEARNER)
        if key is None:
            raise Invalid("key is required by a bandit of scope per_key", path=("key",))
        return LearnerId(self.uid, key)

    def learner_named(self, name: str) -> LearnerId:
        """The learner of that name. Raises NotFound: the only one is ``GLOBAL_LEARNER``, a key is never."""
        if (name == GLOBAL_LEARNER) != (self.record.scope == "global"):
            expected = f"only {GLOBAL_LEARNER}" if self.record.scope == "global" else "one per key"
            raise NotFound(f"no such learner: a bandit of scope {self.record.scope} has {expected}")
        return LearnerId(self.uid, name)


def bandit_of(name: str, stored: bytes, catalogue: Catalogue, policies: Mapping[str, PolicyTerms]) -> Bandit:
    """The bandit of a stored version. Raises Unavailable for one that needs a newer service."""
    uid, version = bytes_to_version(stored)
    record = version.record
    if record.policy not in policies:
        raise Unavailable("the bandit has a policy of a newer version of the service")
    context, policy = Context.of(record, catalogue.dim), policies[record.policy]
    dim = _learner_dim(record, catalogue, context)
    return Bandit(
        name=name,
        uid=uid,
        stored=stored,
        record=record,
        catalogue=catalogue,
        exploration=policy.exploration(record, dim),
        eta=policy.eta(record),
        scales=policy.scales(record, dim),
        arm_filter=None if record.filter is None else parse(record.filter),
        version=version,
        context=context,
        weighing=signals.weighing_of(record),
        fixed_weights=policy.most_signals is not None,
    )


def completed(record: BanditRecord, policies: Mapping[str, PolicyTerms]) -> BanditRecord:
    """The record with the defaults of its policy and of its context. Raises Invalid."""
    if record.prior == "pooled" and record.scope == "global":
        reason = "prior: pooled needs scope: per_key; a global bandit has one learner"
        raise Invalid(reason, path=("prior",))
    signals.check(record, most=policies[record.policy].most_signals)
    _check_position(record, policies[record.policy])
    return contexts.completed(policies[record.policy].completed(record))


def _check_position(record: BanditRecord, policy: PolicyTerms) -> None:
    if record.position is None:
        return
    if policy.most_signals is not None:
        message = f"position does not go with the policy {record.policy}: what it eliminates is so for good"
        raise Invalid(message, path=("position",))
    if record.shift_rewards:
        raise Invalid("position does not go with shift_rewards", path=("position",))


def _check_size(record: BanditRecord, dim: int) -> None:
    """Raise Invalid for learners that would be too large."""
    size = state_bytes(dim, discounted=record.half_life_s is not None, signals=len(record.signals or (0,)))
    per_key = record.scope == "per_key"
    most = MAX_KEY_LEARNER_BYTES if per_key else MAX_LEARNER_BYTES
    if size > most:
        raise Invalid(
            f"a learner of dimension {dim} takes {size:,} bytes: at most {most:,} with scope {record.scope}",
            path=("scope" if per_key and size <= MAX_LEARNER_BYTES else "catalogue",),
        )


def _learner_dim(record: BanditRecord, catalogue: Catalogue, context: Context | None) -> int:
    """The catalogue's, and more with a context; one more when rewards are shifted."""
    more = 0 if context is None else context.more_numbers(catalogue.dim)
    return catalogue.dim + more + record.shift_rewards


def _asked(record: BanditRecord) -> BanditRecord:
    """What a caller asks for: the same bandit, whatever arms the catalogue had when it was made."""
    return replace(record, directions=None, mean_square=None)


def _kept(record: BanditRecord, standing: BanditRecord, absent: Collection[str]) -> BanditRecord:
    """``record``, with what stands of the settings that are absent and had another default once."""
    return replace(record, **{name: getattr(standing, name) for name in BEFORE_AUTO if name in absent})


def _with_unit(record: BanditRecord, before: BanditRecord, arms: Snapshot) -> BanditRecord:
    """The record with the unit of the features, if from now on its ridge is in it."""
    if record.ridge != AUTO or before.ridge == AUTO or record.mean_square is not None:
        return record
    return replace(record, mean_square=mean_square_of(arms))


def mean_square_of(arms: Snapshot) -> float | None:
    """The mean squared length of the arms, or of an even sample of them; None where that is 0."""
    rows = arms.eligible()
    if not len(rows):
        return None
    rows = rows[:: -(-len(rows) * arms.table.dim // MOST_MEASURED)]
    features = arms.features_of(rows).astype(np.float64, copy=False)
    square = float(np.einsum("ij,ij->", features, features)) / len(rows)
    return square if 0.0 < square < math.inf else None


class Bandits:
    """All bandits of the service. ``refresh`` is that of ``Catalogues``."""

    def __init__(
        self,
        store: Store,
        catalogues: Catalogues,
        *,
        policies: Mapping[str, PolicyTerms],
        most_wait_s: float,
        refresh: Callable[[], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._refresh = refresh
        self._policies = policies
        self._most_wait_s = most_wait_s
        self._catalogues = catalogues
        self._served: dict[str, Bandit] = {}
        self._by_uid: dict[str, Bandit] = {}
        self._newer: dict[str, tuple[str, str]] = {}  # not served here, by name: uid and reason
        self._earlier: BoundedCache[tuple[str, int], Bandit] = BoundedCache(EARLIER_BYTES)
        self._versions = BanditVersions(store, rewarded_s=most_wait_s)
        self.changing = asyncio.Lock()  # one change at a time: what is served is what is stored

    def __len__(self) -> int:
        return len(self._served)

    async def load(self) -> None:
        async with self.changing:
            self.replace((await self._store.registry.read()).bandits)

    def replace(self, records: Mapping[str, bytes]) -> None:
        """Serve exactly these bandits, whose catalogues are served. The caller holds ``changing``."""
        self._newer.clear()
        for name, data in records.items():
            try:
                _, version = bytes_to_version(data)
                catalogue = self._catalogues.served(version.record.catalogue)
                served = self._served.get(name)
                if served is None or served.stored != data or served.catalogue is not catalogue:
                    self._drop(name)
                    self._serve(self._made(name, data, catalogue))
            except Unavailable as error:
                self._drop(name)
                self._newer[name] = uid_of(data), error.detail
                log.warning("the bandit %s is not served here: %s", name, error.detail)
        for name in self._served.keys() - records.keys():
            self._drop(name)

    async def create(
        self, name: str, record: BanditRecord, absent: Collection[str] = (), *, by: str | None = None
    ) -> tuple[Bandit, bool]:
        """Make the bandit; (it, False) when the same one exists. Raises Conflict, NotFound, Invalid.

        ``absent``: settings that nobody asked for: ridge and exploration are then what stands. ``by``: the
        name of the API key that asks for it.
        """
        record = self._completed(record)
        catalogue = await self._catalogues.get(record.catalogue)
        contexts.check_size(record, catalogue.dim)
        if record.ridge == AUTO:
            arms = await self._catalogues.sampled(await self._catalogues.get_stocked(record.catalogue))
            record = replace(record, mean_square=await REQUESTS.run(partial(mean_square_of, arms)))
        if isinstance(record.interactions, int):
            record = await self._with_directions(name, record, record.interactions, absent)
        async with self.changing:
            return await self._create(name, record, absent, by)

    async def _with_directions(
        self, name: str, record: BanditRecord, count: int, absent: Collection[str]
    ) -> BanditRecord:
        """The record with the directions that the bandit has, or would have if it were made now."""
        catalogue = await self._catalogues.get_stocked(record.catalogue)
        if name not in self._served:
            await self._refresh()
        standing = self._served.get(name)
        if standing is not None and _asked(standing.record) == _asked(_kept(record, standing.record, absent)):
            return standing.record
        arms = await self._catalogues.sampled(catalogue)
        directions = await REQUESTS.run(partial(contexts.directions_of, arms, count))
        return replace(record, directions=vector_to_bytes(directions))

    async def _create(
        self, name: str, record: BanditRecord, absent: Collection[str], by: str | None
    ) -> tuple[Bandit, bool]:
        catalogue = self._catalogues.served(record.catalogue)
        self._policies[record.policy].check_arms(record, catalogue)
        if name not in self._served:  # one that a store has already goes on
            _check_size(record, _learner_dim(record, catalogue, Context.of(record, catalogue.dim)))
        data = first_version(record, by)
        standing = await self._store.registry.create_bandit(name, data, catalogue=record.catalogue)
        if standing is None:
            raise NotFound("the catalogue was deleted meanwhile")
        check_known(standing)
        _, version = bytes_to_version(standing)
        if different := differing(_asked(version.record), _asked(_kept(record, version.record, absent))):
            changed = "" if version.number == 1 else ", as it was changed since it was made"
            raise Conflict(
                f"a bandit of this name exists with another {', '.join(different)}{changed}: PATCH changes it"
            )
        return self._current(name, standing, catalogue), standing == data

    async def change(self, name: str, changed: Changed, *, by: str | None = None) -> Bandit:
        """Give a bandit another configuration, and keep its learners; without a difference nothing changes.

        ``by``: the name of the API key that asks for it.
        ``changed`` makes the new record of what the bandit is when this is called or later, and again when
        another process changes the bandit at the same time; it may raise. Raises NotFound, Invalid,
        QuotaReached, Unavailable.
        """
        if not await self._refresh():  # the caller may have seen what is not known here
            raise Unavailable("the store does not answer")

        catalogue = self._known(name).catalogue
        arms = await self._catalogues.sampled(catalogue)

        def completed(uid: str, version: BanditVersion) -> BanditRecord:
            record = self._completed(changed(uid, version))
            signals.check_change(version.record, record)
            self._policies[record.policy].check_arms(record, catalogue)
            return _with_unit(record, version.record, arms)

        async with self.changing:
            bandit = self._known(name)
            stored = await self._versions.change(name, bandit.stored, completed, by)
            return self._current(name, stored, bandit.catalogue)

    async def as_if(self, name: str, changed: Changed) -> Bandit:
        """The bandit as ``change`` would make it, beside the one that is served. Raises NotFound, Invalid."""
        bandit = await self.get(name)
        record = self._completed(changed(bandit.uid, bandit.version))
        self._policies[record.policy].check_arms(record, bandit.catalogue)
        record = _with_unit(record, bandit.record, await self._catalogues.sampled(bandit.catalogue))
        version = replace(bandit.version, record=record)
        return self._made(name, version_to_bytes(bandit.uid, version), bandit.catalogue)

    async def history(
        self, bandit: Bandit, cursor: str | None, limit: int
    ) -> tuple[Sequence[BanditVersion], str | None]:
        """The versions that are kept, the newest first."""
        return await self._versions.page(bandit.uid, bandit.version, cursor, limit)

    async def get(self, name: str) -> Bandit:
        """The bandit, also when another process has just made it. Raises NotFound."""
        bandit = self._served.get(name)
        if bandit is not None:
            return bandit
        if not await self._refresh() and name not in self._served:
            raise Unavailable("the store does not answer")
        return self._known(name)

    async def find(self, uid: str, version: int) -> Bandit | None:
        """The bandit of this uid as it was in this version, also when another process has just made it.

        None: there is no such bandit, or the version is no longer kept. Awaits nothing for what it is now.
        Raises Unavailable for one that is not served here, or not known while the store does not answer.
        """
        bandit = self._by_uid.get(uid)
        if bandit is None or bandit.version.number < version:
            answers = await self._refresh()
            bandit = self._by_uid.get(uid)
            if bandit is None and not answers:
                raise Unavailable("the store does not answer")
            for newer, reason in self._newer.values():
                if newer == uid:
                    raise Unavailable(reason)
        if bandit is None or bandit.version.number == version:
            return bandit
        earlier = self._earlier.get((uid, version))
        if earlier is None or earlier.catalogue is not bandit.catalogue:
            stored = await self._versions.one(uid, version)
            if stored is None:
                return None
            earlier = self._made(bandit.name, stored, bandit.catalogue)
            self._keep(earlier)
        return earlier

    def by_uid(self, uid: str) -> Bandit | None:
        """The bandit of this uid, if this process knows it."""
        return self._by_uid.get(uid)

    def page(self, cursor: str | None, limit: int) -> tuple[Sequence[Bandit], str | None]:
        return page_by_name(list(self._served.values()), lambda b: b.name, cursor, limit)

    async def delete(self, name: str) -> None:
        """Delete the bandit and all that it has learned. Its tokens are worth nothing from now on."""
        await self.get(name)
        async with self.changing:
            bandit = self._known(name)
            self._drop(name)
            try:
                await self._store.registry.delete_bandit(name, bandit.uid, catalogue=bandit.record.catalogue)
            except BaseException:
                self._serve(bandit)
                raise

    def _known(self, name: str) -> Bandit:
        if name in self._newer:
            raise Unavailable(self._newer[name][1])
        try:
            return self._served[name]
        except KeyError:
            raise NotFound("no bandit of this name") from None

    def _completed(self, record: BanditRecord) -> BanditRecord:
        """The record with its policy's defaults, and those of its context. Raises Invalid."""
        if (record.reward.wait_s or 0.0) > self._most_wait_s:
            raise Invalid(
                f"wait_s must not be longer than a decision can be rewarded, {self._most_wait_s:g} s",
                path=("reward", "wait_s"),
            )
        return completed(record, self._policies)

    def _current(self, name: str, stored: bytes, catalogue: Catalogue) -> Bandit:
        """The bandit as it is stored, which is served from now on. The caller holds ``changing``."""
        bandit = self._served.get(name)
        if bandit is None or bandit.stored != stored:
            self._drop(name)
            bandit = self._serve(self._made(name, stored, catalogue))
        return bandit

    def _made(self, name: str, stored: bytes, catalogue: Catalogue) -> Bandit:
        return bandit_of(name, stored, catalogue, self._policies)

    def _drop(self, name: str) -> None:
        bandit = self._served.pop(name, None)
        if bandit is not None:
            self._by_uid.pop(bandit.uid, None)
            self._keep(bandit)

    def _keep(self, bandit: Bandit) -> None:
        """Have an earlier version at hand: decisions of it come to be rewarded."""
        size = len(bandit.stored) + OBJECT_BYTES
        self._earlier.put((bandit.uid, bandit.version.number), bandit, size)

    def _serve(self, bandit: Bandit) -> Bandit:
        self._served[bandit.name] = bandit
        self._by_uid[bandit.uid] = bandit
        return bandit
