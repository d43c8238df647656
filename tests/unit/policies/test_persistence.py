"""Saved policies: complete or not at all, and nothing in a file is trusted before it is checked."""

import hashlib
import math
import os
import pickle
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
from stopwise.policies.contextual import Contextual
from tests.helpers import archive

NAMES = ["rule", "model", "expert"]
CASCADE = sw.Cascade([0.05, 0.15, 0.2], names=NAMES)
RNG = np.random.default_rng(0)
CONTEXTS = RNG.uniform(-1, 1, (60, 2))
OUTPUTS = RNG.integers(0, 2, (60, 3))


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
    with pytest.raises(sw.CorruptFileError, match=match or path.name):
        sw.load(path)


def assert_same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> None:
    assert one.keys() == other.keys()
    for part, array in one.items():
        np.testing.assert_array_equal(array, other[part], err_msg=part)


# ------------------------------------------------------------------------------- damaged files


def test_a_truncated_or_longer_file_is_refused(path: Path) -> None:
    trained().save(path)
    content = path.read_bytes()
    for length in [*range(0, 60, 3), *range(60, len(content), 1997), len(content) - 1]:
        path.write_bytes(content[:length])
        assert_corrupt(path)
    path.write_bytes(content + b"\0")
    assert_corrupt(path)


def test_a_single_flipped_bit_is_found_wherever_it_is(path: Path) -> None:
    trained("uss-ucb").save(path)
    content = path.read_bytes()
    for place in [*range(44), *range(44, len(content), 7)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        in_version = 8 <= place < 12
        with pytest.raises(sw.UnsupportedVersionError if in_version else sw.CorruptFileError):
            persistence.decode(bytes(damaged))


@pytest.mark.parametrize(
    "content", [b"costs: [0.1]\n", b"PK\3\4", pickle.dumps({"a": 1}), persistence.MAGIC]
)
def test_a_foreign_file_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    assert_corrupt(path)


def test_a_directory_and_a_missing_file_are_refused(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sw.load(path)
    path.mkdir()
    assert_corrupt(path)


@pytest.mark.parametrize(
    ("version", "advice"), [(7, "Update Stopwise"), (0, "observe_many"), (2, "observe_many")]
)
def test_another_version_is_named_with_what_to_do(version: int, advice: str, path: Path) -> None:
    trained().save(path)
    write(path, path.read_bytes()[persistence._HEAD :], version=version)
    with pytest.raises(sw.UnsupportedVersionError, match=f"format {version}(.|\n)*{advice}"):
        sw.load(path)


# ------------------------------------------- a right checksum does not make the contents right


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode([1, 2])])
def test_contents_that_are_no_policy_are_refused(body: bytes, path: Path) -> None:
    write(path, body)
    assert_corrupt(path)


FIELDS: list[tuple[str, Any]] = [
    ("policy", "uss-xyz"),
    ("cascade", {}),
    ("cascade", {**CASCADE.to_dict(), "costs": [0.1, -1.0, 0.2]}),
    ("cascade", {**CASCADE.to_dict(), "names": 3}),
    ("features", None),
    ("features", {}),
    ("features", {"kind": "shared", "maps": 3}),
    *(
        ("parameters", {"delta": 0.05, **changed})
        for changed in ({"delta": 2.0}, {"forced_rounds": math.inf}, {"unheard_of": 1})
    ),
]


@pytest.mark.parametrize(("field", "value"), FIELDS)
def test_impossible_fields_are_refused(field: str, value: Any, path: Path) -> None:
    craft(path, trained(), **{field: value})
    assert_corrupt(path, r"contradict|" + field)


def array(dtype: str, shape: tuple[int, ...], size: int) -> Any:
    return persistence._Array(dtype, shape, b"\0" * size)


@pytest.mark.parametrize(
    "learner",
    [
        *(np.zeros(8), np.zeros((2, 8), dtype=np.uint8), np.zeros((), dtype=np.uint8)),
        *(array("|O", (2,), 16), array("|u1", (9,), 8), array("(2,f8", (1,), 8)),
    ],
)
def test_a_learner_that_is_not_bytes_is_refused(learner: Any, path: Path) -> None:
    craft(path, trained(), arrays={"learner": learner})
    assert_corrupt(path)


@pytest.mark.parametrize("name", ["uss-pd", "uss-ucb", "thompson", "random-depth"])
def test_a_missing_array_is_refused(name: str, path: Path) -> None:
    policy = trained(name)
    for missing in policy.state():
        craft(path, policy, without=missing)
        assert_corrupt(path, missing)


COUNTS: list[dict[str, Any]] = [
    {"n": np.array([1.5] * 3)},
    {"n": np.array([-4] * 3)},
    {"n": np.array([60] * 4)},
    {"n": np.array([10, 20, 30])},  # a deeper arm was revealed more often
    {"disagreed": np.full((3, 3), 99)},
    {"disagreed": np.eye(3, k=-1, dtype=np.int64)},
    {"rounds": np.array([-5])},
    {"rounds": np.array([], dtype=np.int64)},
    {"rounds": np.array([math.inf])},
    {"rounds": np.array([1])},
    {"random": np.zeros(4, dtype=np.int64)},
    {"random": np.ones(5, dtype=np.int64)},
]


@pytest.mark.parametrize("name", ["uss-ucb", "uss-ts"])
def test_counts_that_contradict_each_other_are_refused(name: str, path: Path) -> None:
    for arrays in COUNTS:
        craft(path, trained(name), arrays=arrays)
        assert_corrupt(path)


NO_STREAMS = [
    b"",
    b"hello",
    b"[]",
    b'{"bit_generator":"MT19937","state":{}}',
    b'{"bit_generator":"PCG64","state":{"state":"%d","inc":"1"},"has_uint32":"0","uinteger":"0"}'
    % 2**140,
]


@pytest.mark.parametrize("name", ["thompson", "uss-ts", "random-depth", "exploring"])
def test_an_impossible_random_state_is_refused_and_changes_nothing(name: str, path: Path) -> None:
    policy = exploring() if name == "exploring" else trained(name)
    before = policy.state()
    for text in NO_STREAMS:
        arrays = {"random": np.frombuffer(text, dtype=np.uint8)}
        craft(path, policy, arrays=arrays)
        assert_corrupt(path)
        with pytest.raises(ValueError, match="random"):
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
    """Rounds with weights: one in four is continued at random."""
    stages = sw.PerStage([sw.Identity(), sw.Identity()], sees=[1, 2])
    policy = sw.USSPD(CASCADE, stages, 2, forced_rounds=20, full_depth_every=4)
    for x, outputs in zip(CONTEXTS, OUTPUTS.tolist(), strict=True):
        policy.observe(x, outputs, rule_stop=int(x[0] > 0))
    policy.decide_many(CONTEXTS)
    return policy


def labelled() -> sw.USSPD:
    """Every round with its right answer."""
    policy = trained(forced_rounds=20)
    for x, outputs in zip(CONTEXTS, OUTPUTS.tolist(), strict=True):
        done = sw.Round("", 0.0, tuple(x.tolist()), tuple(outputs), tuple(outputs), 2, 2)
        policy.audit(done, 1)
    policy.decide_many(CONTEXTS)
    return policy


def thompson() -> sw.Thompson:
    return trained("thompson", forced_rounds=20)


LEARNERS: dict[str, Callable[[], Contextual]] = {
    make.__name__: make for make in (small, large, exploring, labelled, thompson)
}
NAN, INF = math.nan, math.inf
DEEP, SHORT = "history.2.counted.0", "history.1.counted.0"  # rounds to the last arm; to arm 1
ONCE, LAST_ONCE = "history.2.single.0", "history.1.single.3"  # the latter is not full
LABEL = "label.0.history.2.counted.0"

# What is written into each part of a learner: (value, *place); everywhere without a place.
WRONG_VALUES: dict[str, dict[str, list[tuple[Any, ...]]]] = {
    "small": {
        "rounds": [(-1,), (5,), (2**60,)],
        "explored": [(2,)],
        "effort": [(-1, 1)],
        "beaten_by": [(3, 0), (10**12, 1), (-3, 0), (1, 1)],  # no arm; not deeper than the arm
        "history.2.counted.blocks": [(0,), (2,), (2**62,)],
        "history.0.single.blocks": [(-1,)],
        f"{DEEP}.rows": [(0,), (65,), (-1,), (59,), (61,)],
        f"{DEEP}.x": [(NAN,), (NAN, 1, 3), (INF, 0, 0), (1e300, 0, 0), (2.5, 0, 0)],
        f"{DEEP}.counts": [(0, 0), (-1, 0), (2**31 - 1, 0), (1, 63)],
        f"{DEEP}.positives": [(2, 0, 0), (-1, 0, 0), (1, 0, 63)],
        f"{SHORT}.positives": [(1, 1, 0)],  # of a pair whose second arm did not run
        "history.entries": [(-1,), (4097,)],
        "history.index": [(3, 0, 0), (63, 0, 1), (2**32 - 1, 0, 1)],
        "gram.0.count": [(NAN,), (-1.0,), (81.0,), (1.0,)],
        "gram.0.heaviest": [(2.0,), (NAN,), (0.5,)],
        "gram.0.reciprocal": [(NAN,), (0.0, 0), (-0.1,), (INF,), (1e300, 0), (1e-300, 0)],
        "gram.0.lower": [(NAN,), (INF,), (1e250,)],
        "model.0.anchored": [(2,), (0,)],
        "model.1.anchored": [(1,)],
        "model.0.count": [(NAN,), (-1.0,), (1e9,), (1.0,)],
        "model.0.theta_g": [(NAN,), (1e200,)],
        "model.0.theta_h": [(INF, 0)],
        "model.0.gradient": [(NAN, 1)],
        "model.0.step": [(-INF, 0)],
        "model.0.reciprocal": [(NAN, 0), (0.0, 0)],
        "model.0.lower": [(NAN,)],
        "model.0.since": [(-1,)],
        "model.0.reach": [(NAN,), (-1.0,)],
        "model.0.reach_age": [(INF,)],
        "model.0.shift": [(-1.0,)],
        "model.0.lightest": [(0.0,), (0.3,)],
        "model.0.trace": [(NAN,)],
        "label.rounds": [(-1,)],
        "label.any": [(2,), (1,)],
    },
    "large": {
        f"{LAST_ONCE}.answers": [(1 << 63, 0)],  # of no row
        "history.1.single.0.answers": [(1, 1)],
        f"{ONCE}.x": [(NAN, 0, 5)],
        f"{LAST_ONCE}.rows": [(29,)],
    },
    "exploring": {
        f"{DEEP}.rule_stops": [(3, 0), (1, 63)],
        "gram.1.heaviest": [(4.5,)],
        "gram.1.count": [(60 * 4 + 1.0,)],
        "gram.1.reciprocal": [(NAN,)],
    },
    "labelled": {
        "label.rounds": [(-1,), (1,)],
        "label.any": [(0,)],
        "label.0.rounds": [(-1,), (10**6,)],
        "label.0.heaviest": [(NAN,), (0.5,), (1e300,)],
        f"{LABEL}.x": [(NAN,)],
        f"{LABEL}.counts": [(-1, 0)],
        f"{LABEL}.positives": [(10**6, 0, 0)],
        "label.0.history.index": [(63, 0, 1)],
        "label.0.model.theta_g": [(NAN,)],
        "label.0.model.lightest": [(0.0,)],
    },
    "thompson": {"label.any": [(1,)], "model.0.reciprocal": [(NAN,)]},
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
def saved(name: str) -> tuple[Contextual, dict[str, NDArray[Any]]]:
    """Return a learner, and its state as it must stay."""
    policy = LEARNERS[name]()
    return policy, policy.state()


def assert_refused(name: str, learner: NDArray[np.uint8]) -> None:
    """Refused in a file, and by a trained policy, whose state stays as it was."""
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


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name, parts in WRONG_VALUES.items() for part in parts]
)
def test_a_wrong_value_in_a_learner_is_refused(name: str, part: str) -> None:
    for value, *place in WRONG_VALUES[name][part]:
        refused(name, lambda parts, v=value, at=place: parts[part].__setitem__(tuple(at) or ..., v))


@pytest.mark.parametrize("name", WRONG_STRUCTURE)
def test_rows_that_do_not_fit_the_rest_of_a_learner_are_refused(name: str) -> None:
    for change in WRONG_STRUCTURE[name]:
        refused(name, change)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_of_another_length_or_plan_is_refused(name: str, path: Path) -> None:
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


@pytest.mark.parametrize(
    ("difference", "cascade"),
    [
        ("'model' cost 0.15, now 0.2", sw.Cascade([0.05, 0.2, 0.2], names=NAMES)),
        ("named 'model', now 'tree'", sw.Cascade(CASCADE.costs, ["rule", "tree", "expert"])),
        ("3 arms, now 2", sw.Cascade([0.05, 0.15], names=NAMES[:2])),
        ("trade-off 1, now 2", sw.Cascade(CASCADE.costs, NAMES, tradeoff=[1, 1, 2])),
    ],
)
def test_loading_for_a_changed_cascade_names_the_difference(
    difference: str, cascade: sw.Cascade, path: Path
) -> None:
    trained().save(path)
    with pytest.raises(sw.CascadeMismatchError, match=difference):
        sw.load(path, cascade=cascade)


def test_a_cascade_that_differs_by_rounding_is_accepted(path: Path) -> None:
    trained().save(path)
    near = sw.Cascade.from_cumulative([0.05, 0.2, 0.4], names=NAMES)
    assert sw.load(path, cascade=near).cascade == CASCADE


def radial(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([1.0, x[0] ** 2 + x[1] ** 2]) / 3


def skewed(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([1.0, x[0] ** 3 + x[1] ** 2]) / 3


def test_a_custom_map_must_be_given_again_under_any_name(path: Path) -> None:
    policy = trained(features=radial)
    policy.save(path)
    with pytest.raises(sw.FeaturesMismatchError, match=r"'radial'.*features="):
        sw.load(path)
    for given in (radial, lambda x: radial(x)):
        assert_same(sw.load(path, features=given).state(), policy.state())
    for other in (skewed, lambda x: [0.5], sw.Identity(), sw.PerStage([sw.Identity()])):
        with pytest.raises(sw.FeaturesMismatchError):
            sw.load(path, features=other)


def test_a_map_that_fails_where_it_is_never_evaluated_can_be_saved(path: Path) -> None:
    def inverse(x: NDArray[np.float64]) -> list[float]:
        return [1 / (1 + 1 / abs(float(x[0])))]  # not at zero

    trained(features=sw.Custom(inverse, n_features=1)).save(path)
    assert sw.load(path, features=sw.Custom(inverse, n_features=1)).rounds == 60


@pytest.mark.parametrize(
    "features",
    [
        sw.Polynomial(degree=2),
        sw.Scaled(sw.Identity(), [5.0, 5.0], [10.0, 10.0]),
        sw.PerStage([sw.Identity(), sw.Polynomial()]),
        sw.PerPair({(0, 1): sw.Identity(), (0, 2): sw.Polynomial(), (1, 2): sw.Identity()}),
    ],
)
def test_built_in_maps_are_restored_and_checked_if_given(features: Any, path: Path) -> None:
    policy = trained(features=features, forced_rounds=10)
    policy.save(path)
    again: Any = sw.load(path, features=features)
    assert again.features == sw.load(path).features == policy.features
    np.testing.assert_array_equal(
        again.run(CONTEXTS[::-1], OUTPUTS), policy.run(CONTEXTS[::-1], OUTPUTS)
    )
    with pytest.raises(sw.FeaturesMismatchError):
        sw.load(path, features=sw.Polynomial(degree=3))


def test_a_seed_may_be_a_numpy_integer(path: Path) -> None:
    policy = trained("thompson", seed=np.int64(3))
    policy.save(path)
    assert sw.load(path).decide_many(CONTEXTS).tolist() == policy.decide_many(CONTEXTS).tolist()


# ------------------------------------------------------------------------- complete or not at all


def test_saving_replaces_the_old_file_and_leaves_nothing_else(path: Path) -> None:
    policy = trained("uss-ucb")
    policy.save(path)
    policy.observe(0.0, [1])
    policy.save(str(path))
    assert sw.load(path).rounds == 61
    first = path.read_bytes()
    policy.save(path)
    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_save_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        trained("uss-ucb").save(tmp_path / "taken")
    with pytest.raises(FileNotFoundError):
        trained("uss-ucb").save(tmp_path / "nowhere" / "policy")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


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
            seen.append(sw.load(path).rounds)
            saver.send_signal(signal.SIGCONT)
            os.sched_yield()
    finally:
        saver.kill()
        saver.wait()
    assert sw.load(path).rounds >= seen[-1]
    assert seen == sorted(seen)
    assert len(set(seen)) > 20
