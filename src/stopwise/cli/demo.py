"""``stopwise demo``: a live demo of a medical cascade that learns where to stop."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console, Group

TESTS = ("history", "glucose", "insulin")
PRICES = (1, 8, 8)  # dollars per test
COLUMNS = (6, 7, 8)  # the number of leading columns of the PIMA table that each test uses
WRONG_ANSWER = 100  # dollars

CASES = 3000
FRAMES_PER_SECOND = 20
CASES_PER_LINE = 500  # if the output is not a terminal
CASES_PER_FRAME_AT_FULL_SPEED = 50
MAX_WIDTH = 100

BARS = " ▁▂▃▄▅▆▇█"
STOP_MARKS = ("▂", "▅", "█")
STOP_STYLES = ("green", "yellow", "red")

INTRODUCTION = f"""\
Does this patient have diabetes? Three tests predict the diagnosis, the
cheapest first. Stopwise decides how many to run. It only compares the
predictions and never sees the diagnosis. A wrong answer costs ${WRONG_ANSWER}.
"""
NEXT_STEPS = """\
Try it on your data:
  stopwise diagnose LOG --costs …   estimate the savings from a log
  stopwise import TRACES …          create such a log from model traces
  stopwise proxy --example          put Stopwise in front of language models
  sw.Runner(policy, stages)         run your own tests or models in Python
"""


class Averages(NamedTuple):
    """Averages per case for one strategy."""

    tests: float  # dollars
    wrong: float  # share of wrong answers
    total: float  # dollars, with WRONG_ANSWER for each wrong answer


class MedicalCascade:
    """Three diabetes classifiers, trained on half of the PIMA patients and run on the other half.

    The second half is repeated to make ``CASES`` cases.
    """

    def __init__(self, seed: int = 0) -> None:
        import numpy as np

        from stopwise.cascade import Cascade
        from stopwise.policies.uss_laplace import USSLaplace
        from stopwise.research.data import load_table
        from stopwise.research.environments.training import fit_logistic, predict_logistic

        _, table, diagnoses = load_table("pima")
        table = (table - table.mean(axis=0)) / table.std(axis=0)
        random = np.random.default_rng(seed)
        training, played = np.array_split(random.permutation(len(table)), 2)
        passes = [random.permutation(played) for _ in range(CASES // len(played) + 1)]
        self.patients = np.concatenate(passes)[:CASES]

        answers: list[np.ndarray] = []
        for n_columns in COLUMNS:
            weights = fit_logistic(table[training, :n_columns], diagnoses[training])[None]
            answers.append(predict_logistic(table[:, : weights.size - 1], weights) > 0.5)
        self.answers = np.hstack(answers)
        self.wrong = self.answers != (diagnoses == 1)[:, None]  # hidden from the policy
        self.contexts = table[:, : COLUMNS[0]]  # known before the first test
        self.price_up_to = np.cumsum(PRICES)

        cascade = Cascade.from_prices(PRICES, error_cost=WRONG_ANSWER, names=TESTS)
        self.policy = USSLaplace(cascade, context_dim=self.contexts.shape[1])
        self.stops: list[int] = []
        self.saved = [0]  # cumulative dollars, compared with running every test

    def play(self) -> Iterator[int]:
        """Play the cases one at a time; yield the number played so far."""
        totals = (self.price_up_to + WRONG_ANSWER * self.wrong).tolist()
        for count, patient in enumerate(self.patients.tolist(), 1):
            stop = self.policy.decide(self.contexts[patient]).stop
            self.policy.observe(self.contexts[patient], self.answers[patient, : stop + 1].tolist())
            self.stops.append(stop)
            self.saved.append(self.saved[-1] + totals[patient][-1] - totals[patient][stop])
            yield count

    def averages(self) -> dict[str, Averages]:
        """Return the averages so far, for Stopwise and for each fixed depth."""
        count = len(self.stops)
        strategies: dict[str, list[int]] = {"Stopwise": self.stops}
        for depth, test in enumerate(TESTS):
            strategies[f"always {test}"] = [depth] * count
        averages: dict[str, Averages] = {}
        for name, stops in strategies.items():
            tests = float(self.price_up_to[stops].mean())
            wrong = float(self.wrong[self.patients[:count], stops].mean())
            averages[name] = Averages(tests, wrong, tests + WRONG_ANSWER * wrong)
        return averages

    def summary(self) -> str:
        """Return the result as text."""
        if not self.stops:
            return "Interrupted before the first case."
        totals = {name: average.total for name, average in self.averages().items()}
        stopwise = totals.pop("Stopwise")
        best = min(totals, key=totals.__getitem__)
        comparison = "less" if stopwise < totals[best] else "no less"
        return (
            f"{len(self.stops):,} cases cost ${stopwise:.2f} each on average, including wrong "
            f"answers. Running every test costs ${totals[f'always {TESTS[-1]}']:.2f}, so Stopwise "
            f"saved ${self.saved[-1]:,} without seeing a diagnosis. It cost {comparison} than the "
            f"best fixed depth, {best!r} (${totals[best]:.2f})."
        )


def draw(cascade: MedicalCascade, width: int) -> "Group":
    """Return the screen: the latest stops, the averages and the savings."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    legend = Text("Latest cases:  ")
    for mark, test, price, style in zip(
        STOP_MARKS, TESTS, cascade.price_up_to, STOP_STYLES, strict=True
    ):
        legend.append(f"{mark} up to {test} ${price}   ", style)
    latest = Text()
    for stop in cascade.stops[-width:]:
        latest.append(STOP_MARKS[stop], STOP_STYLES[stop])

    table = Table("average per case", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("tests", "wrong answers", "tests + wrong answers"):
        table.add_column(heading, justify="right")
    for name, (tests, wrong, total) in cascade.averages().items():
        style = "bold" if name == "Stopwise" else ""
        table.add_row(name, f"${tests:.2f}", f"{wrong:.1%}", f"${total:.2f}", style=style)

    saved = f"Saved so far, compared with running every test: ${cascade.saved[-1]:,}"
    count = f" (case {len(cascade.stops):,} of {CASES:,})"
    return Group(
        legend,
        latest,
        table,
        Text.assemble((saved, "bold"), count),
        Text(chart(cascade.saved[:: CASES // width + 1]), "cyan"),
    )


def chart(values: list[int], height: int = 4) -> str:
    """Return a bar chart of block characters, ``height`` lines high.

    Examples
    --------
    >>> print(chart([2, 8, 12, 16], height=2))
      ▄█
    ▂███
    """
    largest = max(*values, 1)
    eighths = [round(8 * height * max(0, value) / largest) for value in values]
    lines = [
        "".join(BARS[min(max(bar - 8 * line, 0), 8)] for bar in eighths)
        for line in reversed(range(height))
    ]
    return "\n".join(lines)


def demo(
    seconds: Annotated[
        float,
        typer.Option(min=0, metavar="N", help="Duration; 0 runs as fast as possible."),
    ] = 30,
) -> None:
    """Watch a cascade learn where to stop: 30 seconds, no setup.

    Three diabetes classifiers are trained on half of the patients in a built-in dataset. The first
    uses the patient's history ($1), the second adds a glucose test ($8), and the third adds an
    insulin test ($8). The other half of the patients become 3,000 cases, with repeats. For each
    case, Stopwise decides how many tests to run. A wrong answer costs $100, but Stopwise is never
    told which answers are wrong: it only sees whether the tests agree.

        stopwise demo

        stopwise demo --seconds 0

    Ctrl-C stops the demo and prints a summary. If the output is not a terminal, the demo runs at
    full speed and prints one line per 500 cases.
    """
    from rich.console import Console

    console = Console(highlight=False)
    console.print(INTRODUCTION)
    cascade = MedicalCascade()
    with suppress(KeyboardInterrupt):
        if console.is_terminal and not console.is_dumb_terminal:
            play_live(cascade, console, seconds)
        else:
            play_in_lines(cascade)
    console.print(f"\n{cascade.summary()}\n\n{NEXT_STEPS}", markup=False, end="")


def play_live(cascade: MedicalCascade, console: "Console", seconds: float) -> None:
    """Play all cases in about ``seconds``, redrawing the screen."""
    from rich.live import Live

    cases_per_frame = CASES_PER_FRAME_AT_FULL_SPEED
    if seconds:
        cases_per_frame = max(1, round(CASES / (FRAMES_PER_SECOND * seconds)))
    start = time.monotonic()
    with Live(console=console, auto_refresh=False) as live:
        for count in cascade.play():
            if count % cases_per_frame == 0 or count == CASES:
                live.update(draw(cascade, min(console.width, MAX_WIDTH)), refresh=True)
                time.sleep(max(0.0, start + seconds * count / CASES - time.monotonic()))


def play_in_lines(cascade: MedicalCascade) -> None:
    """Play all cases as fast as possible, printing a line every ``CASES_PER_LINE`` cases."""
    for count in cascade.play():
        if count % CASES_PER_LINE == 0:
            tests, wrong, total = cascade.averages()["Stopwise"]
            typer.echo(
                f"{count:,} cases: ${total:.2f} per case (${tests:.2f} for tests, {wrong:.1%} "
                f"wrong answers), ${cascade.saved[-1]:,} saved"
            )
