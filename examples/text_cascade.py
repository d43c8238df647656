"""Support tickets, from a keyword rule to a linear model to a larger one.

A ticket belongs to billing, outage or account. Three arms classify it, each more expensive than the
one before:

    keywords   0.005   looks for a few words
    words      0.08    logistic regression on the words of the ticket
    phrases    0.25    a neural network on its words and phrases

For most tickets the keywords are enough. Some contain no keyword and need the other words. Some
mention one topic but mean another ("this is not about the invoice but about my login") and need
phrases. The policy sees neither the kind nor the topic of a ticket, only a few cheap counts and
whether the arms that ran agree. Costs are in units of one error.
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

# ------------------------------------------------------------------------- a generator of tickets

KEYWORDS = {
    "account": ("password", "login", "username"),
    "billing": ("invoice", "refund", "charged"),
    "outage": ("down", "offline", "error"),
}
COMPLAINTS = {  # contain a keyword
    "account": ("i forgot my password", "my login is refused", "please change my username"),
    "billing": ("the invoice is wrong", "i want a refund", "you charged me twice"),
    "outage": ("the site is down", "your service is offline", "i get an error on every page"),
}
HINTS = {  # contain no keyword
    "account": ("i cannot get into my profile", "who can see my data", "please delete me"),
    "billing": ("the price has doubled", "money left my card", "this month cost too much"),
    "outage": ("nothing loads any more", "the page stays white", "it is very slow today"),
}
OPENINGS = ("hello", "hi there", "good morning", "dear team", "hey", "to whom it may concern")
CLOSINGS = ("thanks", "please help", "regards", "i am waiting", "can you look at it", "")


class Ticket(NamedTuple):
    text: str
    topic: str  # the truth, which neither arms nor policies see


def write_ticket(random: np.random.Generator) -> Ticket:
    """Write a plain ticket (60 %), one without a keyword (20 %), or one with a contrast (20 %)."""
    this, that = random.permutation(TOPICS)[:2]
    kind = random.random()
    if kind < 0.6:
        matter = random.choice(COMPLAINTS[this])
    elif kind < 0.8:
        matter = random.choice(HINTS[this])
    else:  # only the order of the words reveals the topic
        keyword, other = random.choice(KEYWORDS[this]), random.choice(KEYWORDS[that])
        matter = f"this is not about {other} but about {keyword}"
        if random.random() < 0.5:
            matter = f"this is about {keyword} but not about {other}"
    phrases = (random.choice(OPENINGS), matter, random.choice(CLOSINGS))
    words = [with_typo(word, random) for phrase in phrases for word in phrase.split()]
    return Ticket(" ".join(words), str(this))


def with_typo(word: str, random: np.random.Generator) -> str:
    """Return the word, with a missing letter in 2 % of cases."""
    if len(word) < 2 or random.random() > 0.02:
        return word
    i = int(random.integers(len(word)))
    return word[:i] + word[i + 1 :]


def tickets(n: int, seed: int) -> list[Ticket]:
    random = np.random.default_rng(seed)
    return [write_ticket(random) for _ in range(n)]


# ------------------------------------------------------------------------- the arms, the context


def topics_named(text: str) -> list[str]:
    """Return the topics with a keyword in the text."""
    words = set(text.split())
    return [topic for topic in TOPICS if words & set(KEYWORDS[topic])]


def keyword_rule(text: str) -> str:
    return (topics_named(text) or ["account"])[0]


def trained(examples: Sequence[Ticket]) -> list[Any]:
    """Return the three arms; two are trained on labelled tickets."""
    texts, topics = [t.text for t in examples], [t.topic for t in examples]
    words = make_pipeline(CountVectorizer(), LogisticRegression(C=10, max_iter=1000))
    phrases = make_pipeline(
        CountVectorizer(ngram_range=(1, 3), min_df=3),
        MLPClassifier(hidden_layer_sizes=(32,), early_stopping=True, random_state=0),
    )
    return [keyword_rule, words.fit(texts, topics), phrases.fit(texts, topics)]


def context(text: str) -> list[float]:
    """Return cheap counts, each scaled to [−1, 1]."""
    n_topics, words = len(topics_named(text)), text.split()
    contrast = any(word in ("but", "not", "no") for word in words)
    return [min(n_topics, 2) - 1, float(contrast), min(len(words), 30) / 15 - 1]


# ---------------------------------------------------------------------------------- the comparison


def main(rounds: int = 4000, seed: int = 0, *, quiet: bool = False) -> dict[str, dict[str, float]]:
    """Run the cascade; return error rate, cost, total loss and share of deep stops by policy."""
    write = (lambda *_: None) if quiet else print
    stages = trained(tickets(1500, seed + 1000))
    live = tickets(rounds, seed)

    policy = sw.USSLaplace(CASCADE, context_dim=3)
    runner = sw.Runner(policy, stages, context=context)
    played = list(runner.run_many(ticket.text for ticket in live))

    # the answers of every arm, for comparison; they are not available in production
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

    write("\nAnswers of the arms that now run:")
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
    parser.add_argument(
        "--rounds", type=int, default=4000, metavar="N", help="number of tickets (default: 4000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the tickets (default: 0)")
    options = parser.parse_args()
    main(options.rounds, options.seed)
