"""A first cascade: three medical tests, no labels, and policies that learn where to stop.

A patient has two numbers: a risk score and a body-mass index, both scaled to [-1, 1]. Three arms
predict whether the patient is diabetic, each more expensive than the one before:

    history   0.02   a questionnaire; uses the risk score only
    glucose   0.10   a blood test; uses the body-mass index too, but not well enough
    insulin   0.20   a second blood test; nearly always right

An arm is run only after all arms before it. The true diagnosis is never revealed; policies only see
whether the arms that ran agree. Some patients are clear from their history, others need one or both
blood tests. The policies learn which.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import stopwise as sw
from stopwise import research

CASCADE = sw.Cascade(costs=[0.02, 0.10, 0.20], names=["history", "glucose", "insulin"])

# Each arm answers 1 with probability μ(w·x + b): (w for risk, w for body-mass index, b). The
# weights are large, so an arm is nearly deterministic except close to its boundary.
ARMS = [[20, 0, -4], [40, 24, -8], [40, 40, -12]]
LABEL = [40, 40, -12]  # the truth, which policies never see
FEATURES = sw.Polynomial(degree=2)

UNSUPERVISED = "learns from disagreement, with context"
BLIND = "learns from disagreement, without context"
FIXED = "does not learn"
PRIVILEGED = "uses the truth"

Player = sw.Policy | research.Comparator


def competitors(cascade: sw.Cascade) -> list[tuple[str, str, Player]]:
    """Return (label, kind, new policy) of each competitor."""
    common = {"features": FEATURES, "context_dim": 2}
    return [
        ("USS-PD", UNSUPERVISED, sw.USSPD(cascade, **common)),
        ("USS-PD-λI", UNSUPERVISED, sw.USSPDRidge(cascade, **common, lam=0.1, S=10.0)),
        ("Thompson", UNSUPERVISED, sw.Thompson(cascade, **common)),
        ("USS-UCB", BLIND, sw.USSUCB(cascade)),
        ("USS-TS", BLIND, sw.USSTS(cascade)),
        *((f"always {name}", FIXED, sw.FixedDepth(cascade, depth=name)) for name in cascade.names),
        ("random depth", FIXED, sw.RandomDepth(cascade)),
        ("supervised", PRIVILEGED, research.Supervised(cascade, **common)),
        ("clairvoyant", PRIVILEGED, research.Clairvoyant(cascade)),
        ("oracle", PRIVILEGED, research.Oracle(cascade)),
    ]


def play(rounds: int, seed: int) -> list[tuple[str, str, Player, research.Run]]:
    """Play the same patients with every policy."""
    environment = research.LogisticArms(CASCADE, ARMS, LABEL)
    played: list[tuple[str, str, Player, research.Run]] = []
    policies = competitors(CASCADE)
    for number, (label, kind, policy) in enumerate(policies, start=1):
        report(f"[{number}/{len(policies)}] {label}: {rounds:,} patients …")
        run = sw.simulate(policy, environment, rounds, seed)
        played.append((label, kind, policy, run))
    report("")
    return played


def report(text: str) -> None:
    """Show progress on a single line if stderr is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def print_table(played: list[tuple[str, str, Player, research.Run]]) -> None:
    shares = "/".join(CASCADE.names)
    print(f"{'':<16}{'cost per':>9}{'error':>8}{'total':>9}{'':>9}   patients stopped at")
    print(f"{'policy':<16}{'round':>9}{'rate':>8}{'loss':>9}{'regret':>9}   {shares}")
    before = ""
    for label, kind, _, run in played:
        if kind != before:
            print(f"-- {kind}")
            before = kind
        n = len(run.stops)
        cost = run.cost.mean()
        assert run.total_cost is not None
        loss = run.total_cost[-1]
        depth = np.bincount(run.stops, minlength=CASCADE.n_arms) / n
        bars = " ".join(f"{share:6.1%}" for share in depth)
        print(
            f"{label:<16}{cost:>9.3f}{loss / n - cost:>8.3f}{loss:>9.1f}"
            f"{run.regret[-1]:>9.1f}   {bars}"
        )
    print("total loss = sum of cost and error rate; regret = total loss minus that of the oracle\n")


def print_decision(policy: sw.Policy) -> None:
    """Print a decision with its evidence, for a patient of medium difficulty."""
    patient = np.array([0.5, -0.6])
    decision = policy.decide(patient)
    print("Decision of USS-PD for risk score 0.5, body-mass index -0.6:")
    print(f"  {decision}")
    print("because")
    for evidence in decision.evidence:
        print(f"  {evidence}")
    print()


def draw(played: list[tuple[str, str, Player, research.Run]], path: Path) -> bool:
    """Draw regret against rounds; return False if matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    colours = {UNSUPERVISED: "#1b6ca8", BLIND: "#c77700", FIXED: "#8a8a8a", PRIVILEGED: "#3a8f3a"}
    styles = ["-", "--", ":", "-."]
    shown = [entry for entry in played if entry[0] not in ("random depth", "oracle")]
    # cut off the largest curve, whose regret is in the table
    top = 1.12 * max(run.regret[-1] for label, _, _, run in shown if label != "always insulin")
    figure, axes = plt.subplots(figsize=(8.4, 4.7), layout="constrained")
    labels: list[tuple[float, str, str]] = []
    count: dict[str, int] = {}
    for label, kind, _, run in shown:
        n = len(run.regret)
        style = styles[count.get(kind, 0) % len(styles)]
        count[kind] = count.get(kind, 0) + 1
        axes.plot(
            np.arange(1, n + 1),
            run.regret,
            style,
            color=colours[kind],
            linewidth=2.4 if label == "USS-PD" else 1.4,
        )
        if run.regret[-1] <= top:
            labels.append((float(run.regret[-1]), label, colours[kind]))
        else:
            t = int(np.searchsorted(run.regret, 0.97 * top))
            axes.annotate(
                label, (t, 0.97 * top), (-6, 0), textcoords="offset points",
                ha="right", va="center", color=colours[kind], fontsize=9,
            )  # fmt: skip
    labels.sort()
    heights = spread([regret for regret, *_ in labels], distance=0.047 * top)
    for (regret, label, colour), height in zip(labels, heights, strict=True):
        axes.annotate(
            label, (n, regret), (1.015 * n, height), va="center", color=colour, fontsize=9,
            fontweight="bold" if label == "USS-PD" else "normal",
            annotation_clip=False,
        )  # fmt: skip
    axes.set_xlim(0, n)
    axes.set_ylim(0, top)
    axes.set_xlabel("patients")
    axes.set_ylabel("cumulative regret")
    axes.set_title("Where to stop, learned without labels", loc="left", fontsize=12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    handles = [Line2D([], [], color=c, linewidth=2, label=k) for k, c in colours.items()]
    axes.legend(handles=handles, frameon=False, fontsize=8.5, loc="upper left")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def spread(positions: list[float], distance: float) -> list[float]:
    """Move ascending heights apart until neighbours have this distance."""
    heights = list(positions)
    for _ in range(200):
        for low in range(len(heights) - 1):
            overlap = distance - (heights[low + 1] - heights[low])
            if overlap > 0:
                heights[low] -= overlap / 2
                heights[low + 1] += overlap / 2
        heights[0] = max(heights[0], 0.3 * distance)
    return heights


def print_chart(played: list[tuple[str, str, Player, research.Run]], columns: int = 50) -> None:
    """Print a chart of the regret per patient over the run, one line per policy."""
    shades = " ▁▂▃▄▅▆▇█"
    print(f"regret per patient over the run, in {columns} steps (higher bars lose more):")
    splits = [np.array_split(np.diff(run.regret, prepend=0.0), columns) for *_, run in played]
    means = [[step.mean() if step.size else 0.0 for step in steps] for steps in splits]
    worst = max(max(line) for line in means) or 1.0
    for (label, *_), line in zip(played, means, strict=True):
        cells = "".join(shades[round(8 * max(value, 0.0) / worst)] for value in line)
        print(f"  {label:<16}|{cells}|")
    print("(for a picture, use --out FILE; it needs matplotlib)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="The clairvoyant uses the true disagreement probabilities and still has some\n"
        "regret: close to the boundary weak dominance fails, and learning from disagreement\n"
        "cannot do better. Try --rounds 20000, then change ARMS, LABEL or the costs.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rounds", type=int, default=5000, metavar="T", help="number of patients (default: 5000)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the patients, for all policies (default: 0)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file for a picture of the regret; must not exist"
    )
    options = parser.parse_args()
    if options.rounds < 100:
        parser.error(
            f"--rounds must be at least 100, got {options.rounds}: the first 50 are exploration"
        )
    if options.out is not None and options.out.exists():
        parser.error(f"--out: {options.out} exists; delete it or choose another file")
    if options.out is not None and not options.out.parent.is_dir():
        parser.error(f"--out: the folder {options.out.parent} does not exist")

    print(f"{CASCADE}\n{options.rounds:,} patients, the same for every policy\n", flush=True)
    played = play(options.rounds, options.seed)
    print_table(played)
    first = played[0][2]
    assert isinstance(first, sw.USSPD)
    print_decision(first)
    if options.out is not None and draw(played, options.out):
        print(f"The regret curves are in {options.out}")
    else:
        print_chart(played)


if __name__ == "__main__":
    main()
