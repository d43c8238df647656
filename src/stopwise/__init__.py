"""Stopwise learns, online and without labels, how deep to go in a cascade.

Everything a user needs is here: ``import stopwise as sw``. A name is loaded when it is first
used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from stopwise import errors
from stopwise.version import __version__ as __version__

if TYPE_CHECKING:
    from stopwise.cascade import Cascade as Cascade
    from stopwise.client.client import AsyncClient as AsyncClient
    from stopwise.client.client import Client as Client
    from stopwise.environments.base import Batch as Batch
    from stopwise.environments.base import Environment as Environment
    from stopwise.environments.binary_arms import BinaryArms as BinaryArms
    from stopwise.environments.logistic_arms import LogisticArms as LogisticArms
    from stopwise.environments.realizable import Realizable as Realizable
    from stopwise.environments.registry import ENVIRONMENTS as ENVIRONMENTS
    from stopwise.environments.registry import make_environment as make_environment
    from stopwise.environments.synthetic import Synthetic as Synthetic
    from stopwise.environments.tabular import Heart as Heart
    from stopwise.environments.tabular import Pima as Pima
    from stopwise.environments.tabular import Tabular as Tabular
    from stopwise.errors import CascadeMismatchError as CascadeMismatchError
    from stopwise.errors import CorruptFileError as CorruptFileError
    from stopwise.errors import CorruptLogError as CorruptLogError
    from stopwise.errors import CostUnitWarning as CostUnitWarning
    from stopwise.errors import EngineError as EngineError
    from stopwise.errors import FeaturesMismatchError as FeaturesMismatchError
    from stopwise.errors import FolderBusyError as FolderBusyError
    from stopwise.errors import InvalidCascadeError as InvalidCascadeError
    from stopwise.errors import InvalidContextError as InvalidContextError
    from stopwise.errors import InvalidFeaturesError as InvalidFeaturesError
    from stopwise.errors import InvalidInputError as InvalidInputError
    from stopwise.errors import InvalidLogError as InvalidLogError
    from stopwise.errors import InvalidOutputsError as InvalidOutputsError
    from stopwise.errors import InvalidParameterError as InvalidParameterError
    from stopwise.errors import InvalidStopError as InvalidStopError
    from stopwise.errors import IrreproducibleRunError as IrreproducibleRunError
    from stopwise.errors import LabelsNotSupportedError as LabelsNotSupportedError
    from stopwise.errors import LabelWarning as LabelWarning
    from stopwise.errors import MissingPackageError as MissingPackageError
    from stopwise.errors import OverrideNotSupportedError as OverrideNotSupportedError
    from stopwise.errors import PersistenceError as PersistenceError
    from stopwise.errors import ServiceError as ServiceError
    from stopwise.errors import StageFailureWarning as StageFailureWarning
    from stopwise.errors import StopwiseError as StopwiseError
    from stopwise.errors import StoreError as StoreError
    from stopwise.errors import TruthRequiredError as TruthRequiredError
    from stopwise.errors import UnknownEnvironmentError as UnknownEnvironmentError
    from stopwise.errors import UnknownPolicyError as UnknownPolicyError
    from stopwise.errors import UnsupportedVersionError as UnsupportedVersionError
    from stopwise.errors import WideFeaturesWarning as WideFeaturesWarning
    from stopwise.experiments.simulate import Run as Run
    from stopwise.experiments.simulate import measure as measure
    from stopwise.experiments.simulate import simulate as simulate
    from stopwise.features import Answers as Answers
    from stopwise.features import Custom as Custom
    from stopwise.features import Identity as Identity
    from stopwise.features import PerPair as PerPair
    from stopwise.features import PerStage as PerStage
    from stopwise.features import Polynomial as Polynomial
    from stopwise.features import Scaled as Scaled
    from stopwise.features import Shared as Shared
    from stopwise.features import Standard as Standard
    from stopwise.features import bind as bind
    from stopwise.logs.columns import Columns as Columns
    from stopwise.logs.diagnosis.diagnose import diagnose as diagnose
    from stopwise.logs.diagnosis.findings import Diagnosis as Diagnosis
    from stopwise.logs.encoding import Encoding as Encoding
    from stopwise.logs.log import Log as Log
    from stopwise.logs.replay.replay import replay as replay
    from stopwise.logs.replay.results import Replay as Replay
    from stopwise.logs.writer import LogWriter as LogWriter
    from stopwise.policies.base import Policy as Policy
    from stopwise.policies.baselines import Clairvoyant as Clairvoyant
    from stopwise.policies.baselines import FixedDepth as FixedDepth
    from stopwise.policies.baselines import Oracle as Oracle
    from stopwise.policies.baselines import RandomDepth as RandomDepth
    from stopwise.policies.noncontextual import USSTS as USSTS
    from stopwise.policies.noncontextual import USSUCB as USSUCB
    from stopwise.policies.persistence import load as load
    from stopwise.policies.registry import POLICIES as POLICIES
    from stopwise.policies.registry import make as make
    from stopwise.policies.round_in_progress import RoundInProgress as RoundInProgress
    from stopwise.policies.supervised import Supervised as Supervised
    from stopwise.policies.thompson import Thompson as Thompson
    from stopwise.policies.uss_anchor import USSAnchor as USSAnchor
    from stopwise.policies.uss_laplace import USSLaplace as USSLaplace
    from stopwise.policies.uss_pd import USSPD as USSPD
    from stopwise.policies.uss_pd import USSPDRidge as USSPDRidge
    from stopwise.records import Change as Change
    from stopwise.records import Decision as Decision
    from stopwise.records import Failure as Failure
    from stopwise.records import LabelRequest as LabelRequest
    from stopwise.records import PairEvidence as PairEvidence
    from stopwise.records import Round as Round
    from stopwise.records import Rounds as Rounds
    from stopwise.records import Truth as Truth
    from stopwise.running.answers import bucket as bucket
    from stopwise.running.answers import normalised_text as normalised_text
    from stopwise.running.runner import Runner as Runner
    from stopwise.running.stage import Stage as Stage

# The module of each public name; a test compares it with the list above.
_NAMES = {
    "cascade": "Cascade",
    "client.client": "AsyncClient Client",
    "environments.base": "Batch Environment",
    "environments.binary_arms": "BinaryArms",
    "environments.logistic_arms": "LogisticArms",
    "environments.realizable": "Realizable",
    "environments.registry": "ENVIRONMENTS make_environment",
    "environments.synthetic": "Synthetic",
    "environments.tabular": "Heart Pima Tabular",
    "experiments.simulate": "Run measure simulate",
    "features": "Answers Custom Identity PerPair PerStage Polynomial Scaled Shared Standard bind",
    "logs.columns": "Columns",
    "logs.diagnosis.diagnose": "diagnose",
    "logs.diagnosis.findings": "Diagnosis",
    "logs.encoding": "Encoding",
    "logs.log": "Log",
    "logs.replay.replay": "replay",
    "logs.replay.results": "Replay",
    "logs.writer": "LogWriter",
    "policies.base": "Policy",
    "policies.baselines": "Clairvoyant FixedDepth Oracle RandomDepth",
    "policies.noncontextual": "USSTS USSUCB",
    "policies.persistence": "load",
    "policies.registry": "POLICIES make",
    "policies.round_in_progress": "RoundInProgress",
    "policies.supervised": "Supervised",
    "policies.thompson": "Thompson",
    "policies.uss_anchor": "USSAnchor",
    "policies.uss_laplace": "USSLaplace",
    "policies.uss_pd": "USSPD USSPDRidge",
    "records": "Change Decision Failure LabelRequest PairEvidence Round Rounds Truth",
    "running.answers": "bucket normalised_text",
    "running.runner": "Runner",
    "running.stage": "Stage",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()} | {
    name: "errors"
    for name in vars(errors)
    if name.endswith(("Error", "Warning")) and name[0] != "_"
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'stopwise' has no attribute {name!r}")
    value = getattr(import_module(f"stopwise.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*sorted(_HOME), "__version__"]
