"""Replay a log: every policy plays it from end to end, beside every fixed depth."""

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.chunk import Chunk
from stopwise.logs.log import Log
from stopwise.logs.replay.kept import Kept, KeptStops
from stopwise.logs.replay.picture import png
from stopwise.logs.replay.players import Given, Player, entrants, ready
from stopwise.logs.replay.results import Judge, Played, Replay, best_first, best_of, played
from stopwise.logs.replay.survey import Progress, Survey, survey
from stopwise.logs.replay.tally import ENOUGH, Known, Tally
from stopwise.policies.base import CHUNK, Ints
from stopwise.policies.randomness import whole_seed
from stopwise.policies.recorded import Rounds
from stopwise.reporting.files import write_files
from stopwise.version import __version__

PLAYING, CATCHING_UP = "replaying", "taking up what was decided before"


def replay(
    log: Log,
    cascade: Cascade,
    policies: Sequence[Given] = ("uss-pd",),
    *,
    out: "str | PathLike[str] | None" = None,
    audit: float = 0.0,
    degree: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    chunk_rows: int = CHUNK,
) -> Replay:
    r"""Find out what policies would have done with the rounds of a log.

    Every policy plays the log in order, a chunk at a time: it decides, sees what the arms said as
    deep as it went, and learns. Where the log ends before the decision the round can not be
    evaluated and teaches nothing; it is counted (``Played.beyond``), and nothing is claimed of it.
    Beside the policies, every fixed depth is evaluated.

    Parameters
    ----------
    log : Log
        The rounds.
    cascade : Cascade
        The arms of the log and their costs.
    policies : sequence of str, path or Policy
        ``"uss-pd"``, ``"thompson:scale=0.5"``: a policy by name, made for the contexts of the log.
        The path of a saved policy, or a policy: it continues from there (a copy of it does).
    out : path, optional
        A folder for ``replay.json`` and, with matplotlib, ``replay.png``. What is decided is kept
        there meanwhile: the same call goes on where an earlier one was killed. Without it nothing
        is written.
    audit : float
        Tell this share of the labels, at random, to policies that can use them, each after its
        round.
    degree : int
        Policies made by name see products of up to so many coordinates of the context.
    seed : int
        Of the audit, and of policies by name that draw.
    progress : callable, optional
        Called as ``progress(stage, done, of)``.
    chunk_rows : int
        Rounds held in memory at a time; makes no difference to any number.

    Returns
    -------
    Replay
        The numbers, and every policy's decisions.

    Raises
    ------
    InvalidLogError
        At the first row that is not as it must be, or if the first arm failed in all of them;
        nothing is left in ``out``.
    FolderBusyError
        If another replay is at work in ``out``.
    InvalidParameterError, UnknownPolicyError, PersistenceError
        If what is asked for makes no sense, or not with this log.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "log.csv")
    >>> rows = "0.1,yes,yes,yes\n0.9,no,yes,yes\n" * 500
    >>> _ = path.write_text("context.x,output.quick,output.slow,label\n" + rows)
    >>> log = Log(path)
    >>> found = replay(log, Cascade(costs=[0.01, 0.2], names=log.arms), ["uss-pd:sigma=0.05"])
    >>> [one.name for one in found.fixed], found.arms[found.best_fixed]
    (['quick', 'slow'], 'slow')
    >>> best = found.policies[0]
    >>> best.loss.value < found.fixed[1].loss.value, best.beyond
    (True, 0)
    >>> found.decisions["uss-pd:sigma=0.05"][-4:].tolist()
    [0, 1, 0, 1]
    >>> folder.cleanup()
    """
    _check(log, cascade, audit, degree)
    asked = entrants(policies, log, cascade, whole_seed(seed))
    with nullcontext() if out is None else Kept(Path(out)) as kept:
        found = survey(log, progress)
        players = [ready(one, log, cascade, found, degree) for one in asked]
        told = _Told(audit, seed)
        run = _Run(log, cascade, players, told)
        run.take_up(kept, [_identity(player, log, cascade, degree, told) for player in players])
        run.play(found, progress, chunk_rows)
        result = run.result(found, degree, seed)
        if out is not None:
            files = {"replay.json": result.to_json()}
            if drawn := png(result):
                files["replay.png"] = drawn
            write_files(Path(out), files)
    return result


class _Told:
    """Which rounds' right answers are told: at random, by the number of the round alone."""

    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self.seed = seed

    def of(self, chunk: Chunk) -> Rounds:
        """Return the rounds with those marked."""
        if not self.share:
            return chunk.rounds
        rows = np.arange(chunk.first, chunk.first + chunk.n, dtype=np.uint64)
        audited = (chunk.labels >= 0) & (uniform(rows, self.seed) < self.share)
        return msgspec.structs.replace(chunk.rounds, audited=audited)


def uniform(rows: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each row, at random but the same whenever it is asked.

    (The finaliser of SplitMix64, a counter-based generator.)

    Examples
    --------
    >>> draws = uniform(np.arange(100_000, dtype=np.uint64), seed=1)
    >>> bool(abs(draws.mean() - 0.5) < 0.005), bool((draws < 1).all())
    (True, True)
    """
    with np.errstate(over="ignore"):
        start = _mixed(np.array([seed], dtype=np.uint64) + np.uint64(1))
        bits = _mixed(start + (rows + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class _Run:
    """One pass over a log."""

    def __init__(self, log: Log, cascade: Cascade, players: Sequence[Player], told: _Told) -> None:
        k = cascade.n_arms
        self._log, self._cascade, self._players, self._told = log, cascade, players, told
        self._tallies = [Tally(k, compare=True) for _ in players]
        self._fixed = [Tally(k, compare=False) for _ in range(k)]
        self._decided: list[list[NDArray[np.uint8]]] = [[] for _ in players]
        self._kept: list[KeptStops | None] = [None for _ in players]
        self._rows = self._labelled = self._failed = self._truncated = self._audited = 0
        self._likeness = _Likeness()

    def take_up(self, kept: Kept | None, identities: Sequence[bytes]) -> None:
        """Find what an earlier run has decided."""
        if kept is None:
            return
        self._kept = [
            kept.stops(identity) if player.rebuilds(self._told.share > 0) else None
            for player, identity in zip(self._players, identities, strict=True)
        ]

    def play(self, found: Survey, progress: Progress | None, size: int) -> None:
        """Let everybody play the whole log."""
        before = max((len(one.read) for one in self._kept if one is not None), default=0)
        for chunk in self._log.chunks(size):
            rounds, known = self._told.of(chunk), Known.of(chunk)
            for player, tally, decided, kept in zip(
                self._players, self._tallies, self._decided, self._kept, strict=True
            ):
                stops = _stops(player, rounds, chunk.first, kept)
                tally.add(known, stops)
                decided.append(stops.astype(np.uint8))
            for depth, tally in enumerate(self._fixed):
                tally.add(known, np.full(chunk.n, depth))
            self._count(chunk, rounds)
            if progress is not None:
                if self._rows <= before:
                    progress(CATCHING_UP, self._rows, before)
                else:
                    progress(PLAYING, self._rows, found.rows)

    def _count(self, chunk: Chunk, rounds: Rounds) -> None:
        last = self._cascade.n_arms - 1
        self._rows += chunk.n
        self._labelled += int((chunk.labels >= 0).sum())
        self._likeness.add(chunk)
        self._failed += int(rounds.failed.sum())
        self._truncated += int(((rounds.reach < last) & ~rounds.failed).sum())
        if rounds.audited is not None and any(player.takes_labels for player in self._players):
            self._audited += int(rounds.audited.sum())

    def result(self, found: Survey, degree: int, seed: int) -> Replay:
        """Turn all counts into numbers."""
        if self._fixed[0].unanswered == self._rows:
            raise InvalidLogError(
                f"{self._log.path.name}: the first arm, {self._log.arms[0]!r}, failed in every "
                "round, so there is no answer to evaluate"
            )
        enough = self._fixed[0].labelled >= ENOUGH
        by: Judge = "total loss" if enough else "cost + disagreement"
        tells_stops = self._log.layout.stop is not None or self._truncated > 0
        names = [player.name for player in self._players]
        exact = not any(tally.beyond for tally in (*self._tallies, *self._fixed))

        def numbers(
            named: Sequence[str], tallies: Sequence[Tally], *, compare: Judge | None = None
        ) -> list[Played]:
            return [
                played(
                    name,
                    tally,
                    self._cascade,
                    rounds=self._rows,
                    tells_stops=tells_stops,
                    compare=compare,
                )
                for name, tally in zip(named, tallies, strict=True)
            ]

        fixed = numbers(self._log.arms, self._fixed)
        decisions = [np.concatenate(pieces) for pieces in self._decided]
        return Replay(
            log=self._log.path.name,
            arms=self._log.arms,
            costs=tuple(self._cascade.cumulative.tolist()),
            rounds=self._rows,
            labelled=self._labelled,
            failed=self._failed,
            unanswered=self._fixed[0].unanswered,
            truncated=self._truncated,
            degree=degree,
            seed=seed,
            audit=self._told.share,
            audited=self._audited,
            judged_by=by,
            policies=best_first(numbers(names, self._tallies, compare=by if exact else None), by),
            fixed=tuple(fixed),
            best_fixed=best_of(fixed, by),
            notes=self._likeness.notes,
            decisions=dict(zip(names, decisions, strict=True)),
        )


class _Likeness:
    """Whether labels are ever what an arm said: if never, they are likely other words for it."""

    def __init__(self) -> None:
        self._compared = 0
        self._alike = False
        self._example: tuple[object, object] | None = None

    def add(self, chunk: Chunk) -> None:
        """Look at some rounds."""
        if self._alike:
            return
        rows = np.flatnonzero((chunk.labels >= 0) & (chunk.rounds.reach >= 0))
        if not len(rows):
            return
        self._compared += len(rows)
        self._alike = bool((chunk.codes[rows] == chunk.labels[rows, None]).any())
        if self._example is None:
            code, label = int(chunk.codes[rows[0], 0]), int(chunk.labels[rows[0]])
            values = chunk.values
            self._example = (code, label) if values is None else (values[code], values[label])

    @property
    def notes(self) -> tuple[str, ...]:
        """What to say of it."""
        if self._alike or self._compared < ENOUGH or self._example is None:
            return ()
        said, right = self._example
        note = (
            f"No label is ever what any arm said, in {self._compared:,} labelled rounds: an arm "
            f"says {said!r}, for instance, where the label is {right!r}. Are they the same answers "
            "in other words? Every answer counts as wrong now."
        )
        return (note,)


def _stops(player: Player, rounds: Rounds, first: int, kept: KeptStops | None) -> Ints:
    """Return what a player decides, learning from it; as far as that is kept, from there."""
    if kept is None:
        return player.play(rounds, first)
    before = kept.read[first : first + rounds.n].astype(np.int64)
    n = len(before)
    if n:
        player.learn(_part(rounds, slice(0, n)), before, first)
    if n == rounds.n:
        return before
    fresh = player.play(_part(rounds, slice(n, None)), first + n)
    kept.append(fresh)
    return np.concatenate([before, fresh])


def _part(rounds: Rounds, rows: slice) -> Rounds:
    return Rounds(
        contexts=rounds.contexts[rows],
        differ=rounds.differ[rows],
        reach=rounds.reach[rows],
        failed=rounds.failed[rows],
        wrong=None if rounds.wrong is None else rounds.wrong[rows],
        audited=None if rounds.audited is None else rounds.audited[rows],
    )


def _identity(player: Player, log: Log, cascade: Cascade, degree: int, told: _Told) -> bytes:
    """Return a hash of all that a player's decisions depend on."""
    parts = [
        __version__,
        log.fingerprint(),
        cascade.to_dict(),
        degree,
        told.share,
        told.seed,
        player.identity,
    ]
    return hashlib.sha256(msgspec.json.encode(parts)).digest()


def _check(log: Log, cascade: Cascade, audit: float, degree: int) -> None:
    if cascade.names != log.arms:
        raise InvalidParameterError(
            f"the arms of {log.path.name} are {', '.join(log.arms)}, those of the cascade "
            f"{', '.join(cascade.names)}; write Cascade(costs, names=log.arms)"
        )
    if not 0 <= audit <= 1:
        raise InvalidParameterError(f"audit is a share of the labels, from 0 to 1, not {audit!r}")
    if audit and not log.has_labels:
        raise InvalidParameterError(
            f"{log.path.name} has no labels to audit with; name their column if it is not 'label'"
        )
    if not 1 <= degree <= 4:
        raise InvalidParameterError(f"degree must be from 1 to 4, not {degree!r}")
