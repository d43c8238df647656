"""Research tools: environments, comparators, experiments, theory and the paper reproduction."""

from typing import TYPE_CHECKING

from stopwise.lazy import attach

_MODULES = {
    "arm_margins": "stopwise.research.theory.dominance",
    "Batch": "stopwise.research.environments.base",
    "BinaryArms": "stopwise.research.environments.binary_arms",
    "can_be_optimal": "stopwise.research.theory.dominance",
    "predict_logistic": "stopwise.research.environments.training",
    "Clairvoyant": "stopwise.research.comparators.clairvoyant",
    "Comparator": "stopwise.research.comparators.base",
    "COMPARATORS": "stopwise.research.comparators.registry",
    "curves": "stopwise.research.experiments.summary",
    "dominance_margin": "stopwise.research.theory.dominance",
    "dominance_margins": "stopwise.research.theory.dominance",
    "Environment": "stopwise.research.environments.base",
    "ENVIRONMENTS": "stopwise.research.environments.registry",
    "EnvironmentSpec": "stopwise.research.experiments.spec",
    "execute": "stopwise.research.experiments.runs",
    "ExperimentSpec": "stopwise.research.experiments.spec",
    "finals": "stopwise.research.experiments.summary",
    "first_candidates": "stopwise.research.theory.dominance",
    "fit_logistic": "stopwise.research.environments.training",
    "forced_rounds_bound": "stopwise.research.theory.bounds",
    "Heart": "stopwise.research.environments.tabular",
    "largest_regret": "stopwise.research.theory.bounds",
    "load_table": "stopwise.research.data",
    "LogisticArms": "stopwise.research.environments.binary_arms",
    "make_environment": "stopwise.research.environments.registry",
    "mean_interval": "stopwise.intervals",
    "measure": "stopwise.research.experiments.simulate",
    "optimal_arms": "stopwise.research.theory.regret",
    "Oracle": "stopwise.research.comparators.oracle",
    "paired_difference": "stopwise.research.experiments.summary",
    "Pima": "stopwise.research.environments.tabular",
    "PolicySpec": "stopwise.research.experiments.spec",
    "pseudo_regret": "stopwise.research.theory.regret",
    "Realizable": "stopwise.research.environments.realizable",
    "regret": "stopwise.research.theory.regret",
    "regret_bound": "stopwise.research.theory.bounds",
    "Run": "stopwise.research.experiments.simulate",
    "run_campaign": "stopwise.research.experiments.campaign",
    "RunStore": "stopwise.research.experiments.store",
    "signed_pseudo_regret": "stopwise.research.theory.regret",
    "simulate": "stopwise.research.experiments.simulate",
    "standardised": "stopwise.research.environments.tabular",
    "Supervised": "stopwise.research.comparators.supervised",
    "Synthetic": "stopwise.research.environments.synthetic",
    "Tabular": "stopwise.research.environments.tabular",
    "Trace": "stopwise.research.experiments.runs",
    "Truth": "stopwise.research.comparators.base",
}

if TYPE_CHECKING:
    from stopwise.intervals import mean_interval as mean_interval
    from stopwise.research.comparators.base import Comparator as Comparator
    from stopwise.research.comparators.base import Truth as Truth
    from stopwise.research.comparators.clairvoyant import Clairvoyant as Clairvoyant
    from stopwise.research.comparators.oracle import Oracle as Oracle
    from stopwise.research.comparators.registry import COMPARATORS as COMPARATORS
    from stopwise.research.comparators.supervised import Supervised as Supervised
    from stopwise.research.data import load_table as load_table
    from stopwise.research.environments.base import Batch as Batch
    from stopwise.research.environments.base import Environment as Environment
    from stopwise.research.environments.binary_arms import BinaryArms as BinaryArms
    from stopwise.research.environments.binary_arms import LogisticArms as LogisticArms
    from stopwise.research.environments.realizable import Realizable as Realizable
    from stopwise.research.environments.registry import ENVIRONMENTS as ENVIRONMENTS
    from stopwise.research.environments.registry import make_environment as make_environment
    from stopwise.research.environments.synthetic import Synthetic as Synthetic
    from stopwise.research.environments.tabular import Heart as Heart
    from stopwise.research.environments.tabular import Pima as Pima
    from stopwise.research.environments.tabular import Tabular as Tabular
    from stopwise.research.environments.tabular import standardised as standardised
    from stopwise.research.environments.training import fit_logistic as fit_logistic
    from stopwise.research.environments.training import predict_logistic as predict_logistic
    from stopwise.research.experiments.campaign import run_campaign as run_campaign
    from stopwise.research.experiments.runs import Trace as Trace
    from stopwise.research.experiments.runs import execute as execute
    from stopwise.research.experiments.simulate import Run as Run
    from stopwise.research.experiments.simulate import measure as measure
    from stopwise.research.experiments.simulate import simulate as simulate
    from stopwise.research.experiments.spec import EnvironmentSpec as EnvironmentSpec
    from stopwise.research.experiments.spec import ExperimentSpec as ExperimentSpec
    from stopwise.research.experiments.spec import PolicySpec as PolicySpec
    from stopwise.research.experiments.store import RunStore as RunStore
    from stopwise.research.experiments.summary import curves as curves
    from stopwise.research.experiments.summary import finals as finals
    from stopwise.research.experiments.summary import paired_difference as paired_difference
    from stopwise.research.theory.bounds import forced_rounds_bound as forced_rounds_bound
    from stopwise.research.theory.bounds import largest_regret as largest_regret
    from stopwise.research.theory.bounds import regret_bound as regret_bound
    from stopwise.research.theory.dominance import arm_margins as arm_margins
    from stopwise.research.theory.dominance import can_be_optimal as can_be_optimal
    from stopwise.research.theory.dominance import dominance_margin as dominance_margin
    from stopwise.research.theory.dominance import dominance_margins as dominance_margins
    from stopwise.research.theory.dominance import first_candidates as first_candidates
    from stopwise.research.theory.regret import optimal_arms as optimal_arms
    from stopwise.research.theory.regret import pseudo_regret as pseudo_regret
    from stopwise.research.theory.regret import regret as regret
    from stopwise.research.theory.regret import signed_pseudo_regret as signed_pseudo_regret
else:
    __getattr__, __dir__ = attach(__name__, _MODULES)
