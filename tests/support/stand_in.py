"""Small stand-ins for the service's processes: ``python stand_in.py ROLE``. Standard library alone.

web          answers /ready and /health with 200 (503 with a reason until the file STAND_IN_HOLD is gone);
             drains until somebody writes into the FIFO STAND_IN_DRAIN, where that is set
worker       runs until SIGTERM, says so, exits 0
stubborn     ignores SIGTERM
crash        says "boom" and exits 7 at once
settings     says what is wrong among log lines and exits 2, as for wrong settings
family       starts a child that ignores SIGTERM, then is a worker
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ENVIRONMENT = (
    "REDIS_URL",
    "HEARLINE_HOST",
    "HEARLINE_PORT",
    "PROMETHEUS_MULTIPROC_DIR",
    "HONCHO_PROCESS_NAME",
    "PASSED_ON",
)


class Handler(BaseHTTPRequestHandler):
    """Ready, or the reason why not."""

    def do_GET(self) -> None:
        hold = os.environ.get("STAND_IN_HOLD")  # noqa: TID251
        status, body = (
            (503, {"reason": "no worker has loaded its model"}) if hold and os.path.exists(hold) else (200, {})
        )
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main(role: str) -> None:
    name = os.environ.get("HONCHO_PROCESS_NAME", role)  # noqa: TID251
    facts = {key: os.environ[key] for key in ENVIRONMENT if key in os.environ}  # noqa: TID251
    stop = threading.Event()

    def on_sigterm(_number: int, _frame: object) -> None:
        say(f"{name} got SIGTERM")
        stop.set()

    if role == "crash":
        say("boom")
        sys.exit(7)
    if role == "settings":
        say(json.dumps({"program": "worker", "event": "redis_found", "queue": "main", "level": "info"}))
        say("HEARLINE_FLAVOUR='mint': no such flavour")
        say(json.dumps({"program": "worker", "status": 2, "event": "worker_ends", "level": "info"}))
        sys.exit(2)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if role == "stubborn" else on_sigterm)
    if role == "family":
        subprocess.Popen([sys.executable, __file__, "stubborn"])
    if role == "web":
        address = ("127.0.0.1", int(os.environ["HEARLINE_PORT"]))  # noqa: TID251
        threading.Thread(target=ThreadingHTTPServer(address, Handler).serve_forever, daemon=True).start()
    say(f"{name} is up, pid {os.getpid()}, {json.dumps(facts)}")
    stop.wait()
    if role == "web" and (drain := os.environ.get("STAND_IN_DRAIN")):  # noqa: TID251
        with open(drain) as writers:
            writers.read()
    say(f"{name} has drained")


if __name__ == "__main__":
    main(sys.argv[1])
