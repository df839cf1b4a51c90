"""A linear bandit in one object: choose an arm, say what it earned, choose again.

It puts together other modules of this folder: sums of a ridge regression, scales by maximum
evidence, a policy and an index. Every choice is made with all rewards before it. With an index of
``shortlist.index`` a choice of ``"sub_ts"`` reads the few arms proposed by the index, as the service does.

Notation
    K, d        number of arms, dimension of their features
    D           dimension of the parameters: d, and 1 for the intercept. Its feature is the root mean square
    of all numbers of ``arms``: choices do not depend on their unit
    sums        see ``ridge_sums``
"""

from __future__ import annotations

import math
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from shortlist import checks
from shortlist.errors import InvalidParameter, InvalidShape
from shortlist.index.exact import TableScan
from shortlist.index.table import table_of
from shortlist.linear import evidence, linear_ts, linucb, ridge_sums, scales, softmax
from shortlist.linear.exploration import exploration_at, exploration_by_evidence
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.scales import Scales
from shortlist.types import Matrix, MipsSolver, Rows, Vector

ALPHA = 1.0  # of "linucb", where no exploration is given
_SUMS = ("total", "error", "more", "more_error", "observations", "weight", "squares", "squares_error")
_SETTINGS = ("policy", "exploration", "ridge", "intercept")


class LinearBandit:
    """Arms with features, of which it learns by their rewards which are best. Threads may share one.

    >>> import numpy as np
    >>> arms, rng = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], np.random.default_rng(1)
    >>> bandit = LinearBandit(arms, rng=rng)
    >>> for _ in range(30):
    ...     (arm,) = bandit.choose()
    ...     bandit = bandit.partial_fit(arm, reward=[0.2, 0.8, 0.9][arm])
    >>> int(bandit.choose()[0])
    2
    >>> np.round(bandit.expected([1, 2]), 1).tolist()
    [0.8, 0.9]
    """

    def __init__(
        self,
        arms: ArrayLike,
        *,
        rng: np.random.Generator,
        policy: str = "sub_ts",
        index: MipsSolver | str | None = None,
        exploration: float | None = None,
        ridge: float | None = None,
        intercept: bool = True,
    ) -> None:
        """``arms`` (K, d): an array, or a list of lists.

        ``policy``: ``"sub_ts"`` asks ``index``, ``"linear_ts"``, ``"linucb"`` and ``"softmax"`` compare all
        arms. ``index``: finds rows of ``arms`` by inner product. None, ``"exact"``: all arms are compared, in
        float32, and the best again. Others are built here, and need the extra ``index`` of the library:
        ``"hnsw"`` a graph, ``"inverted_file"``, ``"auto"`` the fastest that finds 95 % of the best arms, by
        measuring (see ``index.arm_index``).
        ``exploration``: of Thompson sampling how many times the posterior's deviation is drawn, of
        ``"linucb"`` alpha, of ``"softmax"`` the temperature; None: by the rewards, see ``scales``.
        ``ridge``: None: by maximum evidence. ``intercept``: what all arms earn alike is learned too.
        ``rng``: of all draws.

        Raises: InvalidShape, NonFinite, InvalidParameter.
        """
        checks.generator(rng)
        self._arms = _numbers("arms", arms)
        checks.shape("arms", self._arms, (None, None))
        if policy not in _POLICIES:
            raise InvalidParameter(f"policy must be one of {', '.join(_POLICIES)}", argument="policy")
        if index is not None and policy != "sub_ts":
            raise InvalidParameter(f"{policy} compares all arms: leave index out", argument="index")
        if exploration is not None:
            checks.in_range("exploration", exploration, least=0.0)
            if policy == "softmax":
                checks.in_range("exploration", exploration, above=0.0)
        if ridge is not None:
            checks.in_range("ridge", ridge, above=0.0)
        self.policy, self.exploration, self.ridge = policy, exploration, ridge
        self.intercept = bool(intercept)
        self._built = index if isinstance(index, str) and index != "exact" else None
        self.index = self._solver(index)
        self._rng = rng
        self._sums = ridge_sums.empty(self._arms.shape[1] + self.intercept)
        square = float(np.einsum("ij,ij->", self._arms, self._arms, dtype=np.float64))
        square /= max(len(self._arms), 1)
        self._constant = math.sqrt(square / max(self._arms.shape[1], 1)) or 1.0
        otherwise = (square + self.intercept * self._constant**2 or 1.0) / evidence.START
        self._scales = Scales(ridge, otherwise, learns_noise=True, least_ratio=0.0)
        self._posterior: Posterior | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __repr__(self) -> str:
        (arms, dim), index = self._arms.shape, f", index {self._built!r}" if self._built else ""
        return f"<LinearBandit: {arms:,} x {dim}, {self.policy!r}{index}, {self.observations:,} rewards>"

    @property
    def observations(self) -> int:
        """The number of rewards learned from."""
        return self._sums.observations

    def choose(self, k: int = 1, *, exclude: ArrayLike = ()) -> Rows:
        """Rows of the ``k`` arms to show, the best first; none of ``exclude``.

        Shapes: exclude (e,) -> (m,), m = min(k, K - e). Cost: a search, which reads K d numbers, or with an
        index fewer; and O(D^2), for the first after a reward O(D^3).
        Raises: InvalidParameter (k < 1; a row of ``exclude`` that is no arm).
        """
        checks.in_range("k", k, least=1, whole=True)
        return _POLICIES[self.policy](self, int(k), np.unique(self._rows("exclude", exclude)))

    def partial_fit(self, arm: ArrayLike, reward: ArrayLike) -> Self:
        """Learn what an arm earned, or each of several. Returns the bandit itself.

        Shapes: arm (), reward (); or (n,), (n,). Cost: O(D^2) for each. Nothing is learned where it raises:
        InvalidShape, NonFinite, InvalidParameter (no such arm).
        """
        rows = self._rows("arm", arm)
        rewards = np.atleast_1d(_numbers("reward", reward))
        checks.shape("reward", rewards, (len(rows),))
        features, first = self._with_constant(self._arms[rows]), np.ones(len(rows), dtype=np.bool_)
        with self._lock:
            self._sums, self._posterior = ridge_sums.add(self._sums, features, rewards, first), None
        return self

    def expected(self, arm: ArrayLike | None = None) -> Vector:
        """The expected rewards of arms; None: of all. Shapes: arm (n,) -> (n,). Cost: O(n D)."""
        features = self._arms if arm is None else self._arms[self._rows("arm", arm)]
        estimates: Vector = self._with_constant(features) @ self.posterior.theta
        return estimates

    @property
    def posterior(self) -> Posterior:
        """The posterior of all rewards so far. Cost: O(D^3), once after a reward."""
        with self._lock:
            if self._posterior is None:
                self._posterior = self._scales.posterior(self._sums)
            return self._posterior

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sums and the settings to ``path``, which ends with ``.npz`` or gets this end.

        The file takes the place of the one before when all of it is written. An index built by its name is
        written beside, to a folder with the end ``.index``. Arms and generator are not written.
        Raises: OSError.
        """
        file, sums = _file_of(path), self._sums
        arrays: dict[str, Any] = {name: getattr(sums, name) for name in _SUMS}
        arrays["constant"] = np.array(self._constant)
        settings = {name: getattr(self, name) for name in _SETTINGS}
        arrays |= {name: np.array(value) for name, value in settings.items() if value is not None}
        if self._built is not None:
            arrays["index"] = np.array(self._built)
            _indexes().save(self.index, file.with_suffix(".index"))
        part = file.with_name(f"{file.name}.part")
        with part.open("wb") as written:
            np.savez(written, **arrays)
            written.flush()
            os.fsync(written.fileno())
        part.replace(file)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        arms: ArrayLike,
        *,
        rng: np.random.Generator,
        index: MipsSolver | str | None = None,
    ) -> Self:
        """The saved bandit. ``arms``: as they were. ``index``: None: the saved one, if any.

        Arms may have been added, or have other features of the same meaning: then an index is built again.
        Raises: OSError; InvalidShape (arms of another dimension); InvalidParameter (not a file of a bandit).
        """
        file = Path(path) if Path(path).exists() else _file_of(path)
        try:
            # A file of ours: numpy leaves one open that is cut.
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as read:
                values: dict[str, Any] = {name: read[name] for name in read.files}
            values = {name: array if array.ndim else array.item() for name, array in values.items()}
            sums = RidgeSums(**{name: values[name] for name in _SUMS})
        except (ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
            message = "path must be a file that LinearBandit.save wrote"
            raise InvalidParameter(message, argument="path") from error
        settings = {name: values[name] for name in _SETTINGS if name in values}
        features, dim = _numbers("arms", arms), sums.dim - bool(settings.get("intercept", True))
        if features.shape[1:] != (dim,):
            raise InvalidShape(f"arms must have {dim} features, as those that were saved", argument="arms")
        built = str(values["index"]) if index is None and "index" in values else None
        saved = None if built is None else _read(file.with_suffix(".index"), features)
        bandit = cls(features, index=saved or built or index, rng=rng, **settings)
        bandit._sums, bandit._built = sums, built or bandit._built  # private: of the same class
        bandit._constant = values.get("constant", 1.0)  # version 2.0 wrote none: it was 1
        return bandit

    def _solver(self, index: MipsSolver | str | None) -> MipsSolver:
        if index is not None and not isinstance(index, str):
            return index
        if index is None or index == "exact":
            solver = TableScan(table_of(self._arms))
        else:
            indexes = _indexes()
            solver = indexes.build(self._arms, indexes.IndexOptions(index))
        self._arms = solver.table.features  # a copy, which nobody else changes
        return solver

    def _rows(self, name: str, given: ArrayLike) -> Rows:
        rows = np.atleast_1d(_array(name, given))
        if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
            raise InvalidParameter(f"{name} must be a row of arms, or a list of rows", argument=name)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self._arms)):
            raise InvalidParameter(f"{name} must be from 0 to {len(self._arms) - 1}", argument=name)
        return rows.astype(np.int64)

    def _with_constant(self, features: Matrix) -> Matrix:
        """Features as they are learned. Shapes: (n, d) -> (n, D)."""
        if not self.intercept:
            return features
        return np.column_stack([features, np.full(len(features), self._constant)])

    def _multiple(self, posterior: Posterior) -> float:
        if self.exploration is not None:
            return self.exploration
        return exploration_at(exploration_by_evidence(self._sums.dim), posterior.ratio)

    def _sampled(self, k: int, exclude: Rows) -> Rows:
        """The intercept is the same for all arms, so the index is not asked for it."""
        posterior = self.posterior
        drawn = linear_ts.draw(posterior, exploration=self._multiple(posterior), rng=self._rng)
        return self.index.search(drawn[: self._arms.shape[1]], k, exclude).rows

    def _bounded(self, k: int, exclude: Rows) -> Rows:
        alpha = ALPHA if self.exploration is None else self.exploration
        features = self._with_constant(self._arms)
        return linucb.choose(self.posterior, features, k=k, alpha=alpha, exclude=exclude).rows

    def _softmax(self, k: int, exclude: Rows) -> Rows:
        temperature = self.exploration
        if temperature is None:
            temperature = scales.TEMPERATURE_BY_EVIDENCE * self.posterior.unit
        left = np.setdiff1d(np.arange(len(self._arms)), exclude)
        places = softmax.choose(self.expected(left), k=k, temperature=temperature, rng=self._rng).places
        rows: Rows = left[places]
        return rows


_POLICIES: Mapping[str, Callable[[LinearBandit, int, Rows], Rows]] = {
    "sub_ts": LinearBandit._sampled,
    "linear_ts": LinearBandit._sampled,
    "linucb": LinearBandit._bounded,
    "softmax": LinearBandit._softmax,
}


def _indexes() -> Any:
    """The module ``index.arm_index``. Raises InvalidParameter where its extra is not installed."""
    try:
        from shortlist.index import arm_index  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        message = f"index needs the package {error.name}: pip install './algorithms[index]' in a checkout"
        raise InvalidParameter(message, argument="index") from None
    return arm_index


def _file_of(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    return file if file.suffix == ".npz" else file.with_name(f"{file.name}.npz")


def _read(folder: Path, features: Matrix) -> MipsSolver | None:
    """The index in a folder, None: it has none of these arms."""
    try:
        read: MipsSolver = _indexes().load(folder, features)
    # Whatever is wrong with it, the index is built again.
    except (OSError, ValueError, TypeError, RuntimeError):
        return None
    return read


def _array(name: str, given: object, dtype: type[np.float64] | None = None) -> Any:
    """An array of what is one, or a list; others would become an array of one object."""
    kind = type(given).__name__
    if hasattr(given, "toarray"):
        raise InvalidShape(f"{name} must not be sparse: give what toarray() of it returns", argument=name)
    if isinstance(given, AbstractSet | Mapping | Iterator):
        raise InvalidShape(f"{name} must be an array or a list, not of type {kind}", argument=name)
    return np.asarray(given, dtype=dtype)


def _numbers(name: str, given: ArrayLike) -> Matrix:
    try:
        array: Matrix = _array(name, given, np.float64)
    except InvalidShape:
        raise
    except (TypeError, ValueError):
        raise InvalidShape(f"{name} must be numbers, in rows of one length", argument=name) from None
    checks.finite(name, array)
    return array
