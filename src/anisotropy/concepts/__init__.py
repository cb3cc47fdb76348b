"""The concepts room: rows in, a few directions with codes out, and how such directions match.

`decompositions` finds concepts (PCA, Semi-NMF, ICA behind one call), `semi_nmf` holds the estimator itself, `matching`
compares two sets of concepts with each other and with chance.
"""

from anisotropy.concepts.decompositions import METHODS, Decomposition, decompose
from anisotropy.concepts.matching import Matching, match, rotated_baseline
from anisotropy.concepts.semi_nmf import SemiNMF, stability

__all__ = ["METHODS", "Decomposition", "Matching", "SemiNMF", "decompose", "match", "rotated_baseline", "stability"]
