"""Maximum inner products as nearest neighbours: one more coordinate brings all arms onto one sphere.

Notation
    x, q        arm and query (d,)
    R           largest norm of an arm
    x'          [x, sqrt(R^2 - |x|^2)] (d + 1,), of norm R for every arm
    q'          [R q / |q|, 0] (d + 1,), of norm R too

|x' - q'|^2 = 2 R^2 - 2 R <x, q> / |q|. So the nearest x' is the arm of largest product, and the angle between
q' and x' has the cosine <x, q> / (R |q|), the largest that no arm can exceed being 1.

Source: Bachrach et al., "Speeding up the Xbox recommender system using a Euclidean transformation for
inner-product spaces", RecSys 2014, theorem 1.
"""

from __future__ import annotations

import numpy as np

from shortlist.mips.columns import Given
from shortlist.types import Vector


def norms_of(vectors: Given) -> Vector:
    """Return |x| of every arm. Shapes: (n, d) -> (n,)."""
    norms: Vector = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    return norms


def last_coordinate(norms: Vector) -> Vector:
    """Return the coordinate that x' adds to every arm. Shapes: (n,) -> (n,)."""
    largest = float(norms.max(initial=0.0))
    added: Vector = np.sqrt(np.maximum((largest - norms) * (largest + norms), 0.0))
    return added


def on_the_sphere(query: Given, radius: float) -> Vector:
    """Return R q / |q|, the first d coordinates of q'; a query of zeros stays. Shapes: (d,) -> (d,)."""
    scaled: Vector = query.astype(np.float64)
    norm = float(np.linalg.norm(scaled))
    return scaled * (radius / norm) if norm else scaled
