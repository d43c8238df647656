"""Write a log to try `stopwise diagnose` and `stopwise replay` on: 6,000 simulated patients.

    python examples/triage_log.py
    stopwise diagnose triage.csv --costs 0.01,0.06,0.15 --context age,bmi \
        --outputs history,glucose,insulin --label truth

Three tests of rising cost answer "ill" or "well". They err together on older and heavier patients,
each less often than the one before. Every tenth patient was examined, so the truth is known.
"""

import csv
import sys
from pathlib import Path

import numpy as np

PATIENTS = 6_000
ERRORS = {"history": 0.22, "glucose": 0.12, "insulin": 0.03}


def main(path: str = "triage.csv", seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    age, bmi = random.uniform(20, 80, PATIENTS), random.normal(27, 4, PATIENTS)
    hard = 1 / (1 + np.exp(-(age - 55) / 6 - (bmi - 27) / 5))  # how hard a case is, 0 to 1
    ill = random.random(PATIENTS) < 0.4
    says = {
        test: np.where(random.random(PATIENTS) < 2 * error * hard, ~ill, ill)
        for test, error in ERRORS.items()
    }
    target = Path(path)
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "bmi", *says, "truth"])
        for t in range(PATIENTS):
            answers = [answer(says[test][t]) for test in says]
            truth = answer(ill[t]) if t % 10 == 0 else ""
            writer.writerow([f"{age[t]:.0f}", f"{bmi[t]:.1f}", *answers, truth])
    print(f"Wrote {target}: {PATIENTS:,} patients.")
    return target


def answer(ill: bool) -> str:
    return "ill" if ill else "well"


if __name__ == "__main__":
    log = main(sys.argv[1] if len(sys.argv) > 1 else "triage.csv")
    print(
        f"Next: stopwise diagnose {log} --costs 0.01,0.06,0.15 --context age,bmi "
        "--outputs history,glucose,insulin --label truth"
    )
