"""What both clients do about answers and failures, on a clock of the test's own."""

from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.client.requests import Requests
from stopwise.client.retries import (
    FIRST_WAIT,
    LONGEST_WAIT,
    ConnectionLost,
    Exchange,
    Pause,
    Reply,
    Send,
)
from stopwise.service.messages import RoundAnswer

OPENED = b'{"id":"1-a","status":"open","arm":"model","cost":0.3,"stop":1,"next":0}'
BUSY = b'{"error": {"code": "unavailable", "message": "the disk is full"}}'


class Driver:
    """Does the steps of an exchange by a script; time passes only in pauses and lost tries."""

    def __init__(
        self, *script: Reply | ConnectionLost, lost_takes: float = 0.0, seed: int = 0
    ) -> None:
        self.now = 1000.0
        self.script = list(script)
        self.lost_takes = lost_takes
        self.sent: list[Send] = []
        self.pauses: list[float] = []
        self.requests = Requests(
            "http://service:8350",
            "the-key",
            timeout=10,
            deadline=30,
            rng=np.random.default_rng(seed),
        )
        self.requests.retries.clock = lambda: self.now

    def do(self, exchange: Exchange[Any]) -> Any:
        step = next(exchange)
        try:
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                    step = exchange.send(None)
                    continue
                assert isinstance(step, Send)
                self.sent.append(step)
                outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                if isinstance(outcome, ConnectionLost):
                    self.now += min(self.lost_takes, step.timeout)
                    step = exchange.throw(outcome)
                else:
                    step = exchange.send(outcome)
        except StopIteration as end:
            return end.value

    def open(self) -> RoundAnswer:
        return self.do(self.requests.open("triage", [0.5]))


def test_each_try_is_the_same_request_with_the_same_key() -> None:
    driver = Driver(ConnectionLost("gone"), Reply(503, BUSY), Reply(429, BUSY), Reply(200, OPENED))
    driver.open()
    assert len(driver.sent) == 4
    assert len({send.headers["Idempotency-Key"] for send in driver.sent}) == 1
    assert len({send.content for send in driver.sent}) == 1


def test_waits_are_uniform_below_a_doubling_limit() -> None:
    # Each pause over its limit is uniform in [0, 1]: the mean of 300 of them is off by more than
    # 0.1 with probability below 1e-8 (six standard deviations); the seeds are fixed.
    shares: list[float] = []
    for seed in range(60):
        driver = Driver(*[ConnectionLost("gone")] * 5, Reply(200, OPENED), seed=seed)
        driver.open()
        limits = [FIRST_WAIT * 2**n for n in range(5)]
        assert len(driver.pauses) == 5
        shares += [pause / limit for pause, limit in zip(driver.pauses, limits, strict=True)]
    assert all(0 <= share <= 1 for share in shares)
    assert abs(np.mean(shares) - 0.5) < 0.1
    assert max(shares) > 0.9
    assert min(shares) < 0.1


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_kept_to(status: int) -> None:
    driver = Driver(Reply(status, BUSY, "2"), Reply(200, OPENED))
    driver.open()
    (pause,) = driver.pauses
    assert 2.0 <= pause <= 2.0 + FIRST_WAIT


def test_retry_after_is_capped() -> None:
    driver = Driver(Reply(503, BUSY, "86400"), Reply(200, OPENED))
    driver.open()
    (pause,) = driver.pauses
    assert LONGEST_WAIT <= pause <= LONGEST_WAIT + FIRST_WAIT


def test_it_gives_up_at_the_deadline_with_what_the_service_said() -> None:
    driver = Driver(Reply(503, BUSY))
    with pytest.raises(sw.ServiceError) as caught:
        driver.open()
    assert (caught.value.status, caught.value.code) == (503, "unavailable")
    assert "the disk is full" in str(caught.value)
    assert f"the last of {len(driver.sent)} tries" in caught.value.__notes__[0]
    assert driver.now - 1000.0 <= 30.0
    assert len(driver.sent) > 5


def test_it_does_not_wait_for_what_would_come_too_late() -> None:
    driver = Driver(Reply(503, BUSY, "4"))
    with pytest.raises(sw.ServiceError):
        driver.open()
    assert driver.now - 1000.0 <= 30.0
    assert all(pause >= 4 for pause in driver.pauses)


def test_what_is_left_limits_each_try() -> None:
    driver = Driver(ConnectionLost("nothing came", "timeout"), lost_takes=10.0)
    with pytest.raises(sw.ServiceError) as caught:
        driver.open()
    assert (caught.value.status, caught.value.code) == (0, "timeout")
    assert [send.timeout for send in driver.sent[:2]] == [10, 10]
    assert driver.sent[-1].timeout < 10
    assert driver.now - 1000.0 <= 30.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 415, 422, 501])
def test_a_refusal_is_final(status: int) -> None:
    body = b'{"error": {"code": "why", "message": "because", "field": "context"}}'
    driver = Driver(Reply(status, body))
    with pytest.raises(sw.ServiceError) as caught:
        driver.open()
    error = caught.value
    assert (error.status, error.code, error.field) == (status, "why", "context")
    assert len(driver.sent) == 1


def test_a_defect_is_tried_once_more_with_the_same_key() -> None:
    defect = Reply(500, b'{"error": {"code": "internal", "message": "a defect"}}')
    driver = Driver(defect, Reply(201, OPENED))
    assert driver.open().id == "1-a"
    assert len({send.headers["Idempotency-Key"] for send in driver.sent}) == 1
    driver = Driver(Reply(503, BUSY), defect, Reply(503, BUSY), defect)
    with pytest.raises(sw.ServiceError) as caught:
        driver.open()
    assert (caught.value.status, caught.value.code) == (500, "internal")
    assert len(driver.sent) == 4


def test_what_would_fail_again_is_not_tried_again() -> None:
    driver = Driver(ConnectionLost("the certificate is wrong", lasting=True))
    with pytest.raises(sw.ServiceError, match="the certificate is wrong"):
        driver.open()
    assert len(driver.sent) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"id": 5}', b"\xff\xfe", b"null"])
def test_an_answer_of_another_program_is_a_bad_answer(body: bytes) -> None:
    with pytest.raises(sw.ServiceError) as caught:
        Driver(Reply(200, body)).open()
    assert (caught.value.status, caught.value.code) == (200, "bad_answer")
    with pytest.raises(sw.ServiceError) as caught:
        Driver(Reply(404, body)).open()
    assert (caught.value.status, caught.value.code) == (404, "bad_answer")


def test_a_newer_service_may_say_more() -> None:
    more = OPENED[:-1] + b', "confidence": 0.9}'
    assert Driver(Reply(200, more)).open().stop == 1


def test_ready_waits_for_a_service_that_is_starting() -> None:
    driver = Driver(ConnectionLost("nobody there"), Reply(503, BUSY), Reply(200, b"{}"))
    assert driver.do(driver.requests.ready(wait=5))
    assert len(driver.sent) == 3


def test_ready_says_no_when_time_is_up() -> None:
    driver = Driver(Reply(503, BUSY))
    assert not driver.do(driver.requests.ready())
    assert len(driver.sent) == 1
    assert not driver.do(driver.requests.ready(wait=1))
    assert driver.now - 1000.0 <= 1.0


def test_ready_does_not_take_another_program_for_the_service() -> None:
    driver = Driver(Reply(404, b"<html>"))
    with pytest.raises(sw.ServiceError):
        driver.do(driver.requests.ready(wait=5))


def test_no_contexts_need_no_request() -> None:
    driver = Driver(Reply(200, OPENED))
    exchange = driver.requests.open_many("triage", np.empty((0, 2)))
    with pytest.raises(StopIteration) as end:
        next(exchange)
    assert end.value.value == []
