"""What the ``hearline up`` family reads from the environment, beyond the queue's settings."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from ops.errors import WrongUse
from queueing.errors import SettingsError
from queueing.settings import QueueSettings


class UpSettings(QueueSettings):
    """Settings of ``hearline up`` and ``hearline demo``; an option on the command line goes first."""

    host: str = Field("127.0.0.1", min_length=1, description="Address the web processes listen on.")
    port: int = Field(8000, ge=1, le=65_535, description="TCP port of the first web process; the next ones count up.")
    drain_s: float = Field(
        30.0,
        ge=0,
        le=600,
        description="Time that processes get to finish after SIGTERM; five seconds later they are killed.",
    )
    state_dir: str | None = Field(
        None,
        description="Folder of up.json, by which `hearline queue` and `hearline stream` find a running `hearline up`. "
        "Unset: $XDG_STATE_HOME/hearline, else ~/.local/state/hearline.",
    )

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> UpSettings:
        """As `from_env`, but a wrong value ends the command (`WrongUse`)."""
        try:
            return cls.from_env(environment)
        except SettingsError as error:
            raise WrongUse(str(error)) from None
