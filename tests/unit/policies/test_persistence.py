"""Saved policies: complete or not at all, and nothing in a file is trusted before it is checked."""

import hashlib
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise.policies import persistence
from stopwise.policies.pairwise import PairwisePolicy
from tests.helpers import archive
from tests.helpers.archive import assert_same
from tests.helpers.labels import label_of

NAMES = ["rule", "model", "expert"]
CASCADE = sw.Cascade([0.05, 0.15, 0.2], names=NAMES)
RNG = np.random.default_rng(0)
CONTEXTS = RNG.uniform(-1, 1, (60, 2))
OUTPUTS = RNG.integers(0, 2, (60, 3))


def loaded(path: Path, **given: Any) -> Any:
    return sw.load(path, **given)


def trained(name: str = "uss-pd", **parameters: Any) -> Any:
    policy = sw.make(name, CASCADE, context_dim=2, **parameters)
    policy.run(CONTEXTS, OUTPUTS)
    return policy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy.stopwise"


def craft(path: Path, policy: sw.Policy, /, without: str = "", **changes: Any) -> None:
    """Save with some fields, or some of ``arrays``, replaced: the checksum is right."""
    policy.save(path)
    saved = persistence._read(path, path.read_bytes())
    arrays = saved.arrays | {
        name: array if isinstance(array, persistence._Array) else persistence._packed(array)
        for name, array in changes.pop("arrays", {}).items()
    }
    arrays.pop(without, None)
    write(path, msgspec.msgpack.encode(msgspec.structs.replace(saved, arrays=arrays, **changes)))


def write(path: Path, body: bytes, version: int = persistence.VERSION) -> None:
    head = persistence.MAGIC + version.to_bytes(4, "little") + hashlib.sha256(body).digest()
    path.write_bytes(head + body)


def assert_corrupt(path: Path, match: str = "") -> None:
    with pytest.raises(sw.errors.CorruptFileError, match=match or path.name):
        sw.load(path)


# ------------------------------------------------------------------------------- damaged files


def test_a_truncated_longer_or_foreign_file_is_refused(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sw.load(path)
    trained().save(path)
    content = path.read_bytes()
    lengths = [*range(0, 60, 3), *range(60, len(content), 1997), len(content) - 1]
    foreign = [b"costs: [0.1]\n", b"PK\3\4", pickle.dumps({"a": 1}), persistence.MAGIC]
    for damaged in (*(content[:length] for length in lengths), content + b"\0", *foreign):
        path.write_bytes(damaged)
        assert_corrupt(path)
    path.unlink()
    path.mkdir()
    assert_corrupt(path)


def test_a_single_flipped_bit_is_found_wherever_it_is(path: Path) -> None:
    trained("uss-ucb").save(path)
    content = path.read_bytes()
    for place in [*range(44), *range(44, len(content), 7)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        in_version = 8 <= place < 12
        with pytest.raises(
            sw.errors.UnsupportedVersionError if in_version else sw.errors.CorruptFileError
        ):
            persistence.decode(bytes(damaged))


def test_another_version_is_named_with_what_to_do(path: Path) -> None:
    trained().save(path)
    body = path.read_bytes()[persistence._HEAD :]
    for version, advice in ((10, "Update Stopwise"), (0, "observe_many"), (2, "observe_many")):
        write(path, body, version=version)
        with pytest.raises(sw.errors.UnsupportedVersionError, match=f"format {version}.*{advice}"):
            sw.load(path)


# ------------------------------------------- a right checksum does not make the contents right


def raw(dtype: str, shape: tuple[int, ...], size: int) -> dict[str, Any]:
    return {"arrays": {"learner": persistence._Array(dtype, shape, b"\0" * size)}}


IMPOSSIBLE: list[dict[str, Any]] = [
    {"policy": "uss-xyz"},
    {"cascade": {}},
    {"cascade": {**CASCADE.to_dict(), "costs": [0.1, -1.0, 0.2]}},
    {"cascade": {**CASCADE.to_dict(), "names": 3}},
    *({"features": spec} for spec in (None, {}, {"kind": "shared", "maps": 3})),
    *({"parameters": given} for given in ({"delta": 2.0}, {"unheard_of": 1})),
    {"parameters": {"delta": 0.05, "forced_rounds": math.inf}},
    *({"arrays": {"learner": np.zeros(shape, np.uint8)}} for shape in ((2, 8), ())),
    {"arrays": {"learner": np.zeros(8)}},
    *(raw("|O", (2,), 16), raw("|u1", (9,), 8), raw("(2,f8", (1,), 8)),
]


def test_impossible_contents_are_refused_and_the_file_is_named(path: Path) -> None:
    for body in (b"", b"\xc1", b"\x80", msgspec.msgpack.encode([1, 2])):
        write(path, body)
        assert_corrupt(path)
    for changes in IMPOSSIBLE:
        craft(path, trained(), **changes)
        assert_corrupt(path)
    craft(path, trained(), features={"kind": "shared", "context_dim": 2, "n_arms": 3, "maps": [{}]})
    assert_corrupt(path, f"{path.name}: its features")
    with pytest.raises(sw.errors.FeaturesMismatchError, match=path.name):
        sw.load(path, features=sw.Identity())


@pytest.mark.parametrize("name", ["uss-pd", "uss-ucb", "thompson", "random-depth"])
def test_a_missing_array_is_refused(name: str, path: Path) -> None:
    policy = trained(name)
    for missing in policy.state():
        craft(path, policy, without=missing)
        assert_corrupt(path, missing)


COUNTS: list[tuple[str, Any]] = [
    ("n", [1.5] * 3),
    ("n", [-4] * 3),
    ("n", [60] * 4),
    ("n", [10, 20, 30]),  # a deeper arm was revealed more often
    ("disagreed", [[99] * 3] * 3),
    ("disagreed", [[0, 0, 0], [1, 0, 0], [0, 1, 0]]),
    *(("rounds", given) for given in ([-5], [[]], [math.inf], [1])),
    *(("random", given) for given in ([0] * 4, [1] * 5)),
]


@pytest.mark.parametrize("name", ["uss-ucb", "uss-ts"])
def test_counts_that_contradict_each_other_are_refused(name: str, path: Path) -> None:
    for part, given in COUNTS:
        craft(path, trained(name), arrays={part: np.array(given)})
        assert_corrupt(path)


@pytest.mark.parametrize("decisions", [[-1], [1, 2], [0.5]])
def test_an_impossible_number_of_decisions_is_refused_and_changes_nothing(
    decisions: list[float], path: Path
) -> None:
    policy = trained("random-depth")
    before, arrays = policy.state(), {"decisions": np.array(decisions)}
    craft(path, policy, arrays=arrays)
    assert_corrupt(path)
    with pytest.raises(ValueError, match="decisions"):
        policy.restore(before | arrays)
    assert_same(before, policy.state())


# ---------------------------------------------------- bytes of a learner that contradict each other


def small() -> sw.USSPD:
    """Eighty rounds, each with its own context; some went to arm 1 only."""
    policy = trained(forced_rounds=20)
    for x in np.random.default_rng(2).uniform(-1, 1, (20, 2)):
        policy.observe(x, [0, 1])
    return policy


def large() -> sw.USSPD:
    """More rows than are stored once with counts."""
    policy = sw.USSPD(CASCADE, context_dim=2)
    rng = np.random.default_rng(1)
    for x, stop in zip(rng.uniform(-1, 1, (8600, 2)), rng.integers(1, 3, 8600), strict=True):
        policy.observe(x, [0, 1, 0][: stop + 1])
    policy.decide([0.1, 0.2])
    return policy


def exploring() -> sw.USSPD:
    """Stages reveal the context: answers were drawn."""
    policy = sw.USSPD(CASCADE, sw.Identity(), 1, reveals=[0, 1], forced_rounds=5, explore=0.25)
    for x, outputs in zip(CONTEXTS, OUTPUTS.tolist(), strict=True):
        policy.observe(x, outputs[: 2 + int(x[0] > 0)], rule_stop=1)
    policy.run(CONTEXTS, OUTPUTS)
    return policy


def held() -> sw.USSLaplace:
    """Features are still to be fitted; some rounds have their label."""
    policy = sw.USSLaplace(CASCADE, context_dim=2, labels=20)
    policy.run(CONTEXTS, OUTPUTS, labels=OUTPUTS[:, -1])
    assert policy.labels.came > 0
    return policy


def labelled() -> sw.USSPD:
    """Every round with its right answer."""
    policy = trained(forced_rounds=20)
    for x, outputs in zip(CONTEXTS, OUTPUTS.tolist(), strict=True):
        policy.learn_label(label_of(x, outputs, 1))
    policy.decide_many(CONTEXTS)
    return policy


def unanswered() -> sw.USSLaplace:
    """Labels asked for; some came, some were passed over, and some still wait."""
    policy = sw.USSLaplace(CASCADE, sw.Polynomial(1), 2, labels=0.9)
    labels = np.array([1 if t % 3 and t < 45 else None for t in range(len(CONTEXTS))])
    policy.run(CONTEXTS, OUTPUTS, labels=labels)
    assert (
        0 < policy.labels.missing < policy.labels.missing + policy.labels.came < policy.labels.asked
    )
    return policy


def thompson() -> sw.Thompson:
    return trained("thompson", forced_rounds=20)


LEARNERS: dict[str, Callable[[], PairwisePolicy]] = {
    make.__name__: make for make in (small, large, exploring, labelled, unanswered, thompson, held)
}
DEEP, SHORT = "history.2.counted.0", "history.1.counted.0"  # rounds to the last arm; to arm 1
LAST_ONCE = "history.1.single.3"  # which is not full

# What is written into each part of a learner: (value, *place); everywhere without a place.
WRONG_VALUES: dict[str, dict[str, list[tuple[Any, ...]]]] = {
    "small": {
        "rounds": [(5,), (2**60,)],
        "explored": [(2,)],
        "beaten_by": [(3, 0), (10**12, 1), (-3, 0), (1, 1)],  # no arm; not deeper than the arm
        "history.2.counted.blocks": [(0,), (2,), (2**62,)],
        f"{DEEP}.rows": [(0,), (65,), (59,), (61,)],
        f"{DEEP}.x": [(math.nan, 1, 3), (1e300, 0, 0), (2.5, 0, 0)],
        f"{DEEP}.counts": [(0, 0), (2**31 - 1, 0), (1, 63)],
        f"{DEEP}.positives": [(2, 0, 0), (1, 0, 63)],
        f"{SHORT}.positives": [(1, 1, 0)],  # of a pair whose second arm did not run
        "history.entries": [(4097,)],
        "history.index": [(3, 0, 0), (63, 0, 1), (2**32 - 1, 0, 1)],
        "gram.0.count": [(81.0,), (1.0,)],
        "gram.0.reciprocal": [(0.0, 0), (-0.1,), (1e300, 0), (1e-300, 0)],
        "gram.0.lower": [(1e250,)],
        "model.0.anchored": [(2,), (0,)],
        "model.1.anchored": [(1,)],
        "model.0.count": [(-1.0,), (1e9,), (1.0,)],
        "model.0.theta_g": [(1e200,)],
        "model.0.reciprocal": [(0.0, 0)],
        "model.0.reach": [(-1.0,)],
        "model.0.shift": [(-1.0,)],
        "model.0.lightest": [(0.0,), (0.3,)],
        "label.any": [(2,), (1,)],
    },
    "large": {
        f"{LAST_ONCE}.answers": [(1 << 63, 0)],  # of no row
        "history.1.single.0.answers": [(1, 1)],
        f"{LAST_ONCE}.rows": [(29,)],
    },
    "exploring": {"gram.1.count": [(121.0,)], "model.0.count": [(1.0,)]},
    "labelled": {
        "label.any": [(0,)],
        "label.fixed": [(4,)],
        "label.depths": [(-1.0, 0, 2), (1e300, 1, 0)],
        "label.heaviest": [(-1.0,)],
        "label.0.residuals": [(-1.0,), (1e300,)],
        "label.0.pooled.moment": [(1e300, 0)],
        "label.0.local.gram": [(-1.0, 0), (1e300, 1)],
    },
    "unanswered": {
        "label.any": [(0,)],
        "label.0.missing": [(0,), (2**60,)],
        "label.0.missing_pooled.moment": [(1e300, 0)],
        "label.0.missing_local.gram": [(-1.0, 0), (1e300, 1)],
        "request.answered": [(2**60,)],
        "request.dropped": [(2**60,)],
        "request.waiting": [(10_001,), (2**62,)],
        "request.0.probability": [(0.0,), (1.5,)],
        "request.0.explored": [(-0.5,), (1.5,)],
        "request.0.round": [(-1.0,), (1e9,)],
        "request.0.arms": [(1,), (4,)],
        "request.0.rule_stop": [(3,)],
        "request.0.missing": [(2,)],
        "request.0.row": [(1.1, 0)],
        "request.0.differ": [(2, 0)],
    },
    "thompson": {"label.any": [(1,)]},
}


def without_last_row(parts: archive.Parts, block: str = DEEP) -> None:
    """Take the last row from a block, so that the block itself is consistent."""
    parts[f"{block}.rows"] -= 1
    n = int(parts[f"{block}.rows"][0])
    parts[f"{block}.x"] = parts[f"{block}.x"][:, :n].copy()
    for part in ("counts", "positives"):
        parts[f"{block}.{part}"][..., n:] = 0


def fewer_contexts_in_index(parts: archive.Parts) -> None:
    parts["history.entries"] -= 10
    parts["history.index"] = parts["history.index"][:-10]


def room_in_index(parts: archive.Parts) -> None:
    """Leave room in the index, although rows are stored singly because it is full."""
    last = int(parts["history.2.counted.blocks"][0]) - 1
    without_last_row(parts, f"history.2.counted.{last}")
    index = parts["history.index"].tolist()
    index.remove([2, 64 * last + int(parts[f"history.2.counted.{last}.rows"][0])])
    parts["history.index"] = np.array(index, dtype=np.uint32)
    parts["history.entries"] -= 1


def place_twice_in_index(parts: archive.Parts) -> None:
    parts["history.index"][1] = parts["history.index"][0]


def context_twice(parts: archive.Parts) -> None:
    parts[f"{DEEP}.x"][:, 1] = parts[f"{DEEP}.x"][:, 0]


def labels_missing(parts: archive.Parts) -> None:
    for name in [name for name in parts if name.startswith("label.") and name[6].isdigit()]:
        del parts[name]


WRONG_STRUCTURE: dict[str, list[Callable[[archive.Parts], None]]] = {
    "small": [without_last_row, fewer_contexts_in_index, place_twice_in_index, context_twice],
    "large": [without_last_row, room_in_index, fewer_contexts_in_index],
    "labelled": [labels_missing],
}


@cache
def saved(name: str) -> tuple[PairwisePolicy, dict[str, NDArray[Any]]]:
    """Return a learner, and its state as it must stay."""
    policy = LEARNERS[name]()
    return policy, policy.state()


def assert_refused(name: str, learner: NDArray[np.uint8]) -> None:
    """Refused by a trained policy, whose state stays as it was."""
    policy, before = saved(name)
    with pytest.raises(ValueError, match=r"."):
        policy.restore(before | {"learner": learner})
    assert_same(before, policy.state())


def refused(name: str, change: Callable[[archive.Parts], object]) -> None:
    parts = archive.parts(saved(name)[0])
    before = archive.joined(parts)
    change(parts)
    assert not np.array_equal(archive.joined(parts), before)
    assert_refused(name, archive.joined(parts))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_number_that_is_not_finite_or_a_negative_count_is_refused_in_every_part(
    name: str,
) -> None:
    parts = archive.parts(saved(name)[0])
    named = {re.sub(r"\d+", "", part): part for part, held in parts.items() if held.size}
    wrong = {"f": (math.nan, -math.inf), "i": (-1,), "u": ()}
    for part in named.values():  # the last of its kind
        for value in wrong[parts[part].dtype.kind]:
            refused(name, lambda parts, part=part, v=value: parts[part].flat.__setitem__(-1, v))


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_wrong_values_in_a_learner_are_refused(name: str) -> None:
    for part, values in WRONG_VALUES[name].items():
        for value, *place in values:
            at = tuple(place) or ...
            refused(name, lambda parts, p=part, v=value, at=at: parts[p].__setitem__(at, v))
    for change in WRONG_STRUCTURE.get(name, []):
        refused(name, change)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_cascade_of_another_length_or_plan_is_refused(name: str, path: Path) -> None:
    policy, before = saved(name)
    learner, ends, end = before["learner"], {0}, 0
    for part in archive.parts(policy).values():  # at its end, within it, within a number of it
        ends |= {end + part.nbytes // 2, end + part.itemsize // 2}
        end += part.nbytes
        ends |= {end}
    for length in sorted(ends - {end})[:: 1 + len(ends) // 100]:
        with pytest.raises(ValueError, match=r"."):
            policy.restore(before | {"learner": learner[:length]})
    assert_refused(name, learner[: end // 2])
    for more in (1, 8, 4096):
        assert_refused(name, np.concatenate([learner, learner[:more]]))
    assert_refused(name, saved("labelled" if name == "exploring" else "exploring")[1]["learner"])
    craft(path, policy, arrays={"learner": learner[:-1]})
    assert_corrupt(path)


# -------------------------------------------------------------------- a changed cascade, features


def test_loading_for_a_changed_cascade_names_the_difference(path: Path) -> None:
    trained().save(path)
    for difference, cascade in {
        "'model' cost 0.15, now 0.2": sw.Cascade([0.05, 0.2, 0.2], names=NAMES),
        "named 'model', now 'tree'": sw.Cascade(CASCADE.costs, ["rule", "tree", "expert"]),
        "3 arms, now 2": sw.Cascade([0.05, 0.15], names=NAMES[:2]),
        "trade-off 1, now 2": sw.Cascade(CASCADE.costs, NAMES, tradeoff=[1, 1, 2]),
    }.items():
        with pytest.raises(sw.errors.CascadeMismatchError, match=difference):
            sw.load(path, cascade=cascade)
    near = sw.Cascade.from_cumulative([0.05, 0.2, 0.4], names=NAMES)  # equal but for rounding
    assert sw.load(path, cascade=near).cascade == CASCADE


def radial(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([1.0, x[0] ** 2 + x[1] ** 2]) / 3


def skewed(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([1.0, x[0] ** 3 + x[1] ** 2]) / 3


def test_a_custom_map_must_be_given_again_under_any_name(path: Path) -> None:
    policy = trained(features=radial)
    policy.save(path)
    with pytest.raises(
        sw.errors.FeaturesMismatchError, match=r"'radial' \(2 features\).*features="
    ):
        sw.load(path)
    for given in (radial, lambda x: radial(x)):
        assert_same(sw.load(path, features=given).state(), policy.state())
    for other in (skewed, lambda x: [0.5], sw.Identity(), sw.PerStage([sw.Identity()])):
        with pytest.raises(sw.errors.FeaturesMismatchError):
            sw.load(path, features=other)


def test_a_map_that_fails_where_it_is_never_evaluated_can_be_saved(path: Path) -> None:
    inverse = sw.Custom(lambda x: [1 / (1 + 1 / abs(float(x[0])))], n_features=1)  # not at zero
    trained(features=inverse).save(path)
    assert loaded(path, features=inverse).rounds == 60


def test_built_in_maps_are_restored_and_checked_if_given(path: Path) -> None:
    features = sw.PerStage([sw.Identity(), sw.Polynomial()])
    policy = trained(features=features)
    policy.save(path)
    assert sw.load(path, features=features).features == sw.load(path).features == policy.features
    with pytest.raises(sw.errors.FeaturesMismatchError):
        sw.load(path, features=sw.Polynomial(degree=3))


# ------------------------------------------------------------------------- complete or not at all


def test_saving_replaces_the_old_file_and_leaves_nothing_else(path: Path) -> None:
    policy = trained("uss-ucb")
    policy.save(path)
    policy.observe(0.0, [1])
    policy.save(str(path))
    assert loaded(path).rounds == 61
    first = path.read_bytes()
    policy.save(path)
    assert path.read_bytes() == first
    (path.parent / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        policy.save(path.parent / "taken")
    with pytest.raises(FileNotFoundError):
        policy.save(path.parent / "nowhere" / "policy")
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, "taken"]


SAVE_FOR_EVER = """
import sys, stopwise as sw
policy = sw.USSUCB(sw.Cascade([0.1] * 3))
for _ in range(10**9):
    policy.observe(0.0, [1, 0, 1])
    policy.save(sys.argv[1])
"""


def test_a_process_killed_while_saving_leaves_a_complete_file(path: Path) -> None:
    sw.USSUCB(sw.Cascade([0.1] * 3)).save(path)
    source = str(Path(str(sw.__file__)).parents[1])
    saver = subprocess.Popen(
        [sys.executable, "-c", SAVE_FOR_EVER, path], env=os.environ | {"PYTHONPATH": source}
    )
    seen = [0]
    give_up = time.monotonic() + 60
    try:
        # A process stopped at any moment has left on disk what a killed one would have.
        while len(set(seen)) <= 20 and time.monotonic() < give_up:
            saver.send_signal(signal.SIGSTOP)
            seen.append(loaded(path).rounds)
            saver.send_signal(signal.SIGCONT)
            os.sched_yield()
    finally:
        saver.kill()
        saver.wait()
    assert loaded(path).rounds >= seen[-1]
    assert seen == sorted(seen)
    assert len(set(seen)) > 20
