"""Write a log of 6,000 simulated patients as input for `stopwise diagnose` and `stopwise replay`.

    python examples/triage_log.py
    stopwise diagnose triage.csv --costs 0.01,0.06,0.15 --context age,bmi \
        --outputs history,glucose,insulin --label truth

Three tests of increasing cost answer "ill" or "well". They err on older and heavier patients, each
less often than the one before. Every tenth patient was examined and has a label.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

PATIENTS = 6_000
ERRORS = {"history": 0.22, "glucose": 0.12, "insulin": 0.03}


def main(path: str = "triage.csv", seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    age, bmi = random.uniform(20, 80, PATIENTS), random.normal(27, 4, PATIENTS)
    hard = 1 / (1 + np.exp(-(age - 55) / 6 - (bmi - 27) / 5))  # difficulty, 0 to 1
    ill = random.random(PATIENTS) < 0.4
    answers = {
        test: np.where(random.random(PATIENTS) < 2 * error * hard, ~ill, ill)
        for test, error in ERRORS.items()
    }
    target = Path(path)
    with target.open("x", newline="", encoding="utf-8") as file:  # x: do not overwrite
        writer = csv.writer(file)
        writer.writerow(["age", "bmi", *answers, "truth"])
        for t in range(PATIENTS):
            row = [text(answers[test][t]) for test in answers]
            truth = text(ill[t]) if t % 10 == 0 else ""
            writer.writerow([f"{age[t]:.0f}", f"{bmi[t]:.1f}", *row, truth])
    print(f"Wrote {target}: {PATIENTS:,} patients.")
    return target


def text(ill: bool) -> str:
    return "ill" if ill else "well"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "path", nargs="?", default="triage.csv", help="file to create (default: triage.csv)"
    )
    options = parser.parse_args()
    try:
        log = main(options.path)
    except FileExistsError:
        parser.error(f"{options.path} exists; delete it or pass another path")
    print(
        f"Next: stopwise diagnose {log} --costs 0.01,0.06,0.15 --context age,bmi "
        "--outputs history,glucose,insulin --label truth"
    )
