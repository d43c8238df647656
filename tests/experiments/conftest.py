import pytest

from stopwise.experiments.runs import Trace
from tests.experiments import campaigns


@pytest.fixture(scope="session")
def expected() -> dict[tuple[str, int], Trace]:
    return campaigns.expected()
