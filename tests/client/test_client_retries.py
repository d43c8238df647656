"""Retries, timeouts and error responses, with a simulated clock."""

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
    Retries,
    Send,
)
from stopwise.service.domain.messages import RoundAnswer

OPENED = b'{"id":"1-a","status":"open","arm":"model","cost":0.3,"stop":1,"next":0}'
BUSY = Reply(503, b'{"error": {"code": "unavailable", "message": "the disk is full"}}')
GONE = ConnectionLost("gone")


class Driver:
    """Performs the steps of an exchange by a script; time passes in pauses and lost tries only."""

    def __init__(
        self, *script: Reply | ConnectionLost, lost_takes: float = 0.0, seed: int = 0
    ) -> None:
        self.now = 1000.0
        self.script = list(script)
        self.lost_takes = lost_takes
        self.sent: list[Send] = []
        self.pauses: list[float] = []
        retries = Retries(10, 30, np.random.default_rng(seed))
        retries.clock = lambda: self.now
        self.requests = Requests("http://service:8350", "the-key", retries)

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

    def refused(self) -> sw.errors.ServiceError:
        with pytest.raises(sw.errors.ServiceError) as caught:
            self.open()
        assert self.now - 1000.0 <= 30.0
        return caught.value


def test_waits_are_uniform_below_an_exponential_limit() -> None:
    # Pauses divided by their limits are uniform in [0, 1]. The mean of 300 of them deviates by more
    # than 0.1 with a probability below 1e-8 (six standard deviations), and the seeds are fixed.
    shares: list[float] = []
    for seed in range(60):
        driver = Driver(*[GONE] * 5, Reply(200, OPENED), seed=seed)
        driver.open()
        limits = [FIRST_WAIT * 2**n for n in range(5)]
        shares += [pause / limit for pause, limit in zip(driver.pauses, limits, strict=True)]
    assert 0 <= min(shares) < 0.1
    assert 0.9 < max(shares) <= 1
    assert abs(np.mean(shares) - 0.5) < 0.1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("header", "least"), [("2", 2.0), ("86400", LONGEST_WAIT), ("soon", 0.0)])
def test_retry_after_is_respected_up_to_a_limit(status: int, header: str, least: float) -> None:
    driver = Driver(Reply(status, BUSY.content, header), Reply(200, OPENED))
    driver.open()
    (pause,) = driver.pauses
    assert least <= pause <= least + FIRST_WAIT


def test_after_the_deadline_the_last_response_is_raised() -> None:
    driver = Driver(BUSY)
    error = driver.refused()
    assert (error.status, error.code) == (503, "unavailable")
    assert "the disk is full" in str(error)
    assert f"after {len(driver.sent)} tries" in error.__notes__[0]
    assert len(driver.sent) > 5
    driver = Driver(BUSY._replace(retry_after="4"))  # no retry after the deadline
    driver.refused()
    assert all(pause >= 4 for pause in driver.pauses)


def test_the_remaining_time_limits_each_try() -> None:
    driver = Driver(ConnectionLost("nothing came", "timeout"), lost_takes=10.0)
    error = driver.refused()
    assert (error.status, error.code) == (0, "timeout")
    assert [send.timeout for send in driver.sent[:2]] == [10, 10]
    assert driver.sent[-1].timeout < 10


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 501])
def test_client_errors_are_not_retried(status: int) -> None:
    body = b'{"error": {"code": "why", "message": "because", "field": "context"}}'
    driver = Driver(Reply(status, body))
    error = driver.refused()
    assert (error.status, error.code, error.field) == (status, "why", "context")
    assert len(driver.sent) == 1


def test_an_internal_error_is_retried_once() -> None:
    internal = Reply(500, b'{"error": {"code": "internal", "message": "internal error"}}')
    assert Driver(internal, Reply(201, OPENED)).open().id == "1-a"
    driver = Driver(BUSY, internal, BUSY, internal)
    error = driver.refused()
    assert (error.status, error.code) == (500, "internal")
    assert len(driver.sent) == 4


def test_permanent_failures_are_not_retried() -> None:
    driver = Driver(ConnectionLost("the certificate is wrong", permanent=True))
    assert "the certificate is wrong" in str(driver.refused())
    assert len(driver.sent) == 1
    assert not driver.do(driver.requests.ready(wait=5))


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"id": 5}', b"\xff\xfe", b"null"])
@pytest.mark.parametrize("status", [200, 404])
def test_an_unexpected_body_is_a_bad_answer(status: int, body: bytes) -> None:
    error = Driver(Reply(status, body)).refused()
    assert (error.status, error.code) == (status, "bad_answer")


def test_unknown_fields_of_a_response_are_ignored() -> None:
    more = OPENED[:-1] + b', "confidence": 0.9}'
    assert Driver(Reply(200, more)).open().stop == 1


def test_ready_waits_until_its_timeout() -> None:
    driver = Driver(GONE, BUSY, Reply(200, b"{}"))
    assert driver.do(driver.requests.ready(wait=5))
    assert len(driver.sent) == 3
    driver = Driver(BUSY)
    assert not driver.do(driver.requests.ready())
    assert len(driver.sent) == 1
    assert not driver.do(driver.requests.ready(wait=1))
    assert driver.now - 1000.0 <= 1.0
    driver = Driver(Reply(404, b"<html>"))  # another program
    with pytest.raises(sw.errors.ServiceError):
        driver.do(driver.requests.ready(wait=5))


def test_an_empty_batch_sends_no_request() -> None:
    with pytest.raises(StopIteration) as end:
        next(Driver(BUSY).requests.open_many("triage", np.empty((0, 2))))
    assert end.value.value == []
