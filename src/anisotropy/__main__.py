"""``python -m anisotropy``: the same as the ``anisotropy`` command."""

from anisotropy.cli import main

main(prog_name="anisotropy")
