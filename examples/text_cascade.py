"""Support tickets, from a keyword rule to a linear model to a larger one.

A ticket belongs to billing, outage or account. Three arms classify it, each more expensive than the
one before:

    keywords   0.005   looks for a few words
    words      0.08    logistic regression on the words of the ticket
    phrases    0.25    a neural network on its words and phrases

For most tickets the keywords are enough. Some use no keyword; there the other words decide. Some
mention one thing and mean another ("this is not about the invoice but about my login"); they need
phrases. The policy never learns which is which, or what a ticket was about. It sees a few numbers
that cost nothing, and whether the arms that ran agree. Costs are in units of one error.
"""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

import stopwise as sw

CASCADE = sw.Cascade(costs=[0.005, 0.08, 0.25], names=["keywords", "words", "phrases"])
TOPICS = ("account", "billing", "outage")

# -------------------------------------------------------------------- a little grammar of tickets

KEYWORDS = {
    "account": ("password", "login", "username"),
    "billing": ("invoice", "refund", "charged"),
    "outage": ("down", "offline", "error"),
}
COMPLAINTS = {  # with a keyword
    "account": ("i forgot my password", "my login is refused", "please change my username"),
    "billing": ("the invoice is wrong", "i want a refund", "you charged me twice"),
    "outage": ("the site is down", "your service is offline", "i get an error on every page"),
}
HINTS = {  # without
    "account": ("i cannot get into my profile", "who can see my data", "please delete me"),
    "billing": ("the price has doubled", "money left my card", "this month cost too much"),
    "outage": ("nothing loads any more", "the page stays white", "it is very slow today"),
}
OPENINGS = ("hello", "hi there", "good morning", "dear team", "hey", "to whom it may concern")
CLOSINGS = ("thanks", "please help", "regards", "i am waiting", "can you look at it", "")


class Ticket(NamedTuple):
    text: str
    topic: str  # the truth; no arm and no policy sees it


def write_ticket(random: np.random.Generator) -> Ticket:
    """Write a ticket: plain (60 %), without a keyword (20 %), or about this and not about that."""
    this, that = random.permutation(TOPICS)[:2]
    kind = random.random()
    if kind < 0.6:
        matter = random.choice(COMPLAINTS[this])
    elif kind < 0.8:
        matter = random.choice(HINTS[this])
    else:  # the same words for either topic: only their order differs
        meant, ruled_out = random.choice(KEYWORDS[this]), random.choice(KEYWORDS[that])
        matter = f"this is not about {ruled_out} but about {meant}"
        if random.random() < 0.5:
            matter = f"this is about {meant} but not about {ruled_out}"
    parts = (random.choice(OPENINGS), matter, random.choice(CLOSINGS))
    words = [mistyped(word, random) for part in parts for word in part.split()]
    return Ticket(" ".join(words), str(this))


def mistyped(word: str, random: np.random.Generator) -> str:
    """Return the word, in 2 % of cases without one of its letters."""
    if len(word) < 2 or random.random() > 0.02:
        return word
    place = int(random.integers(len(word)))
    return word[:place] + word[place + 1 :]


def tickets(n: int, seed: int) -> list[Ticket]:
    random = np.random.default_rng(seed)
    return [write_ticket(random) for _ in range(n)]


# ------------------------------------------------------------------------- the arms, the context


def topics_named(text: str) -> list[str]:
    """Return the topics of which a keyword occurs."""
    words = set(text.split())
    return [topic for topic in TOPICS if words & set(KEYWORDS[topic])]


def keyword_rule(text: str) -> str:
    return (topics_named(text) or ["account"])[0]


def trained(examples: Sequence[Ticket]) -> list[Any]:
    """Return the three arms; two have learned from past tickets that somebody sorted by hand."""
    texts, topics = [t.text for t in examples], [t.topic for t in examples]
    words = make_pipeline(CountVectorizer(), LogisticRegression(C=10, max_iter=1000))
    phrases = make_pipeline(
        CountVectorizer(ngram_range=(1, 3), min_df=3),
        MLPClassifier(hidden_layer_sizes=(32,), early_stopping=True, random_state=0),
    )
    return [keyword_rule, words.fit(texts, topics), phrases.fit(texts, topics)]


def context(text: str) -> list[float]:
    """Return what can be counted for nothing, each within [−1, 1]."""
    named, words = len(topics_named(text)), text.split()
    contrast = any(word in ("but", "not", "no") for word in words)
    return [min(named, 2) - 1, float(contrast), min(len(words), 30) / 15 - 1]


# ---------------------------------------------------------------------------------- the comparison


def main(rounds: int = 4000, seed: int = 0, *, quiet: bool = False) -> dict[str, dict[str, float]]:
    """Run the cascade; return, by policy, its error rate, cost, total loss and shares of depth."""
    write = (lambda *_: None) if quiet else print
    stages = trained(tickets(1500, seed + 1000))
    live = tickets(rounds, seed)

    policy = sw.USSLaplace(CASCADE, context_dim=3)
    runner = sw.Runner(policy, stages, context=context)
    played = list(runner.run_many(ticket.text for ticket in live))

    # the answers of every arm, to compare with; a live system never sees this
    texts = [ticket.text for ticket in live]
    full = [[keyword_rule(text) for text in texts], *(arm.predict(texts) for arm in stages[1:])]
    truth = np.array([ticket.topic for ticket in live])
    wrong = np.array([np.asarray(answers) != truth for answers in full])

    stops = {"Stopwise": np.array([done.stop for done in played])}
    stops |= {f"always {name}": np.full(rounds, arm) for arm, name in enumerate(CASCADE.names)}
    results: dict[str, dict[str, float]] = {}
    write(f"{CASCADE}, {rounds} tickets\n")
    write(f"{'':<17}{'error':>8}{'cost':>8}{'total':>8}   stopped at {'/'.join(CASCADE.names)}")
    for name, stop in stops.items():
        error = float(wrong[stop, np.arange(rounds)].mean())
        cost = float(CASCADE.cumulative[stop].mean())
        depth = np.bincount(stop, minlength=3) / rounds
        results[name] = {"error": error, "cost": cost, "total": error + cost, "deepest": depth[2]}
        shares = "  ".join(f"{share:4.0%}" for share in depth)
        write(f"{name:<17}{error:>8.3f}{cost:>8.3f}{error + cost:>8.3f}   {shares}")

    write("\nWhat it does now, and the answers of the arms:")
    for text in (
        "hello the invoice is wrong thanks",
        "hey the page stays white please help",
        "hi there this is not about login but about refund",
    ):
        done = runner.run(text)
        write(f"  {text!r}\n    → {' → '.join(done.outputs)}")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4000, metavar="N", help="tickets (4000)")
    parser.add_argument("--seed", type=int, default=0, help="of the tickets (0)")
    options = parser.parse_args()
    main(options.rounds, options.seed)
