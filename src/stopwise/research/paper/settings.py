"""The two parameter settings under which every claim is tested."""

from functools import lru_cache

import msgspec

from stopwise.features import Polynomial
from stopwise.research.experiments.runs import build_environment, draw_batch
from stopwise.research.experiments.spec import EnvironmentSpec, PolicySpec
from stopwise.research.paper import choices

# These policies do not depend on the setting, so the same runs are shown under both.
SETTING_FREE = {
    "USS-UCB": PolicySpec("uss-ucb"),
    "USS-TS": PolicySpec("uss-ts"),
    "clairvoyant": PolicySpec("clairvoyant"),
}


class ParameterSetting(msgspec.Struct, frozen=True):
    """Parameters of the contextual policies.

    ``sigma`` is the σ in the radius. The features are polynomials. Their degree is the highest, up
    to the paper's, at which forced rounds take at most ``forced_share`` of all rounds; if there is
    no such degree, it is one.
    """

    name: str
    explanation: str
    sigma: float
    forced_share: float

    def features(self, environment: EnvironmentSpec) -> Polynomial:
        """Return the features for an environment; their degree does not depend on outcomes."""
        return _features(environment, self.forced_share)

    def policies(
        self, environment: EnvironmentSpec, *, supervised: bool = False
    ) -> dict[str, PolicySpec]:
        """Return USS-PD and the policies that every plot compares with it, by label.

        ``supervised`` adds the learner that receives labels.
        """
        features = self.features(environment)
        ridge = {"ridge": choices.RIDGE}
        radius = {"delta": choices.DELTA, "sigma": self.sigma, "kappa": choices.KAPPA, **ridge}
        forced = {"forced_rounds": forced_rounds(features, environment)}
        contextual = {
            "supervised": ("supervised", radius | forced),
            "USS-PD": ("uss-pd", radius | forced),
            "USS-PD-λI": ("uss-pd-ridge", {**radius, "lam": choices.LAM, "S": choices.S}),
            "Thompson": ("thompson", ridge | forced),
        }
        if not supervised:
            del contextual["supervised"]
        specs = {
            label: PolicySpec(name, parameters, features.to_spec())
            for label, (name, parameters) in contextual.items()
        }
        return {**specs, **SETTING_FREE}


LITERAL = ParameterSetting(
    name="literal",
    explanation=(
        f"The values printed in the paper (degree two, δ = {choices.DELTA}, σ = {choices.SIGMA}), "
        f"with κ = {choices.KAPPA} and ten forced rounds per feature."
    ),
    sigma=choices.SIGMA,
    forced_share=1.0,
)
NEAR_GREEDY = ParameterSetting(
    name="near-greedy",
    explanation=(
        "Almost no exploration: the highest degree (one or two) whose forced rounds (ten per "
        "feature) take at most 5 % of all rounds (degree one on PIMA and Heart), and σ = "
        f"{choices.NEAR_GREEDY_SIGMA}. Not a recommendation: it is hardly better than σ = 0 and "
        "can lock in a wrong arm permanently (`benchmarks/radius.py`, `worlds.py`)."
    ),
    sigma=choices.NEAR_GREEDY_SIGMA,
    forced_share=choices.NEAR_GREEDY_FORCED_SHARE,
)
SETTINGS = (LITERAL, NEAR_GREEDY)
NAMES = tuple(setting.name for setting in SETTINGS)


def forced_rounds(features: Polynomial, environment: EnvironmentSpec) -> int:
    """Return m, the number of forced rounds (ten per feature)."""
    return choices.FORCED_PER_FEATURE * len(
        features.monomials(build_environment(environment).context_dim)
    )


@lru_cache(maxsize=64)
def _features(environment: EnvironmentSpec, forced_share: float) -> Polynomial:
    contexts = draw_batch(environment, choices.ROUNDS, seed=0).contexts
    features = Polynomial(degree=1)
    for degree in range(choices.DEGREE, 0, -1):
        features = Polynomial(degree).independent(contexts)
        if forced_rounds(features, environment) <= forced_share * choices.ROUNDS:
            break
    return features
