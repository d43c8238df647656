"""Write recorded calls of two language models, to try `stopwise import` and `diagnose` on.

    python examples/model_traces.py
    stopwise import traces.jsonl --arms small,large --compare "choice:billing|outage|account" \
        --out calls.csv

2,000 simulated support tickets were sent to a small and to a large model, as in an evaluation. The
calls are rows of LiteLLM's spend logs. The small model errs on long tickets more often than on
short ones; the large model hardly ever errs.
"""

import json
import sys
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
    with target.open("w", encoding="utf-8") as file:
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
    """Return one call as LiteLLM stores it, without the columns that `stopwise import` ignores."""
    message = {"role": "assistant", "content": answer}
    return {
        "request_id": f"{model}-{ticket}",
        "session_id": f"ticket-{ticket}",  # the calls for one case share it
        "model": model,
        "spend": PRICES[model],
        "startTime": f"2026-09-01T{ticket // 3600:02}:{ticket // 60 % 60:02}:{ticket % 60:02}Z",
        "messages": json.dumps([{"role": "user", "content": prompt}]),
        "response": json.dumps({"choices": [{"message": message}]}),
    }


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "traces.jsonl")
