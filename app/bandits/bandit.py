"""One bandit as it is served: its settings, and what they make of requests, features and posteriors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from app.bandits import signals
from app.bandits.completion import PolicyTerms, constant_of
from app.bandits.context import Context, numbers_beside
from app.bandits.effect_version import EffectVersion, PlaceFit
from app.bandits.prior_version import PriorVersion
from app.bandits.settings import AUTO, BY_ARM, BanditRecord, PositionRule, ServedArms
from app.bandits.versions import BanditVersion, bytes_to_version, etag_of
from app.catalogues.catalogue import Catalogue
from app.catalogues.learner_snapshot import ConstantSnapshot, LearnerSnapshot
from app.filters.filter import Filter, parse
from app.indexes.snapshot import Snapshot
from app.platform.documents import Answer
from app.platform.errors import Invalid, NotFound
from app.records.encoding import MatchEncoding, Numbers32
from app.records.history_prior import HistoryPriorRecord
from app.records.place_sums import MOST_LEARNED_PLACES, places_to_bytes
from app.storage.types import LearnerId
from shortlist.linear import scales
from shortlist.linear.exploration import exploration_at, exploration_with_history, exploration_with_prior
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums, empty
from shortlist.linear.scales import Scales
from shortlist.linear.signals import SignalPosteriors, Weighing, known
from shortlist.types import Matrix, Vector

OWN_UNIT = 10.0  # by which the squared noise of such a key is larger than that of the others, at least
GLOBAL_LEARNER = "_global"


class FormerCatalogue(NamedTuple):
    """The catalogue of a bandit before it was moved. ``until``: the bandit's present space."""

    uid: str
    dim: int
    until: int


class UsedScales(Answer, frozen=True):
    """``noise`` is the sigma that multiplies widths: 1 where it is not learned. Of elimination
    ``exploration`` is the radius.
    """

    schema_name = "UsedView"

    ridge: float
    noise: float
    exploration: float


class Bandit(msgspec.Struct, frozen=True):
    """A served bandit. ``stored``: its bytes in the store, decoded as ``version``.

    ``weighing``: of its signals; None without any. ``constant``: the coordinate of its learners besides an
    arm's. ``is_settled``: True if the constant is known; the intercept waits for the first arms. ``prior``:
    the served version of its learned prior; None: no learned prior, or no version yet. ``exploration``: as
    ``exploration_of``, or its least value. ``exploration_alone``: the same without the learned prior; None:
    equal. ``effects``: the served version of its arm effects; None: no effects, or no prior yet. ``match``:
    encoding of a request's values for an arm; None: there are none. ``places``: the effects' estimates for
    the places of lists; None: none, or not asked for. ``former``: the earlier catalogue of a version from
    before a move: ``catalogue`` is this one, or, where deleted, the bandit's present one.
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
    constant: float | None = None
    is_settled: bool = True
    prior: PriorVersion | None = None
    exploration_alone: float | None = None
    former: FormerCatalogue | None = None
    effects: EffectVersion | None = None
    match: MatchEncoding | None = None
    places: PlaceFit | None = None

    @property
    def catalogue_uid(self) -> str:
        """The uid of the catalogue from which decisions of this version choose."""
        return self.catalogue.uid if self.former is None else self.former.uid

    @property
    def history(self) -> HistoryPriorRecord | None:
        """The prior of keys from the history of the catalogue."""
        return self.catalogue.record.prior

    @property
    def etag(self) -> str:
        return etag_of(self.uid, self.version.number)

    @property
    def named_fields(self) -> dict[str, Collection[str]]:
        """The fields of arms named by the settings, by setting."""
        named = dict[str, Collection[str]]()
        if self.arm_filter is not None:
            named["filter"] = self.arm_filter.fields
        if self.record.repeats is not None and self.record.repeats.by != BY_ARM:
            named["repeats"] = (self.record.repeats.by,)
        return named

    @property
    def named_arms(self) -> Sequence[str]:
        """The arms named by the settings: those of a holdout."""
        serve = None if self.record.holdout is None else self.record.holdout.serve
        return serve.arms if isinstance(serve, ServedArms) else ()

    @property
    def prior_terms(self) -> tuple[Scales, int, int]:
        """The values which a posterior depends on, besides the learned sums."""
        number = 0 if self.prior is None else self.prior.shown_number
        return self.scales, number, self.record.space

    @property
    def prior_version(self) -> int | None:
        """The version of its learned prior, 0 while there is none; None: its prior is another one."""
        if self.record.prior != "learned":
            return None
        return 0 if self.prior is None else self.prior.shown_number

    @property
    def prior_mean(self) -> Vector | None:
        """The estimate for a key without rewards; None: 0, or unknown here. Shape: (D,)."""
        learned = None if self.prior is None else self.prior.learned
        if learned is None:
            return None
        return learned.mean[0] if self.weighing is None else np.array(self.weighing.weights) @ learned.mean

    def with_prior(self, version: PriorVersion | None) -> Bandit:
        """This bandit, served with a version of its learned prior; None: as without one.

        As without one also where the version is of another catalogue, before the bandit was moved.
        """
        alone = self.exploration if self.exploration_alone is None else self.exploration_alone
        if version is None or version.learned is None or version.record.space != self.record.space:
            if self.prior is None:
                return self
            return msgspec.structs.replace(self, prior=None, exploration=alone, exploration_alone=None)
        exploration = alone
        # A context new in each decision explores by itself: there exploration stays as without a prior.
        if self.record.exploration == AUTO and self.context is None:
            learned = version.learned
            if learned.history:
                exploration = exploration_with_history(learned.observations / max(1, learned.own_keys))
            else:
                exploration = exploration_with_prior(alone, keys=learned.keys, variation=learned.variation)
        return msgspec.structs.replace(
            self,
            prior=version.of_signals(self.record.signal_count),
            exploration=exploration,
            exploration_alone=alone,
        )

    def with_effects(self, version: EffectVersion | None) -> Bandit:
        """This bandit, served with a version of its arm effects; None: without effects.

        Without effects also where there is no learned prior: an effect is what arms have beyond the common
        part of the keys; where no effect was found; and where the version is of another catalogue, before a
        move.
        """
        places = version.record.places if version is not None and self.record.learns_places else None
        if places is not None and places.is_below:
            places = None  # a token without them says that all are 1
        if version is not None and (
            not version.says_anything or not self.learns_effects or version.record.space != self.record.space
        ):
            version = None
        if self.effects is version and self.places is places:
            return self
        return msgspec.structs.replace(self, effects=version, places=places)

    @property
    def effects_version(self) -> int | None:
        """The version of its arm effects, 0 while none was found; None: the bandit has no arm effects."""
        if self.record.arm_effects == "off":
            return None
        return 0 if self.effects is None else self.effects.shown_number

    @property
    def learns_effects(self) -> bool:
        """True if arms learn from decisions made with this served bandit."""
        has_prior = self.prior is not None and self.prior.learned is not None
        return self.record.arm_effects == "auto" and has_prior

    @property
    def learns_ages(self) -> bool:
        """True if decisions made with this served bandit teach what the ages of arms add: not of signals."""
        return self.record.signals is None and self.learns_effects

    def has_own_unit(self, sigma: float) -> bool:
        """True if a key with this noise of its posterior has rewards far beyond those of the others.

        Its effects on arms would be in a unit of their own. Always False with signals.
        """
        learned = self._prior_of_sizes
        return learned is not None and sigma * sigma > OWN_UNIT * float(learned.residuals[0, 0])

    def is_far(self, value: float) -> bool:
        """True if a reward is far beyond all usual rewards of keys. Always False with signals."""
        learned = self._prior_of_sizes
        return learned is not None and learned.sizes is not None and learned.sizes.is_far(value)

    @property
    def _prior_of_sizes(self) -> LearnedPrior | None:
        """The learned prior, if it says the usual size of keys' one reward."""
        learned = None if self.prior is None else self.prior.learned
        if learned is None or learned.sizes is None or self.weighing is not None:
            return None
        return learned

    @property
    def arm_dim(self) -> int:
        """d, how many numbers the catalogue has of an arm."""
        return self.catalogue.dim if self.former is None else self.former.dim

    @property
    def match_dim(self) -> int:
        """m, how many numbers a request may say of an arm."""
        return 0 if self.match is None else self.match.dim

    @property
    def columns(self) -> Sequence[str] | None:
        """The meaning of each number of an arm, those of ``match`` last; None: unknown."""
        columns = self.catalogue.encoding.columns
        if self.match is None:
            return columns
        if columns is None:
            columns = [f"features.{number}" for number in range(self.catalogue.dim)]
        return [*columns, *self.match.columns]

    @property
    def learner_dim(self) -> int:
        """Dimension of what learners learn."""
        # As the function ``learner_dim``, from fields at hand: each choice asks several times.
        more = 0 if self.context is None else self.context.more_numbers(self.arm_dim)
        return self.arm_dim + more + self.match_dim + self.record.intercept

    @property
    def state_bytes(self) -> int:
        """Size of the state of a learner."""
        return self.record.state_bytes(self.learner_dim)

    @property
    def weights(self) -> dict[str, float] | None:
        """The weights of its signals; None without any."""
        if self.weighing is None or self.record.signals is None:
            return None
        return dict(zip(self.record.signals, self.weighing.weights, strict=True))

    def weighed(self, weights: Mapping[str, float] | None) -> Bandit:
        """This bandit, with these weights over its own. Raises Invalid."""
        if weights is None:
            return self
        if self.fixed_weights:
            raise Invalid(f"weights do not go with the policy {self.record.policy}", path=("weights",))
        weighing = signals.weighed_anew(self.record, self.weighing, weights)
        return msgspec.structs.replace(self, weighing=weighing)

    def known(self, sums: RidgeSums) -> Posterior | SignalPosteriors:
        """The posterior of the reward, or of all signals, given these sums. Cost: O(D^3)."""
        learned = None if self.prior is None else self.prior.learned
        if learned is None:
            return self.scales.posterior(sums) if self.weighing is None else known(sums, self.scales)
        length = self.scales.length(sums)
        if self.weighing is None:
            return replace(learned.posterior(sums), length=length)
        return replace(learned.known(sums), length=length)

    def posterior(self, sums: RidgeSums) -> Posterior:
        """The posterior of the reward, or of the weighted sum of the signals, given these sums. Cost:
        O(D^3).
        """
        posterior_of_sums = self.known(sums)
        if not isinstance(posterior_of_sums, SignalPosteriors):
            return posterior_of_sums
        if self.weighing is None:
            raise ValueError("a bandit without signals knows none")
        return posterior_of_sums.weighed(self.weighing, self.scales)

    def exploration_of(self, posterior: Posterior) -> float:
        """The factor of a draw from a learner's posterior: larger where rewards have little noise."""
        # A context new in each decision explores by itself; a learned prior has a rule of its own.
        if self.record.exploration != AUTO or self.context is not None or self.exploration_alone is not None:
            return self.exploration
        return exploration_at(self.exploration, posterior.ratio)

    @property
    def temperature_share(self) -> float:
        """The temperature of softmax as a multiple of a posterior's unit, for a temperature of "auto"."""
        # The unit of a learned prior is the noise alone.
        if self.exploration_alone is not None:
            return scales.TEMPERATURE
        return scales.TEMPERATURE_BY_EVIDENCE

    def used(self, posterior: Posterior) -> UsedScales:
        """The scales used for the posterior of a learner."""
        return UsedScales(posterior.ridge, posterior.sigma, self.exploration_of(posterior))

    @property
    def begins_with(self) -> UsedScales:
        """The scales of a learner without rewards and without a prior of others."""
        alone = self.with_prior(None)
        return alone.used(alone.posterior(empty(1)))

    def filter_with(self, arm_filter: Filter | None) -> Filter | None:
        """The conditions on an arm to be chosen: the bandit's filter, and ``arm_filter``."""
        if self.arm_filter is None or arm_filter is None:
            return self.arm_filter or arm_filter
        return self.arm_filter.both(arm_filter)

    def snapshot(self) -> LearnerSnapshot:
        """The catalogue as it is now, as the learners see its arms."""
        return self.seen(self.catalogue.index.snapshot())

    def seen(self, snapshot: Snapshot) -> LearnerSnapshot:
        """A snapshot of the catalogue, or of candidates, as the learners see its arms.

        Only candidates have numbers of ``match``, in their own table: of all other arms these are 0.
        """
        absent = 0 if self.match is None else self.arm_dim + self.match.dim - snapshot.table.dim
        if self.constant is None and not absent:
            return snapshot
        return ConstantSnapshot(snapshot, self.constant, absent)

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
        """The posterior of the query for arms, from the posterior of a learner."""
        if self.context is None or context is None:
            return posterior
        return self.context.given(posterior, context)

    def queries(self, thetas: Matrix, context: Numbers32 | None) -> Matrix:
        """The queries for arms, one for each of several estimates of a learner. (J, D) -> (J, d')."""
        if self.context is None or context is None:
            return thetas
        encoded = np.asarray(context)[None]
        return np.array([self.context.queries(theta, encoded)[0] for theta in thetas])

    def theta_and_offset(self, theta: Vector) -> tuple[Vector, float]:
        """The theta of arms and the offset, such that x.theta + offset predicts the reward of an arm x, of
        which no request says anything. Shapes: (d',) -> (d,).
        """
        numbers, offset = self.numbers_and_offset(theta)
        return (numbers if self.match is None else numbers[: -self.match.dim]), offset

    def numbers_and_offset(self, theta: Vector) -> tuple[Vector, float]:
        """As ``theta_and_offset``, with those of ``match``. Shapes: (d',) -> (d + m,)."""
        return (theta, 0.0) if self.constant is None else (theta[:-1], self.constant * float(theta[-1]))

    def joint_features(
        self, features: Vector, context: Numbers32 | None, constant: float | None = None
    ) -> Vector:
        """The features for a learner, of an arm in a context; without a context one of zeros.

        ``constant``: in place of the intercept's, where ``features`` are a mix of several arms'. Shapes:
        (d,), or (d + m,) with the request's numbers of the arm -> (D,).
        """
        arm_features = features if self.match is None else features[: self.arm_dim]
        joint = arm_features if self.context is None else self.context.joint_features(arm_features, context)
        if self.constant is None and self.match is None:
            return joint
        extended = np.zeros(self.learner_dim)
        extended[: len(joint)] = joint
        if len(features) > len(arm_features):
            extended[len(joint) : len(joint) + self.match_dim] = features[len(arm_features) :]
        if self.constant is not None:
            extended[-1] = self.constant if constant is None else constant
        return extended

    def says_match(self, joint: Vector) -> bool:
        """True if a request said numbers of the arm with these ``joint_features``. Shape: (D,)."""
        end = len(joint) - self.record.intercept
        return bool(joint[end - self.match_dim : end].any())

    def examination_at(self, position: int) -> float:
        """The probability p that the arm at a place, from 0, is looked at: as stated, or as learned so far.

        Source: the position-based model; Lagree, Vernade and Cappe, "Multiple-Play Bandits in the
        Position-Based Model" (2016), section 2: the mean reward is p x.theta.
        """
        rule = self.record.position
        if isinstance(rule, PositionRule):
            return rule.at(position)
        return 1.0 if self.places is None else self.places.p[min(position, MOST_LEARNED_PLACES - 1)]

    def places_of_token(self, arms: int) -> bytes | None:
        """The token's part about the places of a list of so many arms."""
        rule = self.record.position
        if arms < 2 or rule is None or (rule != AUTO and not self.record.learns_places):
            return None
        if not isinstance(rule, PositionRule):
            return b"" if self.places is None else self.places.of_token(arms)
        told = min(arms, MOST_LEARNED_PLACES)
        p = [rule.at(position) for position in range(told)]
        w = [1.0] * told if self.places is None else self.places.w[:told]
        # The weights may be of the fit before the last change of p.
        return places_to_bytes(p, [min(each, 1.0 / own) for each, own in zip(w, p, strict=True)], arms)

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


def bandit_of(
    name: str,
    stored: bytes,
    catalogue: Catalogue,
    policies: Mapping[str, PolicyTerms],
    former: FormerCatalogue | None = None,
) -> Bandit:
    """The bandit of a stored version. Raises Unavailable for one with settings of a newer service."""
    uid, version = bytes_to_version(stored)
    record = version.record
    arm_dim = catalogue.dim if former is None else former.dim
    context, policy = Context.of(record, arm_dim), policies[record.policy]
    dim, numbers = learner_dim(record, arm_dim, context), decision_numbers(record, arm_dim, context)
    return Bandit(
        name=name,
        uid=uid,
        stored=stored,
        record=record,
        catalogue=catalogue,
        exploration=policy.exploration(record, dim, numbers),
        eta=policy.eta(record),
        scales=policy.scales(record, numbers),
        arm_filter=None if record.filter is None else parse(record.filter),
        version=version,
        context=context,
        weighing=signals.weighing_of(record),
        fixed_weights=policy.needs.max_signals is not None,
        constant=constant_of(record),
        is_settled=not record.intercept or record.constant is not None,
        former=former,
        match=None if record.match is None else MatchEncoding(record.match),
    )


def decision_numbers(record: BanditRecord, dim: int, context: Context | None) -> float:
    """The numbers of a learner, on average, about which a decision says something: those other than 0.

    ``dim``: of the arms.
    """
    if context is None or record.filled is None:
        return learner_dim(record, dim, context)
    interacting = record.filled if context.directions is None else len(context.directions)
    return record.filled + interacting * context.encoding.dim + numbers_beside(record)


def learner_dim(record: BanditRecord, dim: int, context: Context | None) -> int:
    """The catalogue's, and more with a context and ``match``; one more with an intercept."""
    more = 0 if context is None else context.more_numbers(dim)
    return dim + more + numbers_beside(record)
