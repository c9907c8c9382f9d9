"""Runs the tests with another Redis or Valkey server, or another deployment, than the usual one."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.deployments import Cluster, Sentinels

DEPLOYMENTS = {"sentinel": Sentinels, "cluster": Cluster}


def put_on_path(binary: str) -> None:
    """Make this server, and the ``redis-cli`` beside it, the first on PATH: of the tests and of all they start.

    Raises FileNotFoundError when it is not there.
    """
    server = Path(binary).resolve(strict=True)
    folder = Path(tempfile.mkdtemp(prefix="hearline-server-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "redis-server").symlink_to(server)
    for name in ("redis-cli", "valkey-cli"):
        if (server.parent / name).is_file():
            (folder / "redis-cli").symlink_to(server.parent / name)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # noqa: TID251


@contextmanager
def deployed(environment: Mapping[str, str], single: str) -> Iterator[str]:
    """The URL that HEARLINE_TEST_DEPLOYMENT (``sentinel``, ``cluster``) asks for; ``single`` when it asks for none."""
    if (kind := environment.get("HEARLINE_TEST_DEPLOYMENT")) is None:
        yield single
        return
    with DEPLOYMENTS[kind]() as deployment:
        yield deployment.url
