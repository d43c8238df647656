"""Killed and started again: the same numbers, and nothing left behind."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stopwise as sw
from stopwise.errors import FolderBusyError, InvalidLogError
from stopwise.logs.log import Log
from stopwise.logs.replay.kept import HEAD, Kept, KeptStops
from stopwise.logs.replay.replay import CATCHING_UP, replay
from tests.unit.replay.live import CASCADE, Arms, arms, full, write

IDENTITY = hashlib.sha256(b"this log and this policy").digest()
ASKED = (
    "uss-pd:sigma=0.05",
    "uss-pd-ridge:sigma=0.05",
    "thompson:scale=0.5",
    "uss-pd:full_depth_every=20",
    "uss-ts",
    "random-depth",
)
CHUNK = 500

SCRIPT = """
import sys
from stopwise.logs.log import Log
from stopwise.logs.replay.replay import replay
from tests.unit.replay.live import CASCADE

def told(stage, done, of):
    print(done, flush=True)
    if done >= 3000:
        sys.stdin.read()  # wait to be killed
log, out, *asked = sys.argv[1:]
replay(Log(log), CASCADE, asked, out=out, progress=told, chunk_rows=500)
"""


def data(n: int = 6000) -> Arms:
    return arms(n)


def test_after_sigkill_the_same_call_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    said = data()
    path = write(tmp_path / "log.parquet", full(said), labels=said.labels.tolist())
    whole = replay(Log(path), CASCADE, ASKED, out=tmp_path / "whole", chunk_rows=CHUNK)

    out = tmp_path / "out"
    words = [sys.executable, "-c", SCRIPT, str(path), str(out), *ASKED]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= 3000:
                break
        child.kill()
    assert child.returncode == -signal.SIGKILL
    kept = sorted((out / "state").glob("*.stops"))
    assert len(kept) == 2  # of those that can be rebuilt
    assert not (out / "replay.json").exists()
    # as if it had been killed while it wrote, and another file a little later
    kept[0].write_bytes(kept[0].read_bytes()[:-7])

    stages: list[tuple[str, int]] = []
    again = replay(
        Log(path),
        CASCADE,
        ASKED,
        out=out,
        chunk_rows=CHUNK,
        progress=lambda stage, done, of: stages.append((stage, done)),
    )
    assert stages[0] == (CATCHING_UP, CHUNK)
    assert (CATCHING_UP, 3000) in stages
    assert (CATCHING_UP, 3500) not in stages
    expected = (tmp_path / "whole" / "replay.json").read_bytes()
    assert (out / "replay.json").read_bytes() == expected
    for name in ASKED:
        assert np.array_equal(again.decisions[name], whole.decisions[name])
    assert len({tuple(np.bincount(d).tolist()) for d in whole.decisions.values()}) > 3
    assert not (out / "state").exists()


def _environment() -> dict[str, str]:
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    return {**os.environ, "PYTHONPATH": path}


def begun(path: Path, out: Path, asked: str, rows: int = 1500) -> None:
    """Leave behind what a replay that was killed leaves."""

    class Killed(BaseException):
        pass

    def told(stage: str, done: int, of: int) -> None:
        if done >= rows and stage == "replaying":
            raise Killed

    with pytest.raises(Killed):
        replay(Log(path), CASCADE, [asked], out=out, progress=told, chunk_rows=CHUNK)


def caught_up(path: Path, out: Path, asked: str, cascade: sw.Cascade = CASCADE, **more: int) -> int:
    """Replay again, and return how many rounds were taken from what was kept."""
    most = 0

    def told(stage: str, done: int, of: int) -> None:
        nonlocal most
        most = done if stage == CATCHING_UP else most

    replay(Log(path), cascade, [asked], out=out, progress=told, chunk_rows=CHUNK, **more)
    return most


def test_what_was_kept_serves_only_the_same_question(tmp_path: Path) -> None:
    path, out = write(tmp_path / "log.parquet", full(data(2000))), tmp_path / "out"
    begun(path, out, "uss-pd")
    assert caught_up(path, out, "uss-pd:sigma=0.2") == 0
    assert caught_up(path, out, "uss-pd", sw.Cascade([0.02, 0.1, 0.3], names=CASCADE.names)) == 0
    assert caught_up(path, out, "uss-pd", degree=2) == 0
    assert caught_up(path, out, "uss-pd") == 1500
    begun(path, out, "uss-pd")
    write(path, full(data(2000)))  # written anew
    assert caught_up(path, out, "uss-pd") == 0


def test_another_size_of_chunks_goes_on_too(tmp_path: Path) -> None:
    path, out = write(tmp_path / "log.parquet", full(data(2000))), tmp_path / "out"
    begun(path, out, "uss-pd:sigma=0.05")
    again = replay(Log(path), CASCADE, ["uss-pd:sigma=0.05"], out=out, chunk_rows=350)
    whole = replay(Log(path), CASCADE, ["uss-pd:sigma=0.05"])
    assert again.to_json() == whole.to_json()


def test_a_bad_row_leaves_nothing_behind(tmp_path: Path) -> None:
    rows = [f"{t / 2000},yes,no,no" for t in range(2000)]
    rows[1800] = "0.9,yes,,no"
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["context.a,output.rules,output.small,output.large", *rows]))
    with pytest.raises(InvalidLogError, match=r"row 1,?801"):
        replay(Log(path), CASCADE, out=tmp_path / "new" / "out", chunk_rows=CHUNK)
    assert list(tmp_path.iterdir()) == [path]


def test_a_bad_row_met_late_leaves_nothing_behind(tmp_path: Path) -> None:
    """In Parquet the ranges are known beforehand, so the bad row comes after much was kept."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"context.a": np.linspace(0, 1, 2000)}
    columns["context.a"][1800] = np.nan
    answers = np.arange(2000) % 2
    columns |= {f"output.{name}": answers for name in CASCADE.names}
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns), path)
    mine = tmp_path / "mine"
    mine.mkdir()
    seen: list[bool] = []
    for out in (tmp_path / "new" / "out", mine):
        with pytest.raises(InvalidLogError, match=r"row 1,?801, column 'context\.a'"):
            replay(
                Log(path),
                CASCADE,
                out=out,
                chunk_rows=CHUNK,
                progress=lambda *_, out=out: seen.append((out / "state").exists()),
            )
    assert any(seen)
    assert sorted(tmp_path.iterdir()) == [path, mine]
    assert list(mine.iterdir()) == []


def test_results_of_before_are_kept_until_there_are_new_ones(tmp_path: Path) -> None:
    path, out = write(tmp_path / "log.parquet", full(data(2000))), tmp_path / "out"
    replay(Log(path), CASCADE, out=out)
    before = (out / "replay.json").read_bytes()
    begun(path, out, "uss-pd:sigma=0.05")
    assert (out / "replay.json").read_bytes() == before


# -- the file --------------------------------------------------------------------------------------


def test_records_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "state" / "one.stops"
    first = KeptStops(path, IDENTITY)
    assert not path.parent.exists()  # nothing decided, nothing written
    first.append(np.array([0, 2]))
    first.append(np.array([], dtype=np.int64))
    first.append(np.array([14]))
    first.close()
    again = KeptStops(path, IDENTITY)
    assert again.read.tolist() == [0, 2, 14]
    again.append(np.array([1, 1]))
    again.close()
    last = KeptStops(path, IDENTITY)
    last.close()
    assert last.read.tolist() == [0, 2, 14, 1, 1]


def test_wherever_it_is_cut_or_damaged_the_rest_is_believed_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "one.stops"
    kept = KeptStops(path, IDENTITY)
    for piece in ([0, 2], [1, 0, 2], [2]):
        kept.append(np.array(piece))
    kept.close()
    content = path.read_bytes()
    ends = {HEAD: 0, HEAD + 18: 2, HEAD + 37: 5, HEAD + 54: 6}  # 16 bytes before each piece
    assert len(content) == HEAD + 54
    for size in range(len(content)):
        path.write_bytes(content[:size])
        whole = max((rounds for end, rounds in ends.items() if end <= size), default=0)
        assert _read(path).tolist() == [0, 2, 1, 0, 2, 2][:whole], size
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0x40
        path.write_bytes(damaged)
        whole = max((rounds for end, rounds in ends.items() if end <= place), default=0)
        assert _read(path).tolist() == [0, 2, 1, 0, 2, 2][:whole], place


def _read(path: Path) -> np.ndarray:
    kept = KeptStops(path, IDENTITY)
    kept.append(np.array([1]))  # goes on from there
    kept.close()
    again = KeptStops(path, IDENTITY)
    again.close()
    assert np.array_equal(again.read, [*kept.read, 1])
    return kept.read


@pytest.mark.parametrize("asked", ["uss-pd", "uss-ts", "fixed-depth"])
def test_two_at_once_in_a_folder_are_kept_apart(tmp_path: Path, asked: str) -> None:
    """Whatever the second asks, and though the first has nothing to keep."""
    path, out = write(tmp_path / "log.csv", full(data(300))), tmp_path / "out"
    with Kept(out) as kept:
        before = set(out.rglob("*"))
        with pytest.raises(FolderBusyError, match="another replay is writing to"):
            replay(Log(path), CASCADE, [asked], out=out)
        kept.stops(IDENTITY).append(np.array([1, 2]))
        with pytest.raises(FolderBusyError, match="another replay is writing to"):
            replay(Log(path), CASCADE, [asked], out=out)
        (mine,) = set(out.rglob("*")) - before
        assert mine.suffix == ".stops"
    assert list(tmp_path.iterdir()) == [path]
    replay(Log(path), CASCADE, [asked], out=out)  # now it may


def test_what_another_question_left_is_not_removed(tmp_path: Path) -> None:
    path, out = write(tmp_path / "log.parquet", full(data(2000))), tmp_path / "out"
    begun(path, out, "uss-pd")
    replay(Log(path), CASCADE, ["uss-pd:sigma=0.2"], out=out)
    assert caught_up(path, out, "uss-pd") == 1500
    assert sorted(place.name for place in out.iterdir()) == ["replay.json", "replay.png"]


def test_interrupted_before_anything_was_decided_nothing_is_left(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", full(data(300)))

    def told(stage: str, done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(Log(path), CASCADE, out=tmp_path / "new" / "out", progress=told)
    assert list(tmp_path.iterdir()) == [path]
