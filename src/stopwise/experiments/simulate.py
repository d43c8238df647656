"""One run: a policy plays an environment, and its regret is measured."""

from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.environments.base import Batch, Environment
from stopwise.errors import CascadeMismatchError, InvalidParameterError, TruthRequiredError
from stopwise.policies.base import Policy, Progress
from stopwise.policies.baselines import Clairvoyant, Oracle
from stopwise.policies.contextual import Contextual
from stopwise.policies.supervised import Supervised
from stopwise.records import Truth
from stopwise.theory.regret import pseudo_regret, regret

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
        Where the environment has no error rates, the paper's upper bound on it.
    total_cost : ndarray of shape (T,) or None
        Σ (γ_I + C_I) up to each round, where the environment has error rates.
    """

    stops: Ints
    cost: Floats
    regret: Floats
    total_cost: Floats | None = None


def simulate(
    policy: Policy,
    environment: Environment,
    rounds: int,
    seed: int = 0,
    *,
    progress: Progress | None = None,
) -> Run:
    """Let a policy play rounds of an environment and measure it.

    Parameters
    ----------
    policy : Policy
        It learns from the run: make a new one for an independent run.
    environment : Environment
        Draws the rounds; its truth goes to the regret, and to comparators that need it.
    rounds : int
        T.
    seed : int
        Of the environment's draws.
    progress : callable, optional
        Called as ``progress(done, of)`` now and then.

    Returns
    -------
    Run
        Stops, costs and regret.

    Examples
    --------
    >>> import stopwise as sw
    >>> cascade = sw.Cascade(costs=[0.1, 0.3])
    >>> env = sw.Realizable(cascade, {(0, 1): [-3.0, 2.0]})
    >>> run = sw.simulate(sw.USSPD(cascade, context_dim=2), env, rounds=200, seed=1)
    >>> run.stops.shape, bool(run.regret[-1] >= 0)
    ((200,), True)
    """
    if changes := policy.cascade.differences(environment.cascade):
        raise CascadeMismatchError(
            f"policy and environment have different cascades: {'; '.join(changes)}"
        )
    if rounds != int(rounds) or rounds < 1:
        raise InvalidParameterError(f"rounds must be a whole number, 1 or more, not {rounds!r}")
    batch = environment.sample(int(rounds), np.random.default_rng(seed))
    stops = _play(policy, batch, progress)
    cost = policy.cascade.cumulative[stops]
    if batch.error_rates is None:
        lost = pseudo_regret(policy.cascade, batch.disagreement, batch.optimal, stops)
        return Run(stops, cost, np.cumsum(lost))
    lost = regret(policy.cascade, batch.error_rates, stops)
    errors = batch.error_rates[np.arange(rounds), stops]
    return Run(stops, cost, np.cumsum(lost), np.cumsum(errors + cost))


def _play(policy: Policy, batch: Batch, progress: Progress | None) -> Ints:
    if isinstance(policy, Oracle | Clairvoyant):
        return _play_told(policy, batch, progress)
    if isinstance(policy, Supervised):
        if batch.outputs is None or batch.labels is None:
            raise TruthRequiredError("a supervised run needs an environment with labels")
        return policy.run(batch.contexts, batch.outputs, batch.labels, progress=progress)
    if batch.outputs is not None:
        return policy.run(batch.contexts, batch.outputs, progress=progress)
    if isinstance(policy, Contextual):
        differ = cast(NDArray[np.uint8], batch.differ)
        return policy.run_disagreements(batch.contexts, differ, progress=progress)
    return _play_pairs(policy, batch, progress)


def _play_told(policy: Oracle | Clairvoyant, batch: Batch, progress: Progress | None) -> Ints:
    stops = np.empty(len(batch.contexts), dtype=np.int64)
    for t in range(len(stops)):
        truth = Truth(optimal=int(batch.optimal[t]), disagreement=batch.disagreement[t])
        stops[t] = policy.decide(batch.contexts[t], truth).stop
        _reveal(policy, batch, t, int(stops[t]), progress)
    return stops


def _play_pairs(policy: Policy, batch: Batch, progress: Progress | None) -> Ints:
    stops = np.empty(len(batch.contexts), dtype=np.int64)
    for t in range(len(stops)):
        stops[t] = policy.decide(batch.contexts[t]).stop
        _reveal(policy, batch, t, int(stops[t]), progress)
    return stops


def _reveal(policy: Policy, batch: Batch, t: int, stop: int, progress: Progress | None) -> None:
    """Tell a policy what round t showed, as deep as it went."""
    if batch.outputs is not None:
        policy.observe(batch.contexts[t], batch.outputs[t, : stop + 1].tolist())
    else:
        table = np.zeros((policy.cascade.n_arms,) * 2, dtype=np.uint8)
        for k, pair in enumerate(policy.cascade.pairs()):
            table[pair] = cast(NDArray[np.uint8], batch.differ)[t, k]
        policy.observe_disagreements(batch.contexts[t], stop, table)
    if progress is not None and (t % 1024 == 1023 or t + 1 == len(batch.contexts)):
        progress(t + 1, len(batch.contexts))
