"""Run the benchmarks: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import json
from importlib import import_module

from benchmarks import report

# Module of each benchmark. Modules are imported when they run, because some need numba.
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
# These take too long to run by default.
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

DESCRIPTION = "Measure what a round of Stopwise costs, compared with other libraries."

EPILOG = """\
benchmarks
  rounds   one decide + learn at K=5, d'=10: Stopwise (Python API and compiled loop), a compiled
           reference that solves every regression in every round, and bandits of other libraries;
           also whether Stopwise's decisions equal those of the reference
  exactness  the same decisions by solving every round, in two implementations, at three depths
  growth   µs and bytes per round over 1,000,000 rounds, which should stay level, and the ratio to
           the numpy LinUCB in each part of the run
  wide     the same comparison at K=3, d'=45 and d'=91; CPU seconds of the first 300 rounds with 50
           to 768 features
  import   CPU seconds and peak memory of `import stopwise`, alone and with a first round, in new
           interpreters
  replay   a Parquet log of 1,000,000 rounds on one core, with peak memory;
           `python -m benchmarks.replay 10000000` for a longer log
  tenants  10,000,000 rounds of 100 tenants in threads and on Dask workers, one of them killed:
           whether the bytes are equal, and two cores against one
  service  durable decisions over HTTP on one core, compared with empty routes of the same server;
           latency at half the load; batches
  recovery reading a log of 1,000,000 events, with and without a snapshot
  snapshots  the longest latency while a service with 1,000,000 and 10,000,000 rounds writes a
           snapshot
  replicas one and two replicas on one PostgreSQL (a new one, or STOPWISE_BENCH_POSTGRES=URL)
  level_off  disk and memory of a service over 200,000 rounds with regular compaction;
           --policy '{"kind": "uss-pd"}' selects another policy
  endless  time and memory of 100,000,000 rounds with a half-life of 100,000
  transitive  (not speed) 500,000 random transitive decisions, K = 4 to 7, against exact solves:
           wrong stops, and the most passes over history that one decision needed
  intervals  (not speed) coverage of the intervals of shadow reports and diagnoses for new
           requests, K = 2 to 5, 100 to 1,000 rounds
  radius   (not speed) the loss of each σ and how often it locks a run in, simulated without labels
           on the paper's instances and on one constant context
  revealed (not speed) if stages reveal context: the bias of p̂ before a value is revealed, and the
           loss, with correct and with wrong models
  worlds   (not speed) regret and lock-in of policies relative to uss-pd, in 20 realizable worlds
  horizon  (not speed) growth of regret on the reproduction's instances up to 100,000 rounds
  arms     (not speed) the search for the arms of the paper's Tables 1 and 2

  Only with --only: endless, horizon, intervals, level_off, replicas, snapshots, tenants,
  transitive.

how to read the results
  Times are CPU times of this process, the best of three runs, on one thread. Compare rows of the
  same run, never of two machines: only the ratio to the plain numpy LinUCB carries over. The
  references are compiled by numba before their clock starts; Stopwise does not use numba. Missing
  libraries are reported; install all with `pip install numba vowpalwabbit river mabwiser
  scikit-learn`.

examples
  python -m benchmarks --quick               everything, small, to check that it works
  python -m benchmarks --only rounds         the comparison with other libraries
  python -m benchmarks --only growth         the long run

Tables go to stdout, progress to stderr, and each result to benchmarks/results/<name>.json.
"""


def main() -> None:
    """Parse the command line and run benchmarks."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, to check that it works")
    parser.add_argument("--only", choices=BENCHMARKS, help="run only this benchmark")
    parser.add_argument("--policy", type=json.loads, help="policy of level_off, as JSON")
    options = parser.parse_args()

    facts = report.machine()
    print(report.header(facts))
    default = [name for name in BENCHMARKS if name not in ONLY_BY_NAME]
    for name in [options.only] if options.only else default:
        arguments = {"policy": options.policy} if name == "level_off" else {}
        text, result = import_module(f"benchmarks.{BENCHMARKS[name]}").run(
            options.quick, **arguments
        )
        print(text, flush=True)
        report.write(name, facts, {"benchmark": name, "quick": options.quick, **result})


if __name__ == "__main__":
    main()
