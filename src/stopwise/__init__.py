"""Stopwise learns, online and without labels, how deep to go in a cascade.

Everything a user needs is here: ``import stopwise as sw``. A name is loaded when it is first
used, so that importing the package costs next to nothing.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from stopwise import errors as errors
from stopwise.version import __version__ as __version__

if TYPE_CHECKING:
    from stopwise.cascade import Cascade as Cascade
    from stopwise.client.client import AsyncClient as AsyncClient
    from stopwise.client.client import Client as Client
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
    from stopwise.research.experiments.simulate import Run as Run
    from stopwise.research.experiments.simulate import measure as measure
    from stopwise.research.experiments.simulate import simulate as simulate
    from stopwise.running.forms import normalised_text as normalised_text
    from stopwise.running.runner import Runner as Runner
    from stopwise.running.stage import Stage as Stage


@cache
def _homes() -> dict[str, str]:
    """Return the module of each name above, which only type checkers import there."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    found = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {one.name: str(node.module) for node in found for one in node.names}


def __getattr__(name: str) -> object:
    if name.startswith("_") or name not in _homes():
        raise AttributeError(f"module 'stopwise' has no attribute {name!r}")
    value = getattr(import_module(_homes()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*sorted({"errors"} | _homes().keys()), "__version__"]
