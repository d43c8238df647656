"""The two settings under which every claim is tested, each unchanged from claim to claim."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from stopwise.experiments.runs import built
from stopwise.experiments.spec import EnvironmentSpec, PolicySpec, environment_random
from stopwise.features import Polynomial
from stopwise.paper import choices

# Policies that take no setting: the same runs stand beside both.
CLAIRVOYANT = PolicySpec("clairvoyant")
SETTING_FREE = {
    "USS-UCB": PolicySpec("uss-ucb"),
    "USS-TS": PolicySpec("uss-ts"),
    "clairvoyant": CLAIRVOYANT,
}


class ParameterSetting(msgspec.Struct, frozen=True):
    """How the contextual policies are run.

    Attributes
    ----------
    name, explanation : str
        For the report.
    sigma : float
        σ of the radius.
    forced_share : float
        The most of all rounds that may be forced. The features are the polynomials of the
        highest degree, up to the paper's, that keep to it; of degree one at least.
    """

    name: str
    explanation: str
    sigma: float
    forced_share: float

    def features(self, environment: EnvironmentSpec) -> Polynomial:
        """Return the features for an environment, found from its contexts alone."""
        return _features(environment, self.forced_share)

    def policies(self, environment: EnvironmentSpec) -> dict[str, PolicySpec]:
        """Return USS-PD and all that stand beside it on every plot, by label."""
        spec = self._spec_maker(environment)
        radius = {"delta": choices.DELTA, "sigma": self.sigma, "kappa": choices.KAPPA}
        forced = {"forced_rounds": forced_rounds(self.features(environment), environment)}
        return {
            "USS-PD": spec("uss-pd", {**radius, **forced}),
            "USS-PD-λI": spec("uss-pd-ridge", {**radius, "lam": choices.LAM, "S": choices.S}),
            "Thompson": spec("thompson", forced),
            **SETTING_FREE,
        }

    def supervised(self, environment: EnvironmentSpec) -> PolicySpec:
        """Return the comparator that is told the labels."""
        parameters = {
            "delta": choices.DELTA,
            "sigma": self.sigma,
            "kappa": choices.KAPPA,
            "forced_rounds": forced_rounds(self.features(environment), environment),
        }
        return self._spec_maker(environment)("supervised", parameters)

    def _spec_maker(
        self, environment: EnvironmentSpec
    ) -> Callable[[str, dict[str, Any]], PolicySpec]:
        features = self.features(environment).to_spec()

        def make(name: str, parameters: dict[str, Any]) -> PolicySpec:
            return PolicySpec(name, {**parameters, "ridge": choices.RIDGE}, features)

        return make


LITERAL = ParameterSetting(
    name="literal",
    explanation=(
        f"What is printed: degree two, δ = {choices.DELTA}, σ = {choices.SIGMA}; κ = "
        f"{choices.KAPPA}, ten forced rounds for each feature."
    ),
    sigma=choices.SIGMA,
    forced_share=1.0,
)
PRACTICAL = ParameterSetting(
    name="practical",
    explanation=(
        "What we recommend to somebody who has no labels. Features: the polynomials of the highest "
        "degree, up to two, whose ten forced rounds for each feature take at most 5 % of all "
        f"rounds: degree two on the synthetic data, one on PIMA and Heart. σ = "
        f"{choices.PRACTICAL_SIGMA}, an eighth of what is printed: chosen by simulation on models "
        "of disagreement fitted to the forced rounds of all instances, where it lost least, on "
        "average, to the best σ of each (`benchmarks/radius.py`; no label is looked at). Otherwise "
        "as printed."
    ),
    sigma=choices.PRACTICAL_SIGMA,
    forced_share=choices.PRACTICAL_FORCED_SHARE,
)
SETTINGS = (LITERAL, PRACTICAL)


def forced_rounds(features: Polynomial, environment: EnvironmentSpec) -> int:
    """Return m: ten for each feature."""
    return choices.FORCED_PER_FEATURE * len(features.monomials(built(environment).context_dim))


@lru_cache(maxsize=64)
def _features(environment: EnvironmentSpec, forced_share: float) -> Polynomial:
    contexts = built(environment).sample(choices.ROUNDS, environment_random(0)).contexts
    allowed = forced_share * choices.ROUNDS
    features = Polynomial(degree=1)
    for degree in range(choices.DEGREE, 0, -1):
        features = Polynomial(degree).independent(contexts)
        if choices.FORCED_PER_FEATURE * len(features.monomials(contexts.shape[1])) <= allowed:
            break
    return features
