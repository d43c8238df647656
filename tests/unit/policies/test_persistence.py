"""Tests of saving and loading policies: atomic writes and validation of file contents."""

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


def load(path: Path, **options: Any) -> Any:
    return sw.load(path, **options)


def trained(name: str = "uss-pd", **parameters: Any) -> Any:
    policy = sw.make(name, CASCADE, context_dim=2, **parameters)
    policy.run(CONTEXTS, OUTPUTS)
    return policy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy.stopwise"


def craft(path: Path, policy: sw.Policy, /, without: str = "", **changes: Any) -> None:
    """Save with some fields, or some of ``arrays``, replaced and a valid checksum."""
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


def test_a_truncated_extended_or_foreign_file_is_rejected(path: Path) -> None:
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


def test_a_single_flipped_bit_is_detected(path: Path) -> None:
    trained("uss-ucb").save(path)
    content = path.read_bytes()
    for position in [*range(44), *range(44, len(content), 7)]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        in_version = 8 <= position < 12
        with pytest.raises(
            sw.errors.UnsupportedVersionError if in_version else sw.errors.CorruptFileError
        ):
            persistence.decode(bytes(damaged))


@pytest.mark.parametrize(
    ("version", "advice"), [(10, "update Stopwise"), (0, "observe_many"), (2, "observe_many")]
)
def test_another_version_is_rejected_with_advice(version: int, advice: str, path: Path) -> None:
    trained().save(path)
    body = path.read_bytes()[persistence._HEAD :]
    write(path, body, version=version)
    with pytest.raises(sw.errors.UnsupportedVersionError, match=f"format {version}.*{advice}"):
        sw.load(path)


# ---------------------------------------------------- invalid contents with a valid checksum


def raw(dtype: str, shape: tuple[int, ...], size: int) -> dict[str, Any]:
    return {"arrays": {"learner": persistence._Array(dtype, shape, b"\0" * size)}}


INVALID: list[dict[str, Any]] = [
    {"policy": "uss-xyz"},
    {"cascade": {}},
    {"cascade": {**CASCADE.to_dict(), "costs": [0.1, -1.0, 0.2]}},
    {"cascade": {**CASCADE.to_dict(), "names": 3}},
    *({"features": spec} for spec in (None, {}, {"kind": "shared", "maps": 3})),
    *({"parameters": parameters} for parameters in ({"delta": 2.0}, {"unknown": 1})),
    {"parameters": {"delta": 0.05, "forced_rounds": math.inf}},
    *({"arrays": {"learner": np.zeros(shape, np.uint8)}} for shape in ((2, 8), ())),
    {"arrays": {"learner": np.zeros(8)}},
    *(raw("|O", (2,), 16), raw("|u1", (9,), 8), raw("(2,f8", (1,), 8)),
]


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode([1, 2])])
def test_an_invalid_body_is_rejected_with_the_name_of_the_file(body: bytes, path: Path) -> None:
    write(path, body)
    assert_corrupt(path)


@pytest.mark.parametrize("changes", INVALID)
def test_invalid_contents_are_rejected_with_the_name_of_the_file(
    changes: dict[str, Any], path: Path
) -> None:
    craft(path, trained(), **changes)
    assert_corrupt(path)


def test_a_file_with_invalid_features_is_rejected_with_any_features(path: Path) -> None:
    craft(path, trained(), features={"kind": "shared", "context_dim": 2, "n_arms": 3, "maps": [{}]})
    assert_corrupt(path, f"{path.name}: invalid features")
    with pytest.raises(sw.errors.FeaturesMismatchError, match=path.name):
        sw.load(path, features=sw.Identity())


@pytest.mark.parametrize("name", ["uss-pd", "uss-ucb", "thompson", "random-depth"])
def test_a_missing_array_is_rejected(name: str, path: Path) -> None:
    policy = trained(name)
    for missing in policy.state():
        craft(path, policy, without=missing)
        assert_corrupt(path, missing)


COUNTS: list[tuple[str, Any]] = [
    ("n", [1.5] * 3),
    ("n", [-4] * 3),
    ("n", [60] * 4),
    ("n", [10, 20, 30]),  # a deeper arm ran more often
    ("disagreed", [[99] * 3] * 3),
    ("disagreed", [[0, 0, 0], [1, 0, 0], [0, 1, 0]]),
    *(("rounds", values) for values in ([-5], [[]], [math.inf], [1])),
    *(("random", values) for values in ([0] * 4, [1] * 5)),
]


@pytest.mark.parametrize(("array", "values"), COUNTS)
@pytest.mark.parametrize("name", ["uss-ucb", "uss-ts"])
def test_inconsistent_counts_are_rejected(name: str, array: str, values: Any, path: Path) -> None:
    craft(path, trained(name), arrays={array: np.array(values)})
    assert_corrupt(path)


@pytest.mark.parametrize("decisions", [[-1], [1, 2], [0.5]])
def test_an_invalid_number_of_decisions_is_rejected_and_changes_nothing(
    decisions: list[float], path: Path
) -> None:
    policy = trained("random-depth")
    before, arrays = policy.state(), {"decisions": np.array(decisions)}
    craft(path, policy, arrays=arrays)
    assert_corrupt(path)
    with pytest.raises(ValueError, match="decisions"):
        policy.restore(before | arrays)
    assert_same(before, policy.state())


# ---------------------------------------------------------------- inconsistent learner states


def small() -> sw.USSPD:
    """Return a policy after 80 rounds with distinct contexts, some of which stopped at arm 1."""
    policy = trained(forced_rounds=20)
    for x in np.random.default_rng(2).uniform(-1, 1, (20, 2)):
        policy.observe(x, [0, 1])
    return policy


def large() -> sw.USSPD:
    """Return a policy with more rows than are counted."""
    policy = sw.USSPD(CASCADE, context_dim=2)
    rng = np.random.default_rng(1)
    for x, stop in zip(rng.uniform(-1, 1, (8600, 2)), rng.integers(1, 3, 8600), strict=True):
        policy.observe(x, [0, 1, 0][: stop + 1])
    policy.decide([0.1, 0.2])
    return policy


def exploring() -> sw.USSPD:
    """Return a policy with revealed context and drawn answers."""
    policy = sw.USSPD(CASCADE, sw.Identity(), 1, reveals=[0, 1], forced_rounds=5, explore=0.25)
    for x, outputs in zip(CONTEXTS, OUTPUTS.tolist(), strict=True):
        policy.observe(x, outputs[: 2 + int(x[0] > 0)], rule_stop=1)
    policy.run(CONTEXTS, OUTPUTS)
    return policy


def unfitted() -> sw.USSLaplace:
    """Return a policy with labels whose features are not fitted yet."""
    policy = sw.USSLaplace(CASCADE, context_dim=2, labels=20)
    policy.run(CONTEXTS, OUTPUTS, labels=OUTPUTS[:, -1])
    assert policy.labels.received > 0
    return policy


def labelled() -> sw.USSPD:
    """Return a policy with a label for every round."""
    policy = trained(forced_rounds=20)
    for x, outputs in zip(CONTEXTS, OUTPUTS.tolist(), strict=True):
        policy.learn_label(label_of(x, outputs, 1))
    policy.decide_many(CONTEXTS)
    return policy


def unanswered() -> sw.USSLaplace:
    """Return a policy with received, missing and open label requests."""
    policy = sw.USSLaplace(CASCADE, sw.Polynomial(1), 2, labels=0.9)
    labels = np.array([1 if t % 3 and t < 45 else None for t in range(len(CONTEXTS))])
    policy.run(CONTEXTS, OUTPUTS, labels=labels)
    assert (
        0
        < policy.labels.missing
        < policy.labels.missing + policy.labels.received
        < policy.labels.requested
    )
    return policy


def thompson() -> sw.Thompson:
    return trained("thompson", forced_rounds=20)


LEARNERS: dict[str, Callable[[], PairwisePolicy]] = {
    make.__name__: make
    for make in (small, large, exploring, labelled, unanswered, thompson, unfitted)
}
# Blocks of counted rows: rounds to the last arm, and to arm 1.
DEEP = "history.2.counted.0"
SHORT = "history.1.counted.0"
LAST_SINGLE = "history.1.single.3"  # not full

# Values written into each part of a learner: (value, *index); everywhere without an index.
INVALID_VALUES: dict[str, dict[str, list[tuple[Any, ...]]]] = {
    "small": {
        "rounds": [(5,), (2**60,)],
        "explored": [(2,)],
        "beaten_by": [(3, 0), (10**12, 1), (-3, 0), (1, 1)],  # out of range; not deeper
        "history.2.counted.blocks": [(0,), (2,), (2**62,)],
        f"{DEEP}.rows": [(0,), (65,), (59,), (61,)],
        f"{DEEP}.x": [(math.nan, 1, 3), (1e300, 0, 0), (2.5, 0, 0)],
        f"{DEEP}.counts": [(0, 0), (2**31 - 1, 0), (1, 63)],
        f"{DEEP}.positives": [(2, 0, 0), (1, 0, 63)],
        f"{SHORT}.positives": [(1, 1, 0)],  # a pair whose second arm did not run
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
        f"{LAST_SINGLE}.answers": [(1 << 63, 0)],  # a missing row
        "history.1.single.0.answers": [(1, 1)],
        f"{LAST_SINGLE}.rows": [(29,)],
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
    """Remove the last row of a block, leaving the block itself consistent."""
    parts[f"{block}.rows"] -= 1
    n = int(parts[f"{block}.rows"][0])
    parts[f"{block}.x"] = parts[f"{block}.x"][:, :n].copy()
    for part in ("counts", "positives"):
        parts[f"{block}.{part}"][..., n:] = 0


def fewer_contexts_in_index(parts: archive.Parts) -> None:
    parts["history.entries"] -= 10
    parts["history.index"] = parts["history.index"][:-10]


def room_in_index(parts: archive.Parts) -> None:
    """Remove an entry of the full index although single rows exist."""
    last = int(parts["history.2.counted.blocks"][0]) - 1
    without_last_row(parts, f"history.2.counted.{last}")
    index = parts["history.index"].tolist()
    index.remove([2, 64 * last + int(parts[f"history.2.counted.{last}.rows"][0])])
    parts["history.index"] = np.array(index, dtype=np.uint32)
    parts["history.entries"] -= 1


def duplicate_index_entry(parts: archive.Parts) -> None:
    parts["history.index"][1] = parts["history.index"][0]


def duplicate_context(parts: archive.Parts) -> None:
    parts[f"{DEEP}.x"][:, 1] = parts[f"{DEEP}.x"][:, 0]


def without_labels(parts: archive.Parts) -> None:
    for name in [name for name in parts if name.startswith("label.") and name[6].isdigit()]:
        del parts[name]


INVALID_STRUCTURE: dict[str, list[Callable[[archive.Parts], None]]] = {
    "small": [without_last_row, fewer_contexts_in_index, duplicate_index_entry, duplicate_context],
    "large": [without_last_row, room_in_index, fewer_contexts_in_index],
    "labelled": [without_labels],
}


@cache
def saved(name: str) -> tuple[PairwisePolicy, dict[str, NDArray[Any]]]:
    """Return a policy and its state."""
    policy = LEARNERS[name]()
    return policy, policy.state()


def assert_rejected(name: str, learner: NDArray[np.uint8]) -> None:
    """Assert that a trained policy rejects a learner state and keeps its own."""
    policy, before = saved(name)
    with pytest.raises(ValueError, match=r"."):
        policy.restore(before | {"learner": learner})
    assert_same(before, policy.state())


def assert_change_rejected(name: str, change: Callable[[archive.Parts], object]) -> None:
    parts = archive.parts(saved(name)[0])
    before = archive.joined(parts)
    change(parts)
    assert not np.array_equal(archive.joined(parts), before)
    assert_rejected(name, archive.joined(parts))


@pytest.mark.parametrize("name", LEARNERS)
def test_infinite_numbers_and_negative_counts_are_rejected(name: str) -> None:
    parts = archive.parts(saved(name)[0])
    last = {re.sub(r"\d+", "", part): part for part, array in parts.items() if array.size}
    invalid = {"f": (math.nan, -math.inf), "i": (-1,), "u": ()}
    for part in last.values():
        for value in invalid[parts[part].dtype.kind]:
            assert_change_rejected(
                name, lambda parts, part=part, v=value: parts[part].flat.__setitem__(-1, v)
            )


@pytest.mark.parametrize("name", INVALID_VALUES)
def test_invalid_values_in_a_learner_are_rejected(name: str) -> None:
    for part, values in INVALID_VALUES[name].items():
        for value, *position in values:
            index = tuple(position) or ...
            assert_change_rejected(
                name, lambda parts, p=part, v=value, index=index: parts[p].__setitem__(index, v)
            )
    for change in INVALID_STRUCTURE.get(name, []):
        assert_change_rejected(name, change)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_state_of_the_wrong_length_or_plan_is_rejected(name: str, path: Path) -> None:
    policy, before = saved(name)
    learner, lengths, size = before["learner"], {0}, 0
    for part in archive.parts(policy).values():  # cut after, within and inside a number of a part
        lengths |= {size + part.nbytes // 2, size + part.itemsize // 2}
        size += part.nbytes
        lengths |= {size}
    for length in sorted(lengths - {size})[:: 1 + len(lengths) // 100]:
        with pytest.raises(ValueError, match=r"."):
            policy.restore(before | {"learner": learner[:length]})
    assert_rejected(name, learner[: size // 2])
    for extra in (1, 8, 4096):
        assert_rejected(name, np.concatenate([learner, learner[:extra]]))
    assert_rejected(name, saved("labelled" if name == "exploring" else "exploring")[1]["learner"])
    craft(path, policy, arrays={"learner": learner[:-1]})
    assert_corrupt(path)


# -------------------------------------------------------------------- a changed cascade, features


@pytest.mark.parametrize(
    ("cascade", "difference"),
    [
        (sw.Cascade([0.05, 0.2, 0.2], names=NAMES), "cost of 'model': 0.15 vs 0.2"),
        (sw.Cascade(CASCADE.costs, ["rule", "tree", "expert"]), "name of arm 1: 'model' vs 'tree'"),
        (sw.Cascade([0.05, 0.15], names=NAMES[:2]), "number of arms: 3 vs 2"),
        (sw.Cascade(CASCADE.costs, NAMES, tradeoff=[1, 1, 2]), "trade-off of 'expert': 1 vs 2"),
    ],
)
def test_load_names_the_difference_to_a_changed_cascade(
    cascade: sw.Cascade, difference: str, path: Path
) -> None:
    trained().save(path)
    with pytest.raises(sw.errors.CascadeMismatchError, match=difference):
        sw.load(path, cascade=cascade)


def test_load_accepts_a_cascade_that_differs_by_rounding(path: Path) -> None:
    trained().save(path)
    rounded = sw.Cascade.from_cumulative([0.05, 0.2, 0.4], names=NAMES)
    assert sw.load(path, cascade=rounded).cascade == CASCADE


def radial(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([1.0, x[0] ** 2 + x[1] ** 2]) / 3


def skewed(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([1.0, x[0] ** 3 + x[1] ** 2]) / 3


def test_a_custom_map_must_be_passed_again_under_any_name(path: Path) -> None:
    policy = trained(features=radial)
    policy.save(path)
    with pytest.raises(
        sw.errors.FeaturesMismatchError, match=r"'radial' \(2 features\).*features="
    ):
        sw.load(path)
    for features in (radial, lambda x: radial(x)):
        assert_same(sw.load(path, features=features).state(), policy.state())
    for other in (skewed, lambda x: [0.5], sw.Identity(), sw.PerStage([sw.Identity()])):
        with pytest.raises(sw.errors.FeaturesMismatchError):
            sw.load(path, features=other)


def test_a_map_that_fails_at_the_fixed_contexts_can_be_saved(path: Path) -> None:
    inverse = sw.Custom(lambda x: [1 / (1 + 1 / abs(float(x[0])))], n_features=1)  # not at zero
    trained(features=inverse).save(path)
    assert load(path, features=inverse).rounds == 60


def test_built_in_maps_are_restored_and_compared_with_features(path: Path) -> None:
    features = sw.PerStage([sw.Identity(), sw.Polynomial()])
    policy = trained(features=features)
    policy.save(path)
    assert sw.load(path, features=features).features == sw.load(path).features == policy.features
    with pytest.raises(sw.errors.FeaturesMismatchError):
        sw.load(path, features=sw.Polynomial(degree=3))


# ---------------------------------------------------------------------------- atomic writing


def test_save_replaces_the_old_file_and_leaves_no_other_files(path: Path) -> None:
    policy = trained("uss-ucb")
    policy.save(path)
    policy.observe(0.0, [1])
    policy.save(str(path))
    assert load(path).rounds == 61
    first = path.read_bytes()
    policy.save(path)
    assert path.read_bytes() == first
    (path.parent / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        policy.save(path.parent / "taken")
    with pytest.raises(FileNotFoundError):
        policy.save(path.parent / "nowhere" / "policy")
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, "taken"]


SAVE_FOREVER = """
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
        [sys.executable, "-c", SAVE_FOREVER, path], env=os.environ | {"PYTHONPATH": source}
    )
    seen = [0]
    deadline = time.monotonic() + 60
    try:
        # A stopped process leaves the same files as a killed one.
        while len(set(seen)) <= 20 and time.monotonic() < deadline:
            saver.send_signal(signal.SIGSTOP)
            seen.append(load(path).rounds)
            saver.send_signal(signal.SIGCONT)
            os.sched_yield()
    finally:
        saver.kill()
        saver.wait()
    assert load(path).rounds >= seen[-1]
    assert seen == sorted(seen)
    assert len(set(seen)) > 20
