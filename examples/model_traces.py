"""Write recorded calls of two language models as input for `stopwise import` and `diagnose`.

    python examples/model_traces.py
    stopwise import traces.jsonl --arms small,large --compare "choice:billing|outage|account" \
        --out calls.csv

2,000 simulated support tickets were sent to a small and a large model, as in an evaluation. The
calls are rows of LiteLLM's spend logs. The small model errs more often on long tickets than on
short ones; the large model rarely errs.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

TICKETS = 2_000
TOPICS = ("billing", "outage", "account")
PRICES = {"small": 0.0001, "large": 0.002}  # dollars per call
SENTENCE = "It has been like this since last week and I would like to know what to do. "


def main(path: str, seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    target = Path(path)
    with target.open("x", encoding="utf-8") as file:  # x: do not overwrite
        for ticket in range(TICKETS):
            topic = str(random.choice(TOPICS))
            n_sentences = int(random.integers(0, 12))
            prompt = f"Sort this ticket: my {topic} is wrong. " + SENTENCE * n_sentences
            error_rates = {"small": 0.01 + 0.002 * n_sentences**2, "large": 0.01}
            for model in PRICES:
                answer = topic
                if random.random() < error_rates[model]:
                    answer = str(random.choice([other for other in TOPICS if other != topic]))
                file.write(json.dumps(row(ticket, model, prompt, f"{answer.title()}.")) + "\n")
    print(f"Wrote {target}: {TICKETS:,} tickets, each with an answer of {' and '.join(PRICES)}.")
    return target


def row(ticket: int, model: str, prompt: str, answer: str) -> dict[str, Any]:
    """Return a call as LiteLLM stores it, without the columns that `stopwise import` ignores."""
    message = {"role": "assistant", "content": answer}
    return {
        "request_id": f"{model}-{ticket}",
        "session_id": f"ticket-{ticket}",  # shared by the calls for a case
        "model": model,
        "spend": PRICES[model],
        "startTime": f"2026-09-01T{ticket // 3600:02}:{ticket // 60 % 60:02}:{ticket % 60:02}Z",
        "messages": json.dumps([{"role": "user", "content": prompt}]),
        "response": json.dumps({"choices": [{"message": message}]}),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "path", nargs="?", default="traces.jsonl", help="file to create (default: traces.jsonl)"
    )
    options = parser.parse_args()
    try:
        main(options.path)
    except FileExistsError:
        parser.error(f"{options.path} exists; delete it or pass another path")
