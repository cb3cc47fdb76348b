"""Measures, studies and runs behind the companion to *Revisiting Anisotropy in Language Transformers*."""

import warnings

# transformers asks for notebook widgets on import, whichever module imports it first; pages show no progress bars.
warnings.filterwarnings("ignore", message="IProgress not found")
