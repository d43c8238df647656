"""A run: what a spec and a seed decide, and nothing else does."""

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
from stopwise.research.experiments.spec import EnvironmentSpec, ExperimentSpec, environment_random

# Longer runs are not cached for the next policy: a round takes some hundred bytes, and 32 batches
# of a million rounds would take gigabytes, while drawing is quick beside playing (heuristic).
CACHED_ROUNDS = 10_000


class Trace(msgspec.Struct, frozen=True, eq=False):
    """What is stored of a run; its spec and seed alone decide it."""

    key: str  # of the spec
    seed: int  # with the key, it names the run
    rounds: Ints  # (n,): the rounds t, from 1 and ending in T, to which the curves belong
    regret: Floats  # (n,): 𝔑_t, or the paper's upper bound Σ |C_I − C_i*| + p where it is unknown
    total_cost: Floats | None  # (n,): Σ (γ_I + C_I) up to t, where error rates are known
    undominated: Floats  # (n,): the part of 𝔑_t from contexts that are not weakly dominant
    depths: Ints  # (K,): how many rounds stopped at each arm
    signed: Floats | None = None  # (n,): Σ [C_I − C_i* + p], where error rates are unknown

    def agrees(self, other: "Trace") -> bool:
        """Return whether this is the same run with the same numbers, to the last bit."""
        return self.encode() == other.encode()

    def encode(self) -> bytes:
        """Return this trace as bytes."""
        return msgspec.msgpack.encode(self, enc_hook=np.ndarray.tolist)

    @classmethod
    def decode(cls, blob: bytes) -> Self:
        """Return the trace that `encode` wrote, to the last bit."""
        return msgspec.msgpack.decode(blob, type=cls, dec_hook=lambda _, values: np.array(values))


def execute(spec: ExperimentSpec, seed: int, progress: Progress = no_progress) -> Trace:
    """Do one run; the trace is the same, to the last bit, on every call.

    ``progress`` is that of `simulate`; what it raises ends the run.

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
    environment = built(spec.environment)
    policy = spec.policy.build(environment.cascade, environment.context_dim, seed)
    run = measure(policy, drawn(spec.environment, spec.rounds, seed), progress)
    at = spec.checkpoint_rounds
    return Trace(
        key=spec.key,
        seed=int(seed),
        rounds=at,
        regret=run.regret[at - 1],
        total_cost=None if run.total_cost is None else run.total_cost[at - 1],
        undominated=run.undominated[at - 1],
        depths=np.bincount(run.stops, minlength=environment.cascade.n_arms).astype(np.int64),
        signed=None if run.signed is None else run.signed[at - 1],
    )


@lru_cache(maxsize=32)
def built(spec: EnvironmentSpec) -> Environment:
    """Return the environment of a spec, built once per process: some train their arms."""
    return spec.build()


def drawn(environment: EnvironmentSpec, rounds: int, seed: int) -> Batch:
    """Return the rounds of a run, drawn once for all policies that play them one after another.

    They are read-only, so that no policy can change what another sees. Long runs are drawn anew.
    """
    return (_cached if rounds <= CACHED_ROUNDS else _drawn)(environment, rounds, seed)


_DRAWING = Lock()


def _drawn(environment: EnvironmentSpec, rounds: int, seed: int) -> Batch:
    with _DRAWING:  # an environment need not be safe for threads
        batch = built(environment).sample(rounds, environment_random(seed))
    arrays: dict[str, NDArray[Any] | None] = msgspec.structs.asdict(batch)
    for array in arrays.values():
        if array is not None:
            array.flags.writeable = False
    return batch


_cached = lru_cache(maxsize=32)(_drawn)
