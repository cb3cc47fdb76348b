"""Text, models, checkpoints and probes; imports neither geometry nor concepts.

Nothing is imported here, so that looking a name up in the catalogue costs no torch import.
"""
