"""kill -9 at random moments, under load: nothing acknowledged is lost, nothing counts twice."""

import random
import signal
from pathlib import Path
from threading import Event

import pytest

from tests.service.durability.load import ARMS, Load, check
from tests.service.harness import process


def kill_often(folder: Path, where: str, kills: int, seed: int) -> None:
    rng, load, never = random.Random(seed), Load(seed), Event()

    def enough() -> bool:  # the load was one
        learned = [one for one in list(load.rounds.values()) if one.status == "learned"]
        every = {one.cascade for one in learned} == set(ARMS)
        return every and len(learned) > 20 and any(one.label is not None for one in learned)

    with process(folder, "--snapshot-every", "60", store=where) as server:
        with load.running(server.url):
            for _ in range(kills):
                if rng.random() < 0.8:  # else while it reads its log, perhaps
                    load.wait_for(rng.randint(5, 60), 200, 201)
                never.wait(rng.uniform(0, 0.02))
                server.end()
                load.use()
                load.use(server.start())
            load.wait_for(20, 200, 201)
            load.wait_until(enough)
        state = check(server, where, load)
        # Once more, now that nothing changes: it has the same state.
        server.end()
        server.start()
        assert server.wait_until_ready() == state
        assert server.end(signal.SIGTERM) == 0
        server.start()
    assert load.statuses[0] > 0


def test_nothing_is_lost_when_the_server_is_killed(tmp_path: Path, where: str) -> None:
    kill_often(tmp_path, where, kills=2, seed=1)


@pytest.mark.slow
def test_nothing_is_lost_in_100_kills(tmp_path: Path, where: str) -> None:
    kill_often(tmp_path, where, kills=100, seed=2)
