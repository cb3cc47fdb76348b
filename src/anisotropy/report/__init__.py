"""Tidy tables in, pictures, tables and verdicts out; measures nothing."""
