"""What a command may fail with. Shown as one line, ``Error: ...``, never as a traceback.

OpsError (click.ClickException)
+-- Failed      1  it was tried and did not work
+-- WrongUse    2  wrong arguments or settings (click's own usage errors are 2 as well)
+-- Missing     3  something that is needed is not there: Redis, a port, a file
"""

from __future__ import annotations

import click


class OpsError(click.ClickException):
    """Base of everything that ends a command on purpose; ``exit_code`` becomes the process's status."""


class Failed(OpsError):
    """It was tried and did not work."""

    exit_code = 1


class WrongUse(OpsError):
    """Arguments or settings are wrong; the message names them, their limits and the fix."""

    exit_code = 2


class Missing(OpsError):
    """Something that is needed is not there; the message says how to get it."""

    exit_code = 3
