"""``python -m tests.sabotage [--only NAME] [--json] [--page]``: try the mutations, one after the other."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from queueing.clock import SystemClock
from tests.sabotage.runner import attempt, copy_tree, page
from tests.sabotage.table import SABOTAGES


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sabotage", description=__doc__)
    names = [sabotage.name for sabotage in SABOTAGES]
    parser.add_argument("--only", metavar="NAME", action="append", choices=names, help="only this one; repeatable")
    parser.add_argument("--json", action="store_true", help="one JSON object per mutation")
    parser.add_argument("--page", action="store_true", help="print docs/sabotage.md and try nothing")
    given = parser.parse_args(arguments)
    if given.page:
        sys.stdout.write(page(SABOTAGES))
        return 0
    chosen = [sabotage for sabotage in SABOTAGES if not given.only or sabotage.name in given.only]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="hearline-sabotage-") as folder:
        copy_tree(Path(folder))
        for sabotage in chosen:
            verdict = attempt(sabotage, Path(folder), SystemClock())
            survived += bool(verdict.problem)
            if given.json:
                line = json.dumps(asdict(verdict))
            else:
                line = f"{'SURVIVED' if verdict.problem else 'caught':8} {verdict.seconds:5.1f} s  {verdict.name}"
                line += f": {verdict.problem or verdict.said}"
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    if not given.json:
        sys.stdout.write(f"{len(chosen) - survived} of {len(chosen)} caught\n")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
