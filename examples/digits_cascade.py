"""Handwritten digits: three scikit-learn models of increasing cost.

    thumbnail   logistic regression on a 4 × 4 thumbnail    fast, wrong one time in seven
    linear      logistic regression on all 64 pixels        wrong one time in twenty
    svm         a support vector machine                    slow, wrong one time in eighty

There are ten classes; two models agree if they predict the same digit. The initial context is the
amount of ink in the image. Each of the first two models adds its confidence, the log odds of its
first choice against its second. The policy also sees whether the two agree. It does not see the
true digit, except for labels that it may request.

The models are trained on half of scikit-learn's images and applied to the other half. Since 899
images are too few to learn from, each round draws an image at random and adds new sensor noise
(the models were trained with noise too). So rounds differ, but the results do not show how well the
models read other people's handwriting.

The policy is the recommended one with its defaults, for all cost vectors. Total loss counts every
round, including exploration. --labels N provides N labels, of rounds that the policy chooses.
docs/examples.md has results with labels, other seeds and shorter streams.
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
NOISE = 0.1  # standard deviation; a pixel is 0 (white) to 1 (black)

# The cost of running each model, in units of one wrong answer.
COSTS = {
    "as arithmetic": (0.0005, 0.002, 0.1),  # roughly proportional to the multiplications
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
    margin: float  # log odds of the first choice against the second


class Models(NamedTuple):
    thumbnail: LogisticRegression
    linear: LogisticRegression
    svm: SVC


class Result(NamedTuple):
    """Means per round for a cost vector; fixed depths are in the order of the arms."""

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
        """The relative difference to the best fixed depth; negative if Stopwise is better."""
        return self.loss / min(self.fixed_losses) - 1


# -- the models and their answers ------------------------------------------------------------------


def thumbnails(images: NDArray[Any]) -> NDArray[Any]:
    return images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)


def noisy(images: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    return np.clip(images + random.normal(0.0, NOISE, images.shape), 0.0, 1.0)


def answers(model: LogisticRegression, images: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the predictions of a model and their margins."""
    logits = model.decision_function(images)
    ranked = np.sort(logits, axis=1)
    return model.classes_[logits.argmax(axis=1)], ranked[:, -1] - ranked[:, -2]


def contexts_of(models: Models, images: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the full contexts of images and the answers of the three models."""
    first, first_margin = answers(models.thumbnail, thumbnails(images))
    second, second_margin = answers(models.linear, images)
    contexts = np.column_stack([images.mean(axis=1), first_margin, second_margin])
    return contexts, np.column_stack([first, second, models.svm.predict(images)])


def train(images: NDArray[Any], labels: NDArray[Any], random: np.random.Generator) -> Models:
    images = noisy(np.tile(images, (2, 1)), random)
    labels = np.tile(labels, 2)
    with threadpool_limits(1):  # threads do not pay off for many small steps
        thumbnail = LogisticRegression(max_iter=300).fit(thumbnails(images), labels)
        linear = LogisticRegression(max_iter=300).fit(images, labels)
        svm = SVC(C=10).fit(images, labels)
    return Models(thumbnail, linear, svm)


# -- the cascade -----------------------------------------------------------------------------------


def new_policy(costs: Sequence[float], labels: float = 0) -> sw.USSLaplace:
    # The initial context is one number, the ink; each of the first two models adds one.
    cascade = sw.Cascade(costs, names=ARMS)
    return sw.USSLaplace(cascade, context_dim=1, reveals=[1, 1], labels=labels)


def new_runner(models: Models, costs: Sequence[float]) -> sw.Runner:
    """Return a runner for the cascade, which processes one image at a time."""

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
    """Play every cost vector with precomputed answers of the models."""
    contexts, outputs = contexts_of(models, images)
    wrong = outputs != truth[:, None]
    results: list[Result] = []
    for name, costs in COSTS.items():
        policy = new_policy(costs, labels)
        if labels:
            stops = policy.run(contexts, outputs, labels=truth)  # uses the labels that it requests
        else:
            stops = policy.run(contexts, outputs)
        cumulative = policy.cascade.cumulative
        results.append(
            Result(
                name,
                costs,
                cost=float(cumulative[stops].mean()),
                error=float(wrong[np.arange(len(stops)), stops].mean()),
                shares=tuple((np.bincount(stops, minlength=3) / len(stops)).tolist()),
                fixed_costs=tuple(cumulative.tolist()),
                fixed_errors=tuple(wrong.mean(axis=0).tolist()),
            )
        )
    return results


# -- output ----------------------------------------------------------------------------------------


def print_live(rounds: Sequence[sw.Round], labels: NDArray[Any]) -> None:
    print(f"{len(rounds):,} images, one at a time; the last one that stopped at each model:")
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
        f"{'thumbnail':>11}{'linear':>8}{'svm':>10} vs. best   stops at"
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
    print(f"loss = cost + error per round; error rates of the models: {errors}\n")
    for result in results:
        share, extra = result.cost / result.fixed_costs[-1], result.error - result.fixed_errors[-1]
        if share < 0.5 and extra < 0.005:
            print(
                f"{result.name}: error rate {100 * extra:+.2f} percentage points compared with "
                f"always svm, at {share:.0%} of its cost"
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
        losses = [result.loss, *result.fixed_losses]
        axes.plot([min(losses), max(losses)], [row, row], color="#e6e6e6", linewidth=1, zorder=0)
    own = [result.loss for result in results]
    axes.plot(own, height, "D", color="#1b6ca8", markersize=8, label="Stopwise")
    for arm, mark in enumerate(marks):  # hollow and on top, so that overlapping marks are visible
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
    """Run some images live, then all of them for every cost vector; return the results."""
    random = np.random.default_rng(seed)
    images, digits = map(np.asarray, load_digits(return_X_y=True))
    images = images / 16.0
    training, test = np.split(random.permutation(len(images)), [len(images) // 2])
    models = train(images[training], digits[training], random)
    drawn = random.choice(test, rounds)
    stream, truth = noisy(images[drawn], random), digits[drawn]

    runner = new_runner(models, COSTS["middling"])
    print(runner.policy.cascade)
    print_live(list(runner.run_many(stream[:live])), truth)

    print(f"{rounds:,} images, the same for every cost vector")
    results = play(models, stream, truth, labels)
    print_table(results)
    if out is not None:
        if draw(results, out):
            print(f"The losses are in {out}")
        else:
            print("No picture: install matplotlib with pip install matplotlib")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=20_000, metavar="T", help="number of images (default: 20000)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the split, the noise and the order (default: 0)",
    )
    parser.add_argument(
        "--labels",
        type=float,
        default=0,
        metavar="N",
        help="labels that the policy may request (default: 0)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file for a picture of the losses; must not exist"
    )
    options = parser.parse_args()
    if options.out is not None and options.out.exists():
        parser.error(f"--out: {options.out} exists; delete it or choose another file")
    main(options.rounds, options.seed, labels=options.labels, out=options.out)
