"""Run the benchmarks: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import json
from importlib import import_module

from benchmarks import report

# Names and modules. Each module has a `run`; it is loaded when it is run, because some need numba.
BENCHMARKS = {
    "rounds": "rounds",
    "exactness": "exactness",
    "growth": "growth",
    "wide": "wide",
    "import": "importing",
    "radius": "radius",
    "worlds": "worlds",
    "arms": "arms",
    "replay": "replay",
    "tenants": "tenants",
    "service": "service",
    "recovery": "recovery",
    "snapshots": "service_snapshot",
    "replicas": "service_replicas",
    "level_off": "level_off",
    "endless": "endless",
    "transitive": "transitive",
    "revealed": "revealed",
    "intervals": "intervals",
    "horizon": "horizon",
}
# too long to run with all others
ONLY_BY_NAME = {
    "endless",
    "snapshots",
    "replicas",
    "level_off",
    "tenants",
    "transitive",
    "intervals",
    "horizon",
}

DESCRIPTION = "Measure what a round of Stopwise costs, beside its peers."

EPILOG = """\
what is measured
  rounds   one decide + learn at K=5, d'=10: Stopwise (Python API and compiled loop), a compiled
           reference that re-solves every regression in every round, and other libraries' bandits;
           also whether Stopwise decided exactly as the reference did
  exactness  the same decisions by solving every round, in two ways and at three depths of play
  growth   µs a round and bytes a round over a run of 1,000,000 rounds: both should stay flat;
           and the ratio to the numpy LinUCB in each part of the run
  wide     the same race at K=3, d'=45 and d'=91, and how many times as long the reference takes;
           CPU seconds of the first 300 rounds with 50 to 768 features
  import   CPU seconds and peak memory of `import stopwise`, and of an import with a first round,
           in fresh interpreters
  replay   a Parquet log of 1,000,000 rounds from file to numbers, on one core, and peak memory;
           `python -m benchmarks.replay 10000000` for a longer one
  tenants  10,000,000 rounds of 100 tenants in threads and on Dask workers, one of them killed: the
           same bytes, and two cores against one
  service  decisions over HTTP on one core, durable, beside empty routes of the same server;
           latency at half the load; batches
  recovery reading a log of 1,000,000 events back, with and without a snapshot
  snapshots  the longest wait of a request while a service with 1,000,000 and 10,000,000 rounds
           writes a snapshot
  replicas one replica and two on one PostgreSQL (a new one, or STOPWISE_BENCH_POSTGRES=address)
  level_off  disk and memory of a service over 200,000 rounds, compacted now and then;
           --policy '{"kind": "uss-pd"}' gives it the settings of its policy
  endless  time and memory of 100,000,000 rounds with a half-life of 100,000; only by its name
  transitive  not a speed: 500,000 random transitive decisions, K = 4 to 7, against exact solves;
           wrong stops, and the most passes over history that one decision took; only by its name
  intervals  not a speed: how often the intervals of shadow reports and diagnoses hold what new
           requests show, K = 2 to 5, 100 to 1,000 rounds; only by its name
  radius   not a speed: what each σ loses and how often it locks a run in, simulated without
           labels on the paper's instances and on one constant context
  revealed not a speed: where stages reveal the context, the bias of p̂ before a value is revealed
           and the loss, in worlds whose models are right and wrong
  worlds   not a speed: regret and lock-in of policies beside uss-pd, in 20 realizable worlds
  horizon  not a speed: the growth of regret of the reproduction's instances up to 100,000 rounds;
           only by its name
  arms     not a speed: the search for the arms of the paper's Tables 1 and 2

how to read it
  Times are CPU time of this process, the best of three runs, on one thread. Compare rows of one
  run, never numbers of two machines: the ratio to the plain numpy LinUCB is what carries over.
  Only the references compile, by numba, before their clock starts: Stopwise does not use numba.
  A peer that is not installed is reported so; `pip install numba vowpalwabbit river mabwiser
  scikit-learn` brings the references and all peers.

examples
  python -m benchmarks --quick               everything, small, to see that it works
  python -m benchmarks --only rounds         the comparison with the peers
  python -m benchmarks --only growth         the long run

Tables go to stdout, progress to stderr, and each result to benchmarks/results/<name>.json.
"""


def main() -> None:
    """Parse the command line and run what it asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds; shows that it works")
    parser.add_argument("--only", choices=BENCHMARKS, help="run one benchmark instead of all")
    parser.add_argument("--policy", type=json.loads, help="settings as JSON, for level_off")
    options = parser.parse_args()

    facts = report.machine()
    print(report.header(facts))
    usual = [name for name in BENCHMARKS if name not in ONLY_BY_NAME]
    for name in [options.only] if options.only else usual:
        more = {"policy": options.policy} if name == "level_off" else {}
        text, result = import_module(f"benchmarks.{BENCHMARKS[name]}").run(options.quick, **more)
        print(text, flush=True)
        report.write(name, facts, {"benchmark": name, "quick": options.quick, **result})


if __name__ == "__main__":
    main()
