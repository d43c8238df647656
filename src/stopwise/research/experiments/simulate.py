"""Simulate one policy in one environment and measure its regret."""

import msgspec
import numpy as np

from stopwise.arrays import Floats, Ints
from stopwise.checks import integer
from stopwise.errors import CascadeMismatchError, InvalidParameterError
from stopwise.policies.protocol import Policy
from stopwise.progress import Progress, no_progress
from stopwise.research.comparators.base import Comparator
from stopwise.research.environments.base import Batch, Environment
from stopwise.research.theory.regret import pseudo_regret, regret, signed_pseudo_regret


class Run(msgspec.Struct, frozen=True, eq=False):
    """The stops of a policy in a simulation, with costs and cumulative regret.

    Attributes
    ----------
    stops : ndarray of shape (T,)
        I_t, the arm at which each round stopped.
    cost : ndarray of shape (T,)
        C_{I_t}, the cost of each round.
    regret : ndarray of shape (T,)
        𝔑_t, the cumulative regret; ``run.regret[-1]`` is the total. If the environment has no
        error rates, this is the paper's upper bound ``Σ (|C_I − C_i*| + p_{i* I})``.
    undominated : ndarray of shape (T,)
        The part of ``regret`` from contexts that are not weakly dominant, for which disagreement
        cannot identify the optimal arm.
    total_cost : ndarray of shape (T,) or None
        Cumulative Σ (γ_I + C_I), if the environment has error rates.
    signed : ndarray of shape (T,) or None
        The paper's tighter bound on the regret, ``Σ [C_I − C_i* + p_{i* I}]``, if the environment
        has no error rates.
    """

    stops: Ints
    cost: Floats
    regret: Floats
    undominated: Floats
    total_cost: Floats | None = None
    signed: Floats | None = None


def simulate(
    policy: Policy | Comparator,
    environment: Environment,
    rounds: int,
    seed: int = 0,
    *,
    progress: Progress = no_progress,
) -> Run:
    """Play rounds of an environment with a policy and measure its regret.

    The policy learns during the run: use a new one for an independent run. ``seed`` determines the
    rounds that the environment draws. The ground truth is used to compute the regret and by
    comparators, never by policies. ``progress`` is called periodically as
    ``progress("rounds", done, total)``.

    Examples
    --------
    >>> import stopwise as sw
    >>> from stopwise import research
    >>> cascade = sw.Cascade(costs=[0.1, 0.3])
    >>> env = research.Realizable(cascade, {(0, 1): [-3.0, 2.0]})
    >>> run = sw.simulate(sw.USSPD(cascade, context_dim=2), env, rounds=200, seed=1)
    >>> run.stops.shape, bool(run.regret[-1] >= 0)
    ((200,), True)
    """
    if differences := policy.cascade.differences(environment.cascade):
        raise CascadeMismatchError(
            f"policy and environment must have the same cascade, got {', '.join(differences)}"
        )
    rounds = integer("rounds", rounds, least=1)
    batch = environment.sample(rounds, np.random.default_rng(seed))
    return measure(policy, batch, progress)


def measure(policy: Policy | Comparator, batch: Batch, progress: Progress = no_progress) -> Run:
    """Play a batch of rounds with a policy for the same cascade and measure its regret.

    Examples
    --------
    >>> import numpy as np, stopwise as sw
    >>> from stopwise import research
    >>> cascade = sw.Cascade(costs=[0.1, 0.3])
    >>> env = research.Realizable(cascade, {(0, 1): [-3.0, 2.0]})
    >>> batch = env.sample(100, np.random.default_rng(1))
    >>> float(measure(research.Oracle(cascade), batch).regret[-1])
    0.0
    """
    stops = _play(policy, batch, progress)
    cost = policy.cascade.cumulative[stops]
    total = signed = None
    if batch.error_rates is None:
        loss = pseudo_regret(policy.cascade, batch.disagreement, batch.optimal, stops)
        signed = np.cumsum(
            signed_pseudo_regret(policy.cascade, batch.disagreement, batch.optimal, stops)
        )
    else:
        loss = regret(policy.cascade, batch.error_rates, stops)
        total = np.cumsum(batch.error_rates[np.arange(len(stops)), stops] + cost)
    undominated = np.where(batch.dominant, 0.0, loss)
    return Run(stops, cost, np.cumsum(loss), np.cumsum(undominated), total, signed)


def _play(policy: Policy | Comparator, batch: Batch, progress: Progress) -> Ints:
    if isinstance(policy, Comparator):
        return policy.play(batch, progress)
    if batch.outputs is not None:
        return policy.run(batch.contexts, batch.outputs, progress=progress)
    if batch.differ is None:
        raise InvalidParameterError("a Batch must have outputs or differ, but has neither")
    return policy.run(batch.contexts, differ=batch.differ, progress=progress)
