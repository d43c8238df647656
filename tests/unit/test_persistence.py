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
from tests import archive

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
    with pytest.raises(sw.UnsupportedVersionError, match=r"format 7.*Update Stopwise"):
        sw.load(path)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_file_from_before_the_first_release_says_what_to_do(version: int, path: Path) -> None:
    taught().save(path)
    write(path, path.read_bytes()[persistence._HEAD :], version=version)
    with pytest.raises(sw.UnsupportedVersionError, match=f"format {version}") as caught:
        sw.load(path)
    assert "Make a new policy, and teach it from your log" in str(caught.value)
    assert "Update" not in str(caught.value)


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


OBJECTS = persistence._Array("|O", (2,), b"\0" * 16)
NO_BYTES: dict[str, Callable[[NDArray[np.uint8]], Any]] = {
    "another dtype": lambda a: a[: len(a) // 8 * 8].view(np.float64),
    "a table": lambda a: a[: len(a) // 2 * 2].reshape(2, -1),
    "no dimension": lambda a: a[0].reshape(()),
    "nothing": lambda a: a[:0],
    "objects": lambda _: OBJECTS,
    "a shape that its data do not fill": lambda _: persistence._Array("|u1", (9,), b"\0" * 8),
    "half a dtype": lambda _: persistence._Array("(2,f8", (1,), b"\0" * 8),
    "no dtype": lambda _: persistence._Array("float99", (1,), b"\0" * 8),
}


@pytest.mark.parametrize("kind", NO_BYTES)
def test_a_learner_that_is_not_bytes_is_refused(kind: str, path: Path) -> None:
    policy = taught()
    craft(path, policy, arrays={"learner": NO_BYTES[kind](policy.state()["learner"])})
    with pytest.raises(sw.CorruptFileError):
        sw.load(path)


# ------------------------------------------------------ bytes of a learner that tell no true story


def small() -> sw.USSPD:
    """Eighty rounds, all of contexts of their own; some went to arm 1 only."""
    policy = taught(forced_rounds=20)
    for x in np.random.default_rng(2).uniform(-1, 1, (20, 2)):
        policy.observe(x, [0, 1])
    return policy


def large() -> sw.USSPD:
    """More rows than are kept once."""
    policy = sw.USSPD(CASCADE, context_dim=2)
    rng = np.random.default_rng(1)
    for x, stop in zip(rng.uniform(-1, 1, (8600, 2)), rng.integers(1, 3, 8600), strict=True):
        policy.observe(x, [0, 1, 0][: stop + 1])
    policy.decide([0.1, 0.2])
    return policy


def sent_on() -> sw.USSPD:
    """Rounds that stand for several: one in four goes on by chance."""
    stages = sw.PerStage([sw.Identity(), sw.Identity()], sees=[1, 2])
    policy = sw.USSPD(CASCADE, stages, 2, forced_rounds=20, full_depth_every=4)
    for x, said in zip(CONTEXTS, OUTPUTS.tolist(), strict=True):
        policy.observe(x, said, wanted=int(x[0] > 0))
    policy.decide_many(CONTEXTS)
    return policy


def labelled() -> sw.USSPD:
    """Every round with its right answer."""
    policy = taught(forced_rounds=20)
    for x, said in zip(CONTEXTS, OUTPUTS.tolist(), strict=True):
        done = sw.Round("", 0.0, tuple(x.tolist()), tuple(said), tuple(said), 2, 2)
        policy.audit(done, 1)
    policy.decide_many(CONTEXTS)
    return policy


def thompson() -> sw.Thompson:
    return taught("thompson", forced_rounds=20)


LEARNERS: dict[str, Callable[[], Contextual]] = {
    made.__name__: made for made in (small, large, sent_on, labelled, thompson)
}
Change = Callable[[archive.Parts], object]


def put(name: str, value: Any, *place: int) -> Change:
    """Return what writes a value into a part: at one place, or all over it."""

    def change(parts: archive.Parts) -> None:
        parts[name][place or ...] = value

    return change


def times(name: str, factor: float) -> Change:
    def change(parts: archive.Parts) -> None:
        parts[name] = (parts[name] * factor).astype(parts[name].dtype)

    return change


def without_last_row(block: str) -> Change:
    """Return what takes the last row from a block, so that the block itself is consistent."""

    def change(parts: archive.Parts) -> None:
        parts[f"{block}.rows"] -= 1
        n = int(parts[f"{block}.rows"][0])
        parts[f"{block}.x"] = parts[f"{block}.x"][:, :n].copy()
        for part in ("counts", "positives", "rule_stops"):
            if f"{block}.{part}" in parts:
                parts[f"{block}.{part}"][..., n:] = 0

    return change


def forgotten_contexts(parts: archive.Parts) -> None:
    """Fewer contexts in the index than in the history."""
    parts["history.entries"] -= 10
    parts["history.index"] = parts["history.index"][:-10]


def without_last_context(parts: archive.Parts) -> None:
    last = int(parts["history.2.counted.blocks"][0]) - 1
    without_last_row(f"history.2.counted.{last}")(parts)
    place = 64 * last + int(parts[f"history.2.counted.{last}.rows"][0])
    index = parts["history.index"].tolist()
    index.remove([2, place])
    parts["history.index"] = np.array(index, dtype=np.uint32)
    parts["history.entries"] -= 1


def twice_in_the_index(parts: archive.Parts) -> None:
    parts["history.index"][1] = parts["history.index"][0]


def same_context_twice(parts: archive.Parts) -> None:
    parts[f"{DEEP}.x"][:, 1] = parts[f"{DEEP}.x"][:, 0]


def labels_without_any(parts: archive.Parts) -> None:
    for name in [name for name in parts if name.startswith("label.") and name[6].isdigit()]:
        del parts[name]


DEEP = "history.2.counted.0"  # a block of rounds that went to the last arm
SHORT = "history.1.counted.0"
ONCE, LAST_ONCE = "history.2.single.0", "history.1.single.3"  # the latter is not full
ANSWERED_ONCE = "label.0.history.2.counted.0"
LIES: dict[str, dict[str, Change]] = {
    "small": {
        "negative rounds": put("rounds", -1),
        "fewer rounds than rows": put("rounds", 5),
        "more rounds than can be counted": put("rounds", 2**60),
        "half explored": put("explored", 2),
        "negative effort": put("effort", -1, 1),
        "an arm that is none": put("beaten_by", 3, 0),
        "an arm far beyond": put("beaten_by", 10**12, 1),
        "an arm before the first": put("beaten_by", -3, 0),
        "an arm beaten by itself": put("beaten_by", 1, 1),
        "no blocks where there are some": put("history.2.counted.blocks", 0),
        "a block too many": put("history.2.counted.blocks", 2),
        "blocks without end": put("history.2.counted.blocks", 2**62),
        "negative blocks": put("history.0.single.blocks", -1),
        "a block without rows": put(f"{DEEP}.rows", 0),
        "more rows than a block has": put(f"{DEEP}.rows", 65),
        "negative rows": put(f"{DEEP}.rows", -1),
        "a row too many": lambda parts: put(f"{DEEP}.rows", parts[f"{DEEP}.rows"] + 1)(parts),
        "a row too few": lambda parts: put(f"{DEEP}.rows", parts[f"{DEEP}.rows"] - 1)(parts),
        "a row that is in the index alone": without_last_row(DEEP),
        "a context of NaN": put(f"{DEEP}.x", math.nan),
        "one coordinate of NaN": put(f"{DEEP}.x", math.nan, 1, 3),
        "an infinite coordinate": put(f"{DEEP}.x", math.inf, 0, 0),
        "features longer than one": put(f"{DEEP}.x", 1e300, 0, 0),
        "a feature a little beyond one": put(f"{DEEP}.x", 2.5, 0, 0),
        "a context never seen": put(f"{DEEP}.counts", 0, 0),
        "a context seen less than never": put(f"{DEEP}.counts", -1, 0),
        "a context seen more often than there were rounds": put(f"{DEEP}.counts", 2**31 - 1, 0),
        "a count of no context": put(f"{DEEP}.counts", 1, 63),
        "more disagreements than rounds": put(f"{DEEP}.positives", 2, 0, 0),
        "negative disagreements": put(f"{DEEP}.positives", -1, 0, 0),
        "disagreements of no context": put(f"{DEEP}.positives", 1, 0, 63),
        "an answer to no question": put(f"{SHORT}.positives", 1, 1, 0),
        "fewer contexts in the index": forgotten_contexts,
        "negative contexts in the index": put("history.entries", -1),
        "more contexts than the index can hold": put("history.entries", 4097),
        "an index of an arm that is none": put("history.index", 3, 0, 0),
        "an index beyond the history": put("history.index", 63, 0, 1),
        "an index far beyond the history": put("history.index", 2**32 - 1, 0, 1),
        "an index that names a place twice": twice_in_the_index,
        "the same context twice": same_context_twice,
        "NaN observations": put("gram.0.count", math.nan),
        "negative observations": put("gram.0.count", -1.0),
        "more observations than rounds": put("gram.0.count", 81.0),
        "fewer observations than the history holds": put("gram.0.count", 1.0),
        "a weight where none is": put("gram.0.heaviest", 2.0),
        "a weight of NaN": put("gram.0.heaviest", math.nan),
        "a weight below one": put("gram.0.heaviest", 0.5),
        "a V of NaN": put("gram.0.reciprocal", math.nan),
        "an infinite V": put("gram.0.reciprocal", 0.0, 0),
        "a negative V": times("gram.0.reciprocal", -1.0),
        "a V of nothing": put("gram.0.reciprocal", math.inf),
        "a V that is less than it started from": put("gram.0.reciprocal", 1e300, 0),
        "a V that is more than rows can make": put("gram.0.reciprocal", 1e-300, 0),
        "a triangle of NaN": put("gram.0.lower", math.nan),
        "an infinite triangle": put("gram.0.lower", math.inf),
        "a triangle beyond what V allows": put("gram.0.lower", 1e250),
        "half an anchor": put("model.0.anchored", 2),
        "no anchor where there is one": put("model.0.anchored", 0),
        "an anchor where none is": put("model.1.anchored", 1),
        "a model that saw NaN rows": put("model.0.count", math.nan),
        "a model that saw less than nothing": put("model.0.count", -1.0),
        "a model that saw more than there was": put("model.0.count", 1e9),
        "a model that saw less than there was": put("model.0.count", 1.0),
        "an estimate of NaN": put("model.0.theta_g", math.nan),
        "an infinite estimate": put("model.0.theta_h", math.inf, 0),
        "an estimate beyond what the ridge allows": put("model.0.theta_g", 1e200),
        "a gradient of NaN": put("model.0.gradient", math.nan, 1),
        "an infinite step": put("model.0.step", -math.inf, 0),
        "a Hessian of NaN": put("model.0.reciprocal", math.nan, 0),
        "an infinite Hessian": put("model.0.reciprocal", 0.0, 0),
        "a Hessian's triangle of NaN": put("model.0.lower", math.nan),
        "negative rows since": put("model.0.since", -1),
        "a reach of NaN": put("model.0.reach", math.nan),
        "a negative reach": put("model.0.reach", -1.0),
        "a negative shift": put("model.0.shift", -1.0),
        "an infinite age": put("model.0.reach_age", math.inf),
        "no weight at all": put("model.0.lightest", 0.0),
        "a weight that no logit has": put("model.0.lightest", 0.3),
        "a trace of NaN": put("model.0.trace", math.nan),
        "negative labels": put("label.rounds", -1),
        "half a label": put("label.any", 2),
        "labels that are not there": put("label.any", 1),
    },
    "large": {
        "an answer of no row": put(f"{LAST_ONCE}.answers", 1 << 63, 0),
        "an answer to no question": put("history.1.single.0.answers", 1, 1),
        "a block that is not full before others": without_last_row(DEEP),
        "rows kept singly while there is room in the index": without_last_context,
        "a single context of NaN": put(f"{ONCE}.x", math.nan, 0, 5),
        "a single row too many": put(f"{LAST_ONCE}.rows", 29),
        "fewer contexts in the index": forgotten_contexts,
    },
    "sent_on": {
        "a rule that stopped beyond the round": put(f"{DEEP}.rule_stops", 3, 0),
        "a rule that stopped in no round": put(f"{DEEP}.rule_stops", 1, 63),
        "a weight above the largest": put("gram.1.heaviest", 4.5),
        "more observations than rounds stand for": put("gram.1.count", 60 * 4 + 1.0),
        "a V of NaN": put("gram.1.reciprocal", math.nan),
    },
    "labelled": {
        "negative labels": put("label.rounds", -1),
        "more labels of a pair than of all": put("label.rounds", 1),
        "labels that are gone": put("label.any", 0),
        "labels without any": labels_without_any,
        "negative labels of a pair": put("label.0.rounds", -1),
        "more labels of a pair than it holds": put("label.0.rounds", 10**6),
        "a weight of NaN": put("label.0.heaviest", math.nan),
        "a weight below one": put("label.0.heaviest", 0.5),
        "a weight above the largest": put("label.0.heaviest", 1e300),
        "a context of NaN": put(f"{ANSWERED_ONCE}.x", math.nan),
        "a label that was told less than never": put(f"{ANSWERED_ONCE}.counts", -1, 0),
        "an arm right more often than it was told": put(f"{ANSWERED_ONCE}.positives", 10**6, 0, 0),
        "a label index beyond": put("label.0.history.index", 63, 0, 1),
        "an estimate of NaN": put("label.0.model.theta_g", math.nan),
        "no weight at all": put("label.0.model.lightest", 0.0),
    },
    "thompson": {
        "labels for a rule that takes none": put("label.any", 1),
        "a Hessian of NaN": put("model.0.reciprocal", math.nan),
    },
}


@cache
def saved(name: str) -> tuple[Contextual, dict[str, NDArray[Any]]]:
    """A learner, and its state as it must stay."""
    policy = LEARNERS[name]()
    return policy, policy.state()


def assert_refused(name: str, learner: NDArray[np.uint8], path: Path) -> None:
    """Refused as a file, and by a policy that has learned, which then is as it was."""
    policy, before = saved(name)
    craft(path, policy, arrays={"learner": learner})
    with pytest.raises(sw.CorruptFileError, match=path.name):
        sw.load(path)
    with pytest.raises(ValueError, match=r"."):
        policy.restore(before | {"learner": learner})
    after = policy.state()
    assert before.keys() == after.keys()
    for part, array in before.items():
        np.testing.assert_array_equal(array, after[part], err_msg=part)


@pytest.mark.parametrize(
    ("name", "lie"), [(name, lie) for name, lies in LIES.items() for lie in lies]
)
def test_bytes_that_contradict_each_other_are_refused_and_change_nothing(
    name: str, lie: str, path: Path
) -> None:
    parts = archive.parts(saved(name)[0])
    before = archive.joined(parts)
    LIES[name][lie](parts)
    learner = archive.joined(parts)
    assert not np.array_equal(learner, before)
    assert_refused(name, learner, path)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_cut_short_is_refused_wherever_it_ends(name: str, path: Path) -> None:
    policy, before = saved(name)
    learner, ends, end = before["learner"], {0}, 0
    for part in archive.parts(policy).values():  # at its end, within it, within a number of it
        ends |= {end + part.nbytes // 2, end + part.itemsize // 2}
        end += part.nbytes
        ends |= {end}
    fresh = LEARNERS[name]()
    for length in sorted(ends - {end}):
        with pytest.raises(ValueError, match=r"."):
            fresh.restore(before | {"learner": learner[:length]})
    np.testing.assert_array_equal(fresh.state()["learner"], learner)
    assert_refused(name, learner[: end // 2], path)


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("more", [1, 8, 4096])
def test_a_learner_with_more_at_its_end_is_refused(name: str, more: int, path: Path) -> None:
    learner = saved(name)[1]["learner"]
    assert_refused(name, np.concatenate([learner, np.zeros(more, dtype=np.uint8)]), path)
    assert_refused(name, np.concatenate([learner, learner[:more]]), path)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("small", "sent_on"),
        ("large", "sent_on"),
        ("sent_on", "small"),
        ("sent_on", "labelled"),
        ("thompson", "labelled"),
        ("thompson", "sent_on"),
    ],
)
def test_a_learner_of_another_plan_is_refused(name: str, other: str, path: Path) -> None:
    assert_refused(name, saved(other)[1]["learner"], path)


def test_a_random_state_that_is_none_changes_nothing() -> None:
    for name in ("sent_on", "thompson"):
        policy, before = saved(name)
        with pytest.raises(ValueError, match="random state"):
            policy.restore(before | {"random": np.zeros(3, dtype=np.uint8)})
        for part, array in policy.state().items():
            np.testing.assert_array_equal(array, before[part], err_msg=part)


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
    "a deeper arm revealed more often": {"n": np.array([10, 20, 30])},
    "disagreements below the diagonal": {"disagreed": np.eye(3, k=-1, dtype=np.int64)},
    "a random state of zeros": {"random": np.zeros(4, dtype=np.int64)},
    "a random state of another length": {"random": np.ones(5, dtype=np.int64)},
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
