"""Errors, named by what the caller must do about them."""


class LinesideError(Exception):
    """Root of every error that crosses a package boundary.

    Args:
        text: One line for the operator: what happened.
        remedy: One line for the operator: what to do about it.
        component: Source, target, model or file concerned.
    """

    def __init__(self, text: str, *, remedy: str = "", component: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy
        self.component = component

    def __str__(self) -> str:
        """The operator's line: component, what happened, what to do."""
        head = f"{self.component}: {self.text}" if self.component else self.text
        return f"{head} -> {self.remedy}" if self.remedy else head


class ConfigError(LinesideError):
    """The user must change the configuration or a file; the process exits with code 2."""


class TransientError(LinesideError):
    """The same call may succeed later; the caller retries with back-off."""


class PermanentError(LinesideError):
    """No retry can help; the caller stops this part and raises a condition."""


class DataError(LinesideError):
    """This value, row or message is unusable; the caller marks it bad and goes on."""
