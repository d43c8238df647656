"""Execute single runs, each of which is a pure function of a spec and a seed."""

from functools import lru_cache
from threading import Lock
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.arrays import Floats, Ints
from stopwise.progress import Progress, no_progress
from stopwise.research.environments.base import Batch, Environment
from stopwise.research.experiments.simulate import measure
from stopwise.research.experiments.spec import EnvironmentSpec, ExperimentSpec, environment_rng

# Batches of longer runs are not cached. At some hundred bytes per round, 32 batches of a million
# rounds would take gigabytes, and drawing them is fast compared with playing (heuristic).
CACHED_ROUNDS = 10_000


class Trace(msgspec.Struct, frozen=True, eq=False):
    """The stored curves of a run, determined by its spec and seed."""

    key: str  # the spec's key, which identifies the run together with the seed
    seed: int
    rounds: Ints  # (n,): checkpoints t of the curves, counted from 1; the last is T
    regret: Floats  # (n,): 𝔑_t; without error rates, the paper's upper bound Σ |C_I − C_i*| + p
    total_cost: Floats | None  # (n,): Σ (γ_I + C_I) up to t, if error rates are known
    undominated: Floats  # (n,): the part of 𝔑_t from contexts that are not weakly dominant
    depths: Ints  # (K,): number of rounds that stopped at each arm
    signed: Floats | None = None  # (n,): Σ [C_I − C_i* + p], if error rates are unknown

    def agrees(self, other: "Trace") -> bool:
        """Return whether both traces have the same key, seed and numbers, bit for bit."""
        return self.encode() == other.encode()

    def encode(self) -> bytes:
        """Serialize this trace."""
        return msgspec.msgpack.encode(self, enc_hook=np.ndarray.tolist)

    @classmethod
    def decode(cls, blob: bytes) -> Self:
        """Deserialize a trace, bit for bit."""
        return msgspec.msgpack.decode(blob, type=cls, dec_hook=lambda _, values: np.array(values))


def execute(spec: ExperimentSpec, seed: int, progress: Progress = no_progress) -> Trace:
    """Execute a run; every call gives the same trace, bit for bit.

    ``progress`` is called as in `simulate`; if it raises an exception, the run is aborted.

    Examples
    --------
    >>> from stopwise.research.experiments.spec import PolicySpec
    >>> arms = {"arms": [[1, 0], [4, 0]], "label": [8, 0]}
    >>> where = EnvironmentSpec("logistic-arms", (0.1, 0.2), arms)
    >>> spec = ExperimentSpec(where, PolicySpec("fixed-depth"), rounds=100, checkpoints=2)
    >>> trace = execute(spec, seed=7)
    >>> trace.rounds.tolist(), trace.depths.tolist()
    ([50, 100], [0, 100])
    >>> trace.agrees(execute(spec, seed=7)), trace.agrees(execute(spec, seed=8))
    (True, False)
    """
    environment = build_environment(spec.environment)
    policy = spec.policy.build(environment.cascade, environment.context_dim, seed)
    run = measure(policy, draw_batch(spec.environment, spec.rounds, seed), progress)
    checkpoints = spec.checkpoint_rounds
    index = checkpoints - 1
    return Trace(
        key=spec.key,
        seed=int(seed),
        rounds=checkpoints,
        regret=run.regret[index],
        total_cost=None if run.total_cost is None else run.total_cost[index],
        undominated=run.undominated[index],
        depths=np.bincount(run.stops, minlength=environment.cascade.n_arms).astype(np.int64),
        signed=None if run.signed is None else run.signed[index],
    )


@lru_cache(maxsize=32)
def build_environment(spec: EnvironmentSpec) -> Environment:
    """Return the environment of a spec, cached because some environments train their arms."""
    return spec.build()


def draw_batch(environment: EnvironmentSpec, rounds: int, seed: int) -> Batch:
    """Return the rounds of a run, as read-only arrays because policies may share them.

    The rounds of short runs are cached for the next policy.
    """
    draw = _draw_cached if rounds <= CACHED_ROUNDS else _draw
    return draw(environment, rounds, seed)


_DRAWING = Lock()


def _draw(environment: EnvironmentSpec, rounds: int, seed: int) -> Batch:
    with _DRAWING:  # environments need not be thread-safe
        batch = build_environment(environment).sample(rounds, environment_rng(seed))
    arrays: dict[str, NDArray[Any] | None] = msgspec.structs.asdict(batch)
    for array in arrays.values():
        if array is not None:
            array.flags.writeable = False
    return batch


_draw_cached = lru_cache(maxsize=32)(_draw)
