"""Stopwise learns, online and without labels, how deep to go in a cascade.

``import stopwise as sw`` provides cascades and policies; `stopwise.research` provides environments,
comparators and experiments. Modules are loaded when one of their names is first used, so that
``import stopwise`` is fast.
"""

from typing import TYPE_CHECKING

from stopwise import errors as errors
from stopwise.lazy import attach
from stopwise.version import __version__ as __version__

_MODULES = {
    "AsyncClient": "stopwise.client.client",
    "bind": "stopwise.features",
    "Cascade": "stopwise.cascade",
    "Change": "stopwise.records",
    "check_policy": "stopwise.policies.conformance",
    "Client": "stopwise.client.client",
    "Columns": "stopwise.logs.log",
    "Custom": "stopwise.features",
    "Decision": "stopwise.records",
    "diagnose": "stopwise.logs.diagnosis.diagnose",
    "Diagnosis": "stopwise.logs.diagnosis.findings",
    "Encoding": "stopwise.logs.encoding",
    "Failure": "stopwise.records",
    "FixedDepth": "stopwise.policies.baselines",
    "Identity": "stopwise.features",
    "Label": "stopwise.records",
    "LabelRequest": "stopwise.records",
    "load": "stopwise.policies.creation",
    "Log": "stopwise.logs.log",
    "LogWriter": "stopwise.logs.writer",
    "make": "stopwise.policies.creation",
    "normalised_text": "stopwise.running.answer_forms",
    "Observation": "stopwise.records",
    "PairEvidence": "stopwise.records",
    "PerPair": "stopwise.features",
    "PerStage": "stopwise.features",
    "POLICIES": "stopwise.policies.registry",
    "Policy": "stopwise.policies.protocol",
    "Polynomial": "stopwise.features",
    "RandomDepth": "stopwise.policies.baselines",
    "RecordedRounds": "stopwise.records",
    "Replay": "stopwise.logs.replay.results",
    "replay": "stopwise.logs.replay.replay",
    "Round": "stopwise.records",
    "RoundInProgress": "stopwise.policies.round_in_progress",
    "Runner": "stopwise.running.runner",
    "Scaled": "stopwise.features",
    "Shared": "stopwise.features",
    "simulate": "stopwise.research.experiments.simulate",
    "Stage": "stopwise.running.stage",
    "Standard": "stopwise.features",
    "Thompson": "stopwise.policies.thompson",
    "USSAnchor": "stopwise.policies.uss_anchor",
    "USSLaplace": "stopwise.policies.uss_laplace",
    "USSPD": "stopwise.policies.uss_pd",
    "USSPDRidge": "stopwise.policies.uss_pd_ridge",
    "USSTS": "stopwise.policies.context_free",
    "USSUCB": "stopwise.policies.context_free",
}

if TYPE_CHECKING:
    from stopwise.cascade import Cascade as Cascade
    from stopwise.client.client import AsyncClient as AsyncClient
    from stopwise.client.client import Client as Client
    from stopwise.features import Custom as Custom
    from stopwise.features import Identity as Identity
    from stopwise.features import PerPair as PerPair
    from stopwise.features import PerStage as PerStage
    from stopwise.features import Polynomial as Polynomial
    from stopwise.features import Scaled as Scaled
    from stopwise.features import Shared as Shared
    from stopwise.features import Standard as Standard
    from stopwise.features import bind as bind
    from stopwise.logs.diagnosis.diagnose import diagnose as diagnose
    from stopwise.logs.diagnosis.findings import Diagnosis as Diagnosis
    from stopwise.logs.encoding import Encoding as Encoding
    from stopwise.logs.log import Columns as Columns
    from stopwise.logs.log import Log as Log
    from stopwise.logs.replay.replay import replay as replay
    from stopwise.logs.replay.results import Replay as Replay
    from stopwise.logs.writer import LogWriter as LogWriter
    from stopwise.policies.baselines import FixedDepth as FixedDepth
    from stopwise.policies.baselines import RandomDepth as RandomDepth
    from stopwise.policies.conformance import check_policy as check_policy
    from stopwise.policies.context_free import USSTS as USSTS
    from stopwise.policies.context_free import USSUCB as USSUCB
    from stopwise.policies.creation import load as load
    from stopwise.policies.creation import make as make
    from stopwise.policies.protocol import Policy as Policy
    from stopwise.policies.registry import POLICIES as POLICIES
    from stopwise.policies.round_in_progress import RoundInProgress as RoundInProgress
    from stopwise.policies.thompson import Thompson as Thompson
    from stopwise.policies.uss_anchor import USSAnchor as USSAnchor
    from stopwise.policies.uss_laplace import USSLaplace as USSLaplace
    from stopwise.policies.uss_pd import USSPD as USSPD
    from stopwise.policies.uss_pd_ridge import USSPDRidge as USSPDRidge
    from stopwise.records import Change as Change
    from stopwise.records import Decision as Decision
    from stopwise.records import Failure as Failure
    from stopwise.records import Label as Label
    from stopwise.records import LabelRequest as LabelRequest
    from stopwise.records import Observation as Observation
    from stopwise.records import PairEvidence as PairEvidence
    from stopwise.records import RecordedRounds as RecordedRounds
    from stopwise.records import Round as Round
    from stopwise.research.experiments.simulate import simulate as simulate
    from stopwise.running.answer_forms import normalised_text as normalised_text
    from stopwise.running.runner import Runner as Runner
    from stopwise.running.stage import Stage as Stage
else:
    __getattr__, __dir__ = attach(__name__, _MODULES, "errors", "__version__")
