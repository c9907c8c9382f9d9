"""``python -m tests.fuzz TARGET --seconds N``: coverage-guided fuzzing of one target, from its seeds.

Needs atheris (the extra ``fuzz``). Exit status 0: nothing was found; else the input that broke it is in a file whose
name is printed last. ``--replay FILE`` runs one such input.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

MODULES = ("api", "sessions", "wsproto", "tests.fuzz.targets")
"""What is watched for new paths."""
LONGEST_INPUT = 4_096


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz one target.")
    parser.add_argument("target", choices=["wire", "sniff", "frames", "keys", "access"])
    parser.add_argument("--seconds", type=int, default=60, help="how long (default: 60)")
    parser.add_argument("--corpus", type=Path, help="folder that keeps what reached new code")
    parser.add_argument("--replay", type=Path, help="run this input once, without atheris")
    options = parser.parse_args()
    if options.replay is not None:
        importlib.import_module("tests.fuzz.targets").TARGETS[options.target](options.replay.read_bytes())
        return
    try:
        atheris = importlib.import_module("atheris")
    except ModuleNotFoundError:
        sys.exit("this needs the package atheris: pip install atheris")
    with atheris.instrument_imports(include=list(MODULES)):
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
        seeds = importlib.import_module("tests.fuzz.seeds").SEEDS
    with tempfile.TemporaryDirectory(prefix="hearline-fuzz-") as scratch:
        corpus = options.corpus or Path(scratch)
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds[options.target]()):
            (corpus / f"seed-{number}").write_bytes(seed)
        bounds = [f"-max_total_time={options.seconds}", f"-max_len={LONGEST_INPUT}", "-rss_limit_mb=2048"]
        arguments = [sys.argv[0], *bounds, "-timeout=10", "-print_final_stats=1", str(corpus)]
        atheris.Setup(arguments, targets[options.target])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
