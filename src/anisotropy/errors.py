"""The one exception that a command turns into a one-line message."""


class UserError(Exception):
    """Something the person who runs a command can put right; the message says what is wrong and what would be right."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows instead of a traceback (an IPython protocol)."""
        return [f"anisotropy: {self}"]


class UnknownNameError(UserError):
    """A name that nothing has, such as a mistyped revision; the message lists the nearest ones."""
