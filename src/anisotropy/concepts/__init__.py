"""Concept decompositions: arrays in, concepts out."""
