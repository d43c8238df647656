"""``stopwise demo``: a cascade of three medical tests that learns where to stop, live."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Group

SEES = {"history": 6, "glucose": 7, "insulin": 8}  # the first columns of the PIMA table
PRICES, WRONG = (1, 8, 8), 100  # dollars: of each test, and of a wrong answer
CASES, FRAMES = 3000, 20  # frames a second
BLOCKS, DEPTHS, STYLES = " ▁▂▃▄▅▆▇█", "▂▅█", ("green", "yellow", "red")
WHAT = "Diabetes or not? Three tests, trained just now; a wrong answer costs $100."
OWN = (
    "With your own: `stopwise diagnose LOG --costs …` on a log of what your stages answered "
    "(`stopwise import` makes one of traces), or `sw.Runner(policy, stages)` in Python."
)


class Demo:
    """Arms trained on half of the patients; the others are the cases, again and again."""

    def __init__(self, seed: int = 0) -> None:
        import numpy as np

        from stopwise.cascade import Cascade
        from stopwise.policies.uss_laplace import USSLaplace
        from stopwise.research.data import load_table
        from stopwise.research.environments.training import chance_of_one, fit_logistic

        _, table, truth = load_table("pima")
        table = (table - table.mean(axis=0)) / table.std(axis=0)
        random = np.random.default_rng(seed)
        train, rest = np.array_split(random.permutation(len(table)), 2)
        passes = [random.permutation(rest) for _ in range(CASES // len(rest) + 1)]
        self.cases = np.concatenate(passes)[:CASES]
        weights = [fit_logistic(table[train, :k], truth[train])[None] for k in SEES.values()]
        seen = [table[:, : w.size - 1] for w in weights]
        self.says = np.hstack(list(map(chance_of_one, seen, weights))) > 0.5
        self.contexts = table[:, : SEES["history"]]  # known before the first test
        self.tests = np.cumsum(PRICES)
        self.wrong = self.says != (truth == 1)[:, None]  # which the policy never sees
        cascade = Cascade.from_prices(PRICES, error_cost=WRONG, names=[*SEES])
        self.policy = USSLaplace(cascade, context_dim=self.contexts.shape[1])
        self.stops: list[int] = []
        self.saved = [0]  # so far, beside running every test

    def play(self) -> Iterator[int]:
        """Play every case, and yield how many were."""
        totals = (self.tests + WRONG * self.wrong).tolist()
        for done, case in enumerate(self.cases.tolist(), 1):
            stop = self.policy.decide(self.contexts[case]).stop
            self.policy.observe(self.contexts[case], self.says[case, : stop + 1].tolist())
            self.stops.append(stop)
            self.saved.append(self.saved[-1] + totals[case][-1] - totals[case][stop])
            yield done

    def results(self) -> dict[str, tuple[float, float, float]]:
        """Return dollars for tests, share of wrong answers and total of a case, so far."""
        n, found = len(self.stops), dict[str, tuple[float, float, float]]()
        rules = {"stopwise": self.stops} | {f"always {a}": [k] * n for k, a in enumerate(SEES)}
        for name, at in rules.items():
            tests, wrong = self.tests[at].mean(), self.wrong[self.cases[:n], at].mean()
            found[name] = float(tests), float(wrong), float(tests + WRONG * wrong)
        return found

    def summary(self) -> str:
        """Say what was seen, in sentences."""
        if not self.stops:
            return f"Ended before the first case.\n{OWN}"
        totals = {name: total for name, (_, _, total) in self.results().items()}
        own = totals.pop("stopwise")
        name = min(totals, key=totals.__getitem__)
        best, every_test = totals[name], totals[f"always {list(SEES)[-1]}"]
        less = "less than" if own < best else "not less than"
        return (
            f"{len(self.stops):,} cases: ${own:.2f} each, tests and wrong answers. Every test "
            f"for every case: ${every_test:.2f}, so ${self.saved[-1]:,} were saved. Stopwise "
            f"paid {less} the best fixed depth ({name}, ${best:.2f}), and saw no right answer."
            f"\n{OWN}"
        )

    def screen(self, width: int) -> "Group":
        """Draw what happened so far."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        each = zip(DEPTHS, SEES, self.tests, STYLES, strict=True)
        names = [(f"{block} {arm} ${cost}   ", style) for block, arm, cost, style in each]
        recent = [(DEPTHS[k], STYLES[k]) for k in self.stops[-width:]]
        table = Table("a case", box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("tests", "wrong answers", f"tests + ${WRONG} for a wrong answer"):
            table.add_column(heading, justify="right")
        for name, (tests, wrong, total) in self.results().items():
            bold = "bold" if name == "stopwise" else ""
            table.add_row(name, f"${tests:.2f}", f"{wrong:.1%}", f"${total:.2f}", style=bold)
        money = f"Saved so far, beside every test for every case: ${self.saved[-1]:,}"
        return Group(
            Text.assemble("Depth of the latest cases: ", *names),
            Text.assemble(*recent, "\n"),
            table,
            Text(f"{money} (case {len(self.stops):,} of {CASES:,})", "bold"),
            Text(chart(self.saved[:: CASES // width + 1]), "cyan"),
        )


def chart(values: list[int], height: int = 4) -> str:
    """Draw bars of block characters, the largest ``height`` lines high.

    Examples
    --------
    >>> print(chart([2, 8, 12, 16], height=2))
      ▄█
    ▂███
    """
    levels = [round(8 * height * max(0, value) / max(*values, 1)) for value in values]
    lines = [[BLOCKS[min(max(n - 8 * k, 0), 8)] for n in levels] for k in range(height)]
    return "\n".join("".join(line) for line in reversed(lines))


def demo(
    seconds: Annotated[
        float, typer.Option(min=0, metavar="N", help="How long to play; 0: as fast as it goes.")
    ] = 30,
) -> None:
    """Watch a cascade learn where to stop, in thirty seconds; nothing to prepare.

    Three classifiers of diabetes are trained on one half of a table of patients: the first sees the
    history ($1), the second glucose too ($8), the third insulin too ($8). The other half come as
    cases, again and again. For each, Stopwise decides how many tests to run. A wrong answer costs
    $100, but nobody says which are wrong: it only sees whether the tests agree.

        stopwise demo

        stopwise demo --seconds 0

    Ctrl-C ends it with a summary. Without a terminal it prints lines and does not wait.
    """
    from rich.console import Console
    from rich.live import Live

    console, shown, began = Console(highlight=False), Demo(), time.monotonic()
    console.print(f"{WHAT}\n")
    with suppress(KeyboardInterrupt):
        if not console.is_terminal or console.is_dumb_terminal:
            for done in shown.play():
                if done % 500 == 0:
                    tests, wrong, total = shown.results()["stopwise"]
                    words = (
                        f"${tests:.2f} a case for tests, {wrong:.1%} wrong, ${total:.2f} in total"
                    )
                    typer.echo(f"{done:,} cases: {words}; ${shown.saved[-1]:,} saved")
        else:
            every = max(1, round(CASES / (FRAMES * seconds))) if seconds else 50
            with Live(console=console, auto_refresh=False) as live:
                for done in shown.play():
                    if done % every == 0 or done == CASES:
                        live.update(shown.screen(min(console.width, 100)), refresh=True)
                        time.sleep(max(0.0, began + seconds * done / CASES - time.monotonic()))
    console.print(f"\n{shown.summary()}", markup=False)
