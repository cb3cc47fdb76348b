"""The rules of the claims, one file per chapter, fixed before looking.

A rule reads a table of numbers and returns :class:`~anisotropy.report.scorecard.Verdict` objects. It never measures,
and it knows the claim's controls: a claim holds only if its interval lies wholly on the claimed side *and* every
control stays off it.
"""
