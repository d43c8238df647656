"""One run: a policy plays an environment, and its regret is measured."""

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
    """What a policy did over a run, round by round.

    Attributes
    ----------
    stops : ndarray of shape (T,)
        I_t.
    cost : ndarray of shape (T,)
        C_{I_t}, what each round cost.
    regret : ndarray of shape (T,)
        𝔑_t, the regret accumulated up to each round; ``run.regret[-1]`` is that of the run.
        Where the environment has no error rates, the paper's upper bound on it,
        ``Σ |C_I − C_i*| + p_{i* I}``.
    undominated : ndarray of shape (T,)
        The part of ``regret`` from rounds whose context is not weakly dominant, where no learner
        of disagreement is promised to find the optimal arm.
    total_cost : ndarray of shape (T,) or None
        Σ (γ_I + C_I) up to each round, where the environment has error rates.
    signed : ndarray of shape (T,) or None
        Where it has none, the paper's tighter bound on the regret, ``Σ [C_I − C_i* + p_{i* I}]``.
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
    """Play rounds of an environment with a policy and measure it.

    The policy learns from the run: use a new one for an independent run. The environment draws the
    rounds, by ``seed``; its truth goes to the regret, and to comparators. ``progress`` is
    called as ``progress("rounds", done, of)`` from time to time.

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
    if changes := policy.cascade.differences(environment.cascade):
        raise CascadeMismatchError(
            f"policy and environment have different cascades: {'; '.join(changes)}"
        )
    rounds = integer("rounds", rounds, least=1)
    batch = environment.sample(rounds, np.random.default_rng(seed))
    return measure(policy, batch, progress)


def measure(policy: Policy | Comparator, batch: Batch, progress: Progress = no_progress) -> Run:
    """Play rounds already drawn, of the policy's own cascade, and measure the policy.

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
        truth_of = (policy.cascade, batch.disagreement, batch.optimal, stops)
        lost = pseudo_regret(*truth_of)
        signed = np.cumsum(signed_pseudo_regret(*truth_of))
    else:
        lost = regret(policy.cascade, batch.error_rates, stops)
        total = np.cumsum(batch.error_rates[np.arange(len(stops)), stops] + cost)
    undominated = np.where(batch.dominant, 0.0, lost)
    return Run(stops, cost, np.cumsum(lost), np.cumsum(undominated), total, signed)


def _play(policy: Policy | Comparator, batch: Batch, progress: Progress) -> Ints:
    if isinstance(policy, Comparator):
        return policy.play(batch, progress)
    if batch.outputs is not None:
        return policy.run(batch.contexts, batch.outputs, progress=progress)
    if batch.differ is None:
        raise InvalidParameterError("a batch needs outputs or differ, got neither")
    return policy.run(batch.contexts, differ=batch.differ, progress=progress)
