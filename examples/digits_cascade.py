"""Handwritten digits: three scikit-learn models of rising cost, and how deep to go for each image.

    thumbnail   logistic regression on a 4 × 4 thumbnail    quick, wrong one time in seven
    linear      logistic regression on all 64 pixels        wrong one time in twenty
    svm         a support vector machine                    slow, wrong one time in eighty

Ten classes; two models agree when they name the same digit. Before the first model only the ink on
the image is known. Each of the first two adds how sure it was: the log of the odds between its
first choice and its second. The policy also sees whether the two agree. Nobody tells it which digit
it really was, unless it may ask for labels.

The models learn from one half of the bundled images and are then asked about the other half. 899
images are too few to watch anything learn, so an image is drawn at random each round and sensor
noise is added anew (the models were trained with such noise, of other images). No two rounds are
then alike. What is measured is this stream, not how well the models do on other people's writing.

The policy is the recommended one, with its defaults, for all cost vectors. Total loss counts every
round, also those in which it only explores. --labels N tells it N right answers, of rounds that it
chooses. What labels, other seeds and shorter streams come to is in docs/examples.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

import stopwise as sw

ARMS = ["thumbnail", "linear", "svm"]
NOISE = 0.1  # of a sensor; a pixel is 0 (white) to 1 (black)

# What running each model costs, in units of one wrong answer.
COSTS = {
    "as arithmetic": (0.0005, 0.002, 0.1),  # in proportion to the multiplications, roughly
    "next to nothing": (0.001, 0.005, 0.01),
    "low": (0.005, 0.01, 0.03),
    "middling": (0.005, 0.02, 0.05),
    "steep": (0.005, 0.02, 0.1),
    "high": (0.01, 0.05, 0.2),
    "higher": (0.01, 0.1, 0.3),
    "all alike": (0.05, 0.05, 0.05),
    "expensive beyond first": (0.01, 0.3, 0.6),
    "expensive last": (0.01, 0.02, 0.5),
}


class Answer(NamedTuple):
    digit: int
    margin: float  # log of the odds between the first choice and the second


class Models(NamedTuple):
    thumbnail: LogisticRegression
    linear: LogisticRegression
    svm: SVC


class Result(NamedTuple):
    """What one cost vector came to, a round; fixed depths in the order of the arms."""

    name: str
    costs: tuple[float, ...]
    cost: float
    error: float
    shares: tuple[float, ...]
    fixed_costs: tuple[float, ...]
    fixed_errors: tuple[float, ...]

    @property
    def loss(self) -> float:
        return self.cost + self.error

    @property
    def fixed_losses(self) -> list[float]:
        return [c + e for c, e in zip(self.fixed_costs, self.fixed_errors, strict=True)]

    @property
    def against_best_fixed(self) -> float:
        """Below zero where Stopwise beats every fixed depth."""
        return self.loss / min(self.fixed_losses) - 1


# -- the models and their answers ------------------------------------------------------------------


def thumbnails(images: NDArray[Any]) -> NDArray[Any]:
    return images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)


def noisy(images: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    return np.clip(images + random.normal(0.0, NOISE, images.shape), 0.0, 1.0)


def answers(model: LogisticRegression, images: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the digits that a model names, and its margins."""
    logits = model.decision_function(images)
    ranked = np.sort(logits, axis=1)
    return model.classes_[logits.argmax(axis=1)], ranked[:, -1] - ranked[:, -2]


def contexts_of(models: Models, images: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return all that could be known of images, and all answers of the three models."""
    first, first_margin = answers(models.thumbnail, thumbnails(images))
    second, second_margin = answers(models.linear, images)
    contexts = np.column_stack([images.mean(axis=1), first_margin, second_margin])
    return contexts, np.column_stack([first, second, models.svm.predict(images)])


def train(images: NDArray[Any], labels: NDArray[Any], random: np.random.Generator) -> Models:
    images = noisy(np.tile(images, (2, 1)), random)
    labels = np.tile(labels, 2)
    with threadpool_limits(1):  # many small steps: threads would mostly wait for each other
        thumbnail = LogisticRegression(max_iter=300).fit(thumbnails(images), labels)
        linear = LogisticRegression(max_iter=300).fit(images, labels)
        svm = SVC(C=10).fit(images, labels)
    return Models(thumbnail, linear, svm)


# -- the cascade -----------------------------------------------------------------------------------


def new_policy(costs: Sequence[float], labels: float = 0) -> sw.USSLaplace:
    # Known before the first model is one number, the ink; each of the first two models adds one.
    cascade = sw.Cascade(costs, names=ARMS)
    return sw.USSLaplace(cascade, context_dim=1, reveals=[1, 1], labels=labels)


def new_runner(models: Models, costs: Sequence[float]) -> sw.Runner:
    """Return the cascade as one would run it: one image at a time, as deep as need be."""

    def thumbnail(image: NDArray[Any]) -> Answer:
        digits, margins = answers(models.thumbnail, thumbnails(image))
        return Answer(int(digits[0]), float(margins[0]))

    def linear(image: NDArray[Any]) -> Answer:
        digits, margins = answers(models.linear, image[None, :])
        return Answer(int(digits[0]), float(margins[0]))

    def digit(answer: Answer) -> int:
        return answer.digit

    def margin(answer: Answer) -> list[float]:
        return [answer.margin]

    return sw.Runner(
        new_policy(costs),
        [
            sw.Stage(thumbnail, canonical=digit, reveals=margin),
            sw.Stage(linear, canonical=digit, reveals=margin),
            sw.Stage(models.svm),  # has `predict`
        ],
        context=lambda image: [image.mean()],
    )


def play(
    models: Models, images: NDArray[Any], truth: NDArray[Any], labels: float = 0
) -> list[Result]:
    """Play every cost vector; the models answer once, decisions are taken as live."""
    contexts, outputs = contexts_of(models, images)
    wrong = outputs != truth[:, None]
    results: list[Result] = []
    for name, costs in COSTS.items():
        policy = new_policy(costs, labels)
        if labels:
            stops = policy.run(contexts, outputs, labels=truth)  # it sees those that it asks for
        else:
            stops = policy.run(contexts, outputs)
        paid = policy.cascade.cumulative
        results.append(
            Result(
                name,
                costs,
                cost=float(paid[stops].mean()),
                error=float(wrong[np.arange(len(stops)), stops].mean()),
                shares=tuple((np.bincount(stops, minlength=3) / len(stops)).tolist()),
                fixed_costs=tuple(paid.tolist()),
                fixed_errors=tuple(wrong.mean(axis=0).tolist()),
            )
        )
    return results


# -- showing it ------------------------------------------------------------------------------------


def print_live(rounds: Sequence[sw.Round], labels: NDArray[Any]) -> None:
    print(f"{len(rounds):,} images, one at a time; the last that stopped at each model:")
    last = {len(done.outputs) - 1: t for t, done in enumerate(rounds)}
    for arm, t in sorted(last.items()):
        answers = ", then ".join(str(output) for output in rounds[t].outputs)
        margins = ", ".join(f"{value:.1f}" for value in rounds[t].context[1:])
        print(f"  {ARMS[arm]:<10} answered {answers} (margins {margins}); it was {labels[t]}")
    print()


def print_table(results: Sequence[Result]) -> None:
    print(f"{'cost of each model,':<43}Stopwise{'':<14}always     always     always  Stopwise")
    print(
        f"{'in units of one error':<40}{'cost':>7}{'error':>7}{'loss':>8}"
        f"{'thumbnail':>11}{'linear':>8}{'svm':>10}  v. best   stops at"
    )
    for result in results:
        costs = " ".join(f"{c:g}" for c in result.costs)
        first, second, third = result.fixed_losses
        shares = " ".join(f"{share:4.0%}" for share in result.shares)
        print(
            f"{result.name:<23}{costs:<17}{result.cost:>7.4f}{result.error:>7.4f}"
            f"{result.loss:>8.4f}{first:>11.4f}{second:>8.4f}{third:>10.4f}"
            f"{result.against_best_fixed:>+9.1%}   {shares}"
        )
    errors = ", ".join(f"{e:.2%}" for e in results[0].fixed_errors)
    print(f"mean loss = cost + error of a round; errors of the models alone: {errors}\n")
    for result in results:
        share, extra = result.cost / result.fixed_costs[-1], result.error - result.fixed_errors[-1]
        if share < 0.5 and extra < 0.005:
            print(
                f"{result.name}: {100 * extra:+.2f} percentage points of error "
                f"beside always svm, for {share:.0%} of its cost"
            )


def draw(results: Sequence[Result], path: Path) -> bool:
    """Draw loss by cost vector; return False if matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("agg")
    import matplotlib.pyplot as plt

    marks = ["o", "s", "^"]
    figure, axes = plt.subplots(figsize=(8.4, 4.7), layout="constrained")
    height = np.arange(len(results))[::-1]
    for row, result in zip(height, results, strict=True):
        ends = [result.loss, *result.fixed_losses]
        axes.plot([min(ends), max(ends)], [row, row], color="#e6e6e6", linewidth=1, zorder=0)
    own = [result.loss for result in results]
    axes.plot(own, height, "D", color="#1b6ca8", markersize=8, label="Stopwise")
    for arm, mark in enumerate(marks):  # hollow and on top, where two are nearly equal
        losses = [result.fixed_losses[arm] for result in results]
        label = f"always {ARMS[arm]}"
        axes.plot(losses, height, mark, color="#5c5c5c", markerfacecolor="none", label=label)
    axes.set_yticks(
        height, [f"{r.name}\n{'  '.join(f'{c:g}' for c in r.costs)}" for r in results], fontsize=8
    )
    axes.set_xscale("log")
    axes.set_xticks([0.03, 0.05, 0.1, 0.2, 0.5, 1.0], ["0.03", "0.05", "0.1", "0.2", "0.5", "1"])
    axes.minorticks_off()
    axes.set_xlabel("total loss per round (cost + error), log scale")
    axes.set_title("Handwritten digits, three models, ten cost vectors", loc="left", fontsize=12)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(frameon=False, fontsize=8.5, loc="upper right")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def main(
    rounds: int = 20_000,
    seed: int = 0,
    *,
    live: int = 1000,
    labels: float = 0,
    out: Path | None = None,
) -> list[Result]:
    """Run some images live, then all of them for every cost vector; return what came out."""
    random = np.random.default_rng(seed)
    images, digits = map(np.asarray, load_digits(return_X_y=True))
    images = images / 16.0
    trained, rest = np.split(random.permutation(len(images)), [len(images) // 2])
    models = train(images[trained], digits[trained], random)
    shown = random.choice(rest, rounds)
    stream, truth = noisy(images[shown], random), digits[shown]

    runner = new_runner(models, COSTS["middling"])
    print(runner.policy.cascade)
    print_live(list(runner.run_many(stream[:live])), truth)

    print(f"{rounds:,} images, the same for every cost vector")
    results = play(models, stream, truth, labels)
    print_table(results)
    if out is not None:
        drawn = draw(results, out)
        print(f"The losses are in {out}" if drawn else "(pip install matplotlib to draw)")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20_000, metavar="T", help="images (20000)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the split, the noise, the order (0)"
    )
    parser.add_argument(
        "--labels", type=float, default=0, metavar="N", help="right answers it may ask for (0)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to draw the losses")
    options = parser.parse_args()
    main(options.rounds, options.seed, labels=options.labels, out=options.out)
