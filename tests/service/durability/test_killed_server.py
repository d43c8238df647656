"""SIGKILL at random moments under load loses no acknowledged data and counts nothing twice."""

import random
import signal
from pathlib import Path
from threading import Event

import pytest

from tests.service.durability.load import ARMS, Load, check
from tests.service.harness import process


def kill_often(folder: Path, where: str, kills: int, seed: int) -> None:
    rng, load, never = random.Random(seed), Load(seed), Event()

    def covered() -> bool:
        """Return whether rounds of all cascades were learned and some were labelled."""
        learned = [round_ for round_ in list(load.rounds.values()) if round_.status == "learned"]
        all_cascades = {round_.cascade for round_ in learned} == set(ARMS)
        labelled = any(round_.label is not None for round_ in learned)
        return all_cascades and len(learned) > 20 and labelled

    with process(folder, "--snapshot-every", "60", store=where) as server:
        with load.running(server.url):
            for _ in range(kills):
                if rng.random() < 0.8:  # otherwise possibly while the server reads its log
                    load.wait_for(rng.randint(5, 60), 200, 201)
                never.wait(rng.uniform(0, 0.02))
                server.end()
                load.use()
                load.use(server.start())
            load.wait_for(20, 200, 201)
            load.wait_until(covered)
        state = check(server, where, load)
        # Kill it once more without load: the state stays the same.
        server.end()
        server.start()
        assert server.wait_until_ready() == state
        assert server.end(signal.SIGTERM) == 0
        server.start()
    assert load.statuses[0] > 0


def test_killed_server_loses_nothing(tmp_path: Path, where: str) -> None:
    kill_often(tmp_path, where, kills=2, seed=1)


@pytest.mark.slow
def test_100_kills_lose_no_acknowledged_round(tmp_path: Path, where: str) -> None:
    kill_often(tmp_path, where, kills=100, seed=2)
