"""Saved policies: whole or not at all, never believed before they are checked."""

import hashlib
import io
import math
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise.policies import persistence

CASCADE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])
RNG = np.random.default_rng(0)
CONTEXTS = RNG.uniform(-1, 1, (60, 2))
OUTPUTS = RNG.integers(0, 2, (60, 3))


def taught(name: str = "uss-pd", **parameters: Any) -> Any:
    policy = sw.make(name, CASCADE, context_dim=2, **parameters)
    policy.run(CONTEXTS, OUTPUTS)
    return policy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy.stopwise"


def craft(path: Path, policy: sw.Policy, /, **changes: Any) -> None:
    """Save with some fields, or some of ``arrays``, replaced: the checksum is right."""
    policy.save(path)
    saved = persistence._read(path, path.read_bytes())
    arrays = {
        name: array if isinstance(array, persistence._Array) else persistence._packed(array)
        for name, array in changes.pop("arrays", {}).items()
    }
    saved = msgspec.structs.replace(saved, arrays=saved.arrays | arrays, **changes)
    write(path, msgspec.msgpack.encode(saved))


def write(path: Path, body: bytes, version: int = persistence.VERSION) -> None:
    head = persistence.MAGIC + version.to_bytes(4, "little") + hashlib.sha256(body).digest()
    path.write_bytes(head + body)


# ------------------------------------------------------------------------------- damaged files


def test_a_truncated_file_is_refused_wherever_it_ends(path: Path) -> None:
    taught().save(path)
    content = path.read_bytes()
    for length in [*range(60), *range(60, len(content), 997), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(sw.CorruptFileError):
            sw.load(path)


def test_a_longer_file_is_refused(path: Path) -> None:
    taught().save(path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(sw.CorruptFileError, match="checksum"):
        sw.load(path)


def test_a_single_flipped_bit_is_found_wherever_it_is(path: Path) -> None:
    taught().save(path)
    content = path.read_bytes()
    places = [*range(44), *np.random.default_rng(1).integers(44, len(content), 200).tolist()]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises((sw.CorruptFileError, sw.UnsupportedVersionError)) as caught:
            sw.load(path)
        in_version = 8 <= place < 12
        assert isinstance(caught.value, sw.UnsupportedVersionError) == in_version


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(5))
    return buffer.getvalue()


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "hello")
    return buffer.getvalue()


FOREIGN: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"costs: [0.1, 0.2]\n",
    "zip": zipped,
    "pickle": lambda: pickle.dumps({"a": 1}),
    "npy": npy,
    "magic only": lambda: persistence.MAGIC,
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_refused(kind: str, path: Path) -> None:
    path.write_bytes(FOREIGN[kind]())
    with pytest.raises(sw.CorruptFileError, match=path.name):
        sw.load(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sw.CorruptFileError, match="cannot be read"):
        sw.load(tmp_path)


def test_a_missing_file_is_a_file_not_found_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sw.load(path)


def test_a_file_of_the_future_names_its_version(path: Path) -> None:
    taught().save(path)
    write(path, path.read_bytes()[persistence._HEAD :], version=7)
    with pytest.raises(sw.UnsupportedVersionError, match="format 7"):
        sw.load(path)


# --------------------------------------------------- a right checksum does not make a right file


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode([1, 2])])
def test_contents_that_are_no_policy_are_refused(body: bytes, path: Path) -> None:
    write(path, body)
    with pytest.raises(sw.CorruptFileError, match="cannot be read"):
        sw.load(path)


def test_an_unknown_policy_is_refused_by_name(path: Path) -> None:
    craft(path, taught(), policy="uss-xyz")
    with pytest.raises(sw.CorruptFileError, match="uss-xyz"):
        sw.load(path)


def counters(**changes: int) -> Callable[[Any], NDArray[Any]]:
    places = {"rounds": 0, "distinct": 1, "rows": 2, "weight": 7, "next_to_first_arm": 8}

    def lie(policy: Any) -> NDArray[Any]:
        array = policy.state()["counters"]
        for name, value in changes.items():
            array[places[name]] = value
        return array

    return lie


def changed(name: str, change: Callable[[NDArray[Any]], Any]) -> Callable[[Any], Any]:
    return lambda policy: change(policy.state()[name])


OBJECTS = persistence._Array("|O", (2,), b"\0" * 16)
LIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a wrong shape": ("gram", changed("gram", lambda a: a[:, :, :1])),
    "a wrong dtype": ("gram", changed("gram", lambda a: a.astype(np.float32))),
    "rows of another width": ("rows", changed("rows", lambda a: a[:, :1])),
    "objects": ("gram", lambda _: OBJECTS),
    "a shape that its data do not fill": (
        "gram",
        lambda _: persistence._Array("<f8", (9, 9), b"\0" * 8),
    ),
    "half a dtype": ("gram", lambda _: persistence._Array("(2,f8", (1,), b"\0" * 8)),
    "no dtype": ("gram", lambda _: persistence._Array("float99", (1,), b"\0" * 8)),
    "more rows than there are": ("counters", counters(rows=61)),
    "fewer rows than contexts": ("counters", counters(rows=3)),
    "fewer rounds than rows": ("counters", counters(rounds=5)),
    "negative counts": ("counters", counters(distinct=-1)),
    "fewer contexts than the index": ("counters", counters(distinct=2)),
    "a weight that is not its own": ("counters", counters(weight=5)),
    "an arm that is none": ("counters", counters(next_to_first_arm=10**12)),
    "an arm before the first": ("counters", counters(next_to_first_arm=-3)),
    "an index beyond the history": ("table", changed("table", lambda a: np.where(a >= 0, 60, a))),
    "a short history": ("visits", changed("visits", lambda a: a[:-5])),
    "a V of NaN": ("gram", changed("gram", lambda a: a * math.nan)),
    "a context of NaN": ("rows", changed("rows", lambda a: a * math.nan)),
}


@pytest.mark.parametrize("lie", LIES)
def test_arrays_that_contradict_each_other_are_refused(lie: str, path: Path) -> None:
    name, make = LIES[lie]
    policy = taught()
    craft(path, policy, arrays={name: make(policy)})
    with pytest.raises(sw.CorruptFileError):
        sw.load(path)


COUNT_LIES: dict[str, dict[str, Any]] = {
    "counts that are no integers": {"n": np.array([1.5] * 3)},
    "counts of NaN": {"n": np.array([math.nan] * 3)},
    "negative counts": {"n": np.array([-4] * 3)},
    "counts of other arms": {"n": np.array([60] * 4)},
    "more disagreements than rounds": {"disagreed": np.full((3, 3), 99)},
    "negative rounds": {"rounds": np.array([-5])},
    "rounds without number": {"rounds": np.array([], dtype=np.int64)},
    "infinite rounds": {"rounds": np.array([math.inf])},
    "fewer rounds than counted": {"rounds": np.array([1])},
}


@pytest.mark.parametrize("lie", COUNT_LIES)
@pytest.mark.parametrize("name", ["uss-ucb", "uss-ts"])
def test_counts_that_contradict_each_other_are_refused(name: str, lie: str, path: Path) -> None:
    craft(path, taught(name), arrays=COUNT_LIES[lie])
    with pytest.raises(sw.CorruptFileError):
        sw.load(path)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"hello",
        b"[]",
        b'{"bit_generator":"MT19937","state":{}}',
        b'{"bit_generator":"PCG64","state":{"state":"%d","inc":"1"},"has_uint32":"0",'
        b'"uinteger":"0"}' % 2**140,
    ],
)
@pytest.mark.parametrize("name", ["thompson", "uss-ts", "random-depth"])
def test_a_random_state_that_is_none_is_refused(name: str, text: bytes, path: Path) -> None:
    craft(path, taught(name), arrays={"random": np.frombuffer(text, dtype=np.uint8)})
    with pytest.raises(sw.CorruptFileError):
        sw.load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ridge", math.nan),
        ("delta", 2.0),
        ("kappa", "x"),
        ("forced_rounds", math.inf),
        ("forced_rounds", None),
        ("unheard_of", 1),
    ],
)
def test_parameters_out_of_range_are_refused(key: str, value: Any, path: Path) -> None:
    policy = taught()
    craft(path, policy, parameters=policy.parameters() | {key: value})
    with pytest.raises(sw.CorruptFileError, match="contradict"):
        sw.load(path)


@pytest.mark.parametrize("name", ["uss-pd", "uss-ucb", "thompson", "random-depth"])
def test_a_missing_array_is_refused(name: str, path: Path) -> None:
    policy = taught(name)
    for missing in policy.state():
        policy.save(path)
        saved = persistence._read(path, path.read_bytes())
        arrays = {key: array for key, array in saved.arrays.items() if key != missing}
        write(path, msgspec.msgpack.encode(msgspec.structs.replace(saved, arrays=arrays)))
        with pytest.raises(sw.CorruptFileError, match=missing):
            sw.load(path)


@pytest.mark.parametrize(
    "cascade",
    [{}, {**CASCADE.to_dict(), "costs": [0.1, -1.0, 0.2]}, {**CASCADE.to_dict(), "names": 3}],
)
def test_a_cascade_that_cannot_be_is_refused(cascade: dict[str, Any], path: Path) -> None:
    craft(path, taught(), cascade=cascade)
    with pytest.raises(sw.CorruptFileError, match="cascade"):
        sw.load(path)


@pytest.mark.parametrize("features", [None, {}, {"kind": "shared", "maps": 3}])
def test_features_that_cannot_be_are_refused(features: Any, path: Path) -> None:
    craft(path, taught(), features=features)
    with pytest.raises(sw.CorruptFileError, match="features"):
        sw.load(path)


def test_fewer_contexts_than_rows_are_refused_even_if_the_index_agrees(path: Path) -> None:
    policy = taught()
    lie = policy.state()
    lie["counters"][1] = 10
    lie["table"][lie["table"] >= 10] = -1
    craft(path, policy, arrays={"counters": lie["counters"], "table": lie["table"]})
    with pytest.raises(sw.CorruptFileError):
        sw.load(path)


# -------------------------------------------------------------------------- a changed cascade

NAMES = ["rule", "model", "expert"]
CHANGED = {
    "arm 'model' cost 0.15, now 0.2": sw.Cascade([0.05, 0.2, 0.2], names=NAMES),
    "arm 1 was named 'model', now 'tree'": sw.Cascade(CASCADE.costs, ["rule", "tree", "expert"]),
    "there were 3 arms, now 2": sw.Cascade([0.05, 0.15], names=NAMES[:2]),
    "arm 'expert' had trade-off 1, now 2": sw.Cascade(CASCADE.costs, NAMES, tradeoff=[1, 1, 2]),
}


@pytest.mark.parametrize("difference", CHANGED)
def test_loading_for_a_changed_cascade_names_the_difference(difference: str, path: Path) -> None:
    taught().save(path)
    with pytest.raises(sw.CascadeMismatchError) as caught:
        sw.load(path, cascade=CHANGED[difference])
    assert difference in str(caught.value)


def test_rounding_is_no_other_cascade(path: Path) -> None:
    taught().save(path)
    near = sw.Cascade.from_cumulative([0.05, 0.2, 0.4], names=NAMES)
    assert sw.load(path, cascade=near).cascade == CASCADE


# ------------------------------------------------------------------------------------ features


def radial(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([1.0, x[0] ** 2 + x[1] ** 2]) / 3


def skewed(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([1.0, x[0] ** 3 + x[1] ** 2]) / 3


def test_a_custom_map_must_be_given_again(path: Path) -> None:
    policy = taught(features=radial)
    policy.save(path)
    with pytest.raises(sw.FeaturesMismatchError, match=r"'radial'.*features="):
        sw.load(path)
    again: Any = sw.load(path, features=radial)
    assert again.decide_many(CONTEXTS).tolist() == policy.decide_many(CONTEXTS).tolist()
    np.testing.assert_array_equal(again.theta(0, 1), policy.theta(0, 1))


@pytest.mark.parametrize("other", [skewed, lambda x: [0.5], sw.Identity()])
def test_another_map_is_refused(other: Any, path: Path) -> None:
    taught(features=radial).save(path)
    with pytest.raises(sw.FeaturesMismatchError, match="other features"):
        sw.load(path, features=other)


def test_a_function_may_be_renamed(path: Path) -> None:
    taught(features=radial).save(path)
    assert sw.load(path, features=lambda x: radial(x)).rounds == 60


def test_built_in_maps_come_back_by_themselves_and_are_checked_if_given(path: Path) -> None:
    taught(features=sw.Polynomial(degree=2)).save(path)
    again: Any = sw.load(path)
    assert again.features.n_features == 6
    assert sw.load(path, features=sw.Polynomial(degree=2)).rounds == 60
    with pytest.raises(sw.FeaturesMismatchError, match="other features"):
        sw.load(path, features=sw.Polynomial(degree=3))


def test_maps_that_do_not_fit_the_cascade_are_not_blamed_on_the_file(path: Path) -> None:
    taught().save(path)
    with pytest.raises(sw.FeaturesMismatchError):
        sw.load(path, features=sw.PerStage([sw.Identity()]))


def test_a_map_that_fails_where_it_is_never_asked_can_be_saved(path: Path) -> None:
    def inverse(x: NDArray[np.float64]) -> list[float]:
        return [1 / (1 + 1 / abs(float(x[0])))]  # not at zero

    policy = taught(features=sw.Custom(inverse, n_features=1))
    policy.save(path)
    assert sw.load(path, features=sw.Custom(inverse, n_features=1)).rounds == 60


@pytest.mark.parametrize(
    "features",
    [
        sw.Scaled(sw.Identity(), [5.0, 5.0], [10.0, 10.0]),
        sw.PerStage([sw.Identity(), sw.Polynomial()]),
        sw.PerPair({(0, 1): sw.Identity(), (0, 2): sw.Polynomial(), (1, 2): sw.Identity()}),
    ],
)
def test_every_arrangement_resumes(features: Any, path: Path) -> None:
    policy = taught(features=features, forced_rounds=10)
    policy.save(path)
    again: Any = sw.load(path)
    assert again.features == policy.features
    np.testing.assert_array_equal(
        again.run(CONTEXTS[::-1], OUTPUTS), policy.run(CONTEXTS[::-1], OUTPUTS)
    )


def test_a_seed_may_be_a_numpy_integer(path: Path) -> None:
    policy = taught("thompson", seed=np.int64(3))
    policy.save(path)
    assert sw.load(path).decide_many(CONTEXTS).tolist() == policy.decide_many(CONTEXTS).tolist()


# ----------------------------------------------------------------------------- whole or not at all


def test_saving_replaces_the_old_file_and_leaves_nothing_else(path: Path) -> None:
    policy = taught("uss-ucb")
    policy.save(path)
    policy.observe(0.0, [1])
    policy.save(str(path))
    assert sw.load(path).rounds == 61
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208


def test_saving_the_same_policy_gives_the_same_bytes(path: Path) -> None:
    policy = taught()
    policy.save(path)
    first = path.read_bytes()
    policy.save(path)
    assert path.read_bytes() == first


def test_a_save_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        taught("uss-ucb").save(tmp_path / "taken")
    with pytest.raises(FileNotFoundError):
        taught("uss-ucb").save(tmp_path / "nowhere" / "policy")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


SAVE_FOR_EVER = """
import sys, numpy as np, stopwise as sw
policy = sw.USSUCB(sw.Cascade([0.1] * 3))
for _ in range(10**9):
    policy.observe(0.0, [1, 0, 1])
    policy.save(sys.argv[1])
"""


def test_a_process_killed_while_saving_leaves_a_whole_file(path: Path) -> None:
    sw.USSUCB(sw.Cascade([0.1] * 3)).save(path)
    source = str(Path(str(sw.__file__)).parents[1])
    script = f"import sys; sys.path.insert(0, {source!r}){SAVE_FOR_EVER}"
    saver = subprocess.Popen([sys.executable, "-c", script, path])
    seen: list[int] = []
    try:
        give_up = time.monotonic() + 60
        while sw.load(path).rounds == 0 and time.monotonic() < give_up:
            time.sleep(0.01)
        # A process stopped at any moment has left on disk what a killed one would have.
        for pause in np.random.default_rng(0).uniform(0, 0.01, 100):
            saver.send_signal(signal.SIGSTOP)
            seen.append(sw.load(path).rounds)
            saver.send_signal(signal.SIGCONT)
            time.sleep(pause)
    finally:
        saver.kill()
        saver.wait()
    assert sw.load(path).rounds >= seen[-1]
    assert seen == sorted(seen)
    assert len(set(seen)) > 10
