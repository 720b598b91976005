"""`python -m local_stack.demo_traffic`, behind `make demo-traffic`."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from gpu_workers.config import read_env_file
from local_stack.bootstrap import ROOT
from local_stack.demo_traffic.run import Run
from local_stack.demo_traffic.workers import SimulatedWorker
from local_stack.services import ServiceError

DESCRIPTION = "Varied traffic of the demo tenants on what `make up` has started."


def main(arguments: Sequence[str]) -> int:
    """Run it on what `make up` has started; return the exit status."""
    parser = argparse.ArgumentParser(prog="make demo-traffic", description=DESCRIPTION)
    parser.add_argument("--minutes", type=_minutes, default=60.0, help="default: 60")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn; default: 1")
    asked = parser.parse_args(arguments)
    var = ROOT / "var"
    try:
        demo_env = read_env_file(var / "demo.env")
    except OSError:
        return _complain("There is no demo to bring traffic to: run `make up` first.")

    def start_worker(name: str, settings: Mapping[str, str]) -> SimulatedWorker:
        return SimulatedWorker(ROOT, var, name, settings, {**os.environ, **demo_env})

    run = Run(var, demo_env, start_worker, minutes=asked.minutes, seed=asked.seed, say=_say)
    url = demo_env["PENSTOCK_URL"]
    _say(f"{asked.minutes:g} minutes of traffic. Watch {url}/t/ and {url}/admin/.")
    try:
        run.play()
    except ServiceError as problem:
        return _complain(str(problem))
    except KeyboardInterrupt:
        _say(f"Interrupted: {run.summary()}.")
        return 130
    _say(f"Done: {run.summary()}.")
    return 0


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0.1 <= minutes <= 24 * 60:
        raise argparse.ArgumentTypeError("from 0.1 minutes to a day (1440)")
    return minutes


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _complain(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
