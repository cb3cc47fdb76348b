"""Measures, studies and runs behind the companion to *Revisiting Anisotropy in Language Transformers*."""
