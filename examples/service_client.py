"""A clinic that uses the Stopwise service over HTTP for 400 patients.

The example starts ``stopwise serve`` in a separate process, on a free port and with a temporary
store. Then it uses the service as any client would:

- it creates a cascade of three tests;
- it runs a round for each patient: gets a decision, runs the tests, and reports their outputs;
- it examines a random tenth of the patients and reports the correct answer as a label;
- it requests the reasons of two decisions, and prints the savings.

For the other patients the service only compares the tests with each other.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import stopwise as sw

NAME = "triage"
CASCADE = sw.Cascade(costs=[0.02, 0.10, 0.20], names=["history", "glucose", "insulin"])
# Each test says "ill" if w·(risk, bmi) + b > 0, with some noise: (w for risk, w for bmi, b, noise).
TESTS = {
    "history": (1.0, 0.0, -0.20, 0.05),
    "glucose": (1.0, 0.6, -0.20, 0.05),
    "insulin": (1.0, 1.0, -0.30, 0.02),
}
TRUTH = (1.0, 1.0, -0.30)
EXAMINED = 0.1  # share of patients with a label
Patient = tuple[float, float]


@contextmanager
def running_service() -> Iterator[str]:
    """Start a service and yield its address; stop it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(str(sw.__file__)).parents[1]), os.environ.get("PYTHONPATH", "")]
        service = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "stopwise",
                "serve",
                "--port=0",
                "--log-level=warning",
                f"--store={Path(folder, 'clinic.db')}",
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        assert service.stdout is not None
        try:
            line = service.stdout.readline()  # "Listening on http://127.0.0.1:41233 (…"
            urls = [word for word in line.split() if word.startswith("http://")]
            if not urls:
                raise RuntimeError(f"the service did not start: {line or 'see above'}")
            yield urls[0]
        finally:
            service.terminate()
            service.wait(60)
            service.stdout.close()


def tests(rng: np.random.Generator, calls: Counter[str]) -> list[Callable[[Patient], str]]:
    """Return simulated arms; in production they would call models or laboratories."""

    def new_test(name: str) -> Callable[[Patient], str]:
        risk_weight, bmi_weight, threshold, noise = TESTS[name]

        def test(patient: Patient) -> str:
            calls[name] += 1
            risk, bmi = patient
            score = risk_weight * risk + bmi_weight * bmi + threshold + rng.normal(0, noise)
            return "ill" if score > 0 else "well"

        return test

    return [new_test(name) for name in TESTS]


def truth(patient: Patient) -> str:
    risk, bmi = patient
    return "ill" if TRUTH[0] * risk + TRUTH[1] * bmi + TRUTH[2] > 0 else "well"


def run_clinic(client: sw.Client, patients: int, seed: int) -> dict[str, Any]:
    """Run a round for each patient; return the results."""
    rng = np.random.default_rng(seed)
    client.create(
        NAME, CASCADE, context=["risk", "bmi"], features=sw.Polynomial(degree=2), forced_rounds=50
    )
    calls: Counter[str] = Counter()
    arms = tests(rng, calls)
    wrong = 0
    for _ in range(patients):
        patient = (float(rng.uniform(-1, 1)), float(rng.uniform(-1, 1)))
        done = client.run(NAME, patient, arms)
        wrong += done.answer != truth(patient)
        if rng.random() < EXAMINED:
            client.label(NAME, done.id, truth(patient))
    view = client.cascade(NAME)
    assert view.mean_cost is not None
    return {
        "patients": view.rounds,
        "learned": view.learned,
        "examined": view.labelled,
        "calls": dict(calls),
        "stops": dict(zip(CASCADE.names, view.stops, strict=True)),
        "cost": view.mean_cost,
        "saved": 1 - view.mean_cost / CASCADE.cost("insulin"),
        "errors": wrong / patients,
        "plain": client.open(NAME, {"risk": 0.9, "bmi": 0.8}, evidence=True),
        "close": client.open(NAME, {"risk": 0.3, "bmi": -0.1}, evidence=True),
    }


def report(figures: dict[str, Any]) -> None:
    print(f"\n{figures['patients']} patients, {figures['examined']} of them examined")
    print(f"{'test':<10}{'cost':>6}{'stopped here':>14}{'run':>6}")
    for name, cost in zip(CASCADE.names, CASCADE.costs, strict=True):
        runs = figures["calls"].get(name, 0)
        print(f"{name:<10}{cost:>6.2f}{figures['stops'][name]:>14}{runs:>6}")
    everything = CASCADE.cost("insulin")
    print(f"\ncost per patient   {figures['cost']:.3f} (all tests: {everything:.3f})")
    print(f"saved              {figures['saved']:.0%}, including exploration")
    print(f"wrong              {figures['errors']:.1%} of patients")
    print("\nCurrent decisions and their reasons:")
    for case, opened in (("clearly ill", figures["plain"]), ("borderline", figures["close"])):
        print(f"  {case}: {opened.reason}")


def main(patients: int = 400, seed: int = 0) -> dict[str, Any]:
    with running_service() as url, sw.Client(url) as client:
        print(f"Service at {url}", flush=True)
        if not client.ready(wait=60):
            raise RuntimeError("the service was not ready within a minute")
        figures = run_clinic(client, patients, seed)
        report(figures)
        state = client.state()
        print(f"\nThe log has {state.position} events; hash of the state: {state.hash[:16]}…")
        return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--patients", type=int, default=400, help="number of patients (default: 400)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the patients and the tests (default: 0)"
    )
    options = parser.parse_args()
    if options.patients < 60:
        parser.error(
            f"--patients must be at least 60, got {options.patients}: the first 50 are exploration"
        )
    main(options.patients, options.seed)
