"""Client load for a service that fails, and checks of its log afterwards.

Clients repeat a request without a response under the same Idempotency-Key, or abandon it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, Event
from typing import Any

import httpx

from stopwise.service.domain.ledger import STATUS_NAMES
from stopwise.service.domain.state import State
from stopwise.service.persistence.recovery import recover_state
from stopwise.service.persistence.snapshots import state_hash
from stopwise.service.persistence.stores.opening import open_existing_store
from stopwise.service.tools.verification import verify
from tests.service.harness import REVEALING, SPEC, ServerProcess

CLIENTS = 8
ABANDONED = 0.03  # share of requests without a response that are not repeated
LOOKED_UP = 60  # rounds that are also checked through the API
TIMEOUT = 120.0  # seconds without progress after which a test fails
SPECS = [
    {**SPEC, "policy": {"kind": "uss-pd", "forced_rounds": 20, "explore": 0.1}},
    {**SPEC, "name": "chance", "policy": {"kind": "thompson", "seed": 4}, "keep_open": 60},
    {**REVEALING, "policy": {"kind": "uss-pd", "forced_rounds": 20}},
]
ARMS: dict[str, list[str]] = {spec["name"]: [arm["name"] for arm in spec["arms"]] for spec in SPECS}
REVEALED = [[0.1], [0.2], []]  # by each arm of "stages"


@dataclass
class Round:
    """The acknowledged state of a round."""

    cascade: str
    id: str
    key: str
    request: Any  # that opened the round; None for a batch
    context: list[float]
    outputs: list[str]  # of all arms, also those not reported yet
    stop: int | None
    reported: set[int] = field(default_factory=set)
    status: str = "open"
    label: str | None = None

    @property
    def path(self) -> str:
        return f"/v1/cascades/{self.cascade}/rounds/{self.id}"


class Load:
    """Runs clients against servers, and records all acknowledged rounds."""

    def __init__(self, seed: int) -> None:
        self.rounds: dict[tuple[str, str], Round] = {}
        self.keys: set[str] = set()  # all keys that were sent
        self.statuses: Counter[int] = Counter()  # 0: no response
        self._seed = seed
        self._urls: list[str] = []
        self._open: list[Round] = []
        self._ended: list[Round] = []
        self._in_flight = 0
        self._over = Event()
        self._error: BaseException | None = None
        self._changed = Condition()

    def use(self, *urls: str) -> None:
        """Use these servers; without any, wait until all requests are answered and pause."""
        with self._changed:
            self._urls = list(urls)
            self._changed.notify_all()
        if not urls:
            self.wait_until(lambda: self._in_flight == 0)

    def wait_for(self, number: int, *statuses: int) -> None:
        """Wait for a number of further responses with these statuses."""
        goal = sum(self.statuses[status] for status in statuses) + number
        self.wait_until(lambda: sum(self.statuses[status] for status in statuses) >= goal)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, which is checked after every response."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._error or condition(), TIMEOUT)
        if self._error is not None:
            raise self._error

    @contextmanager
    def running(self, *urls: str) -> Iterator[None]:
        """Create the cascades and run the clients during the block."""
        with httpx.Client(timeout=TIMEOUT, trust_env=False, verify=False) as client:
            for spec in SPECS:
                while (post := client.post(f"{urls[0]}/v1/cascades", json=spec)).status_code == 503:
                    pass  # the server is reading its log
                assert post.status_code == 201, post.text
        self.use(*urls)
        with ThreadPoolExecutor(CLIENTS) as pool:
            seeds = [f"{self._seed}/{k}" for k in range(CLIENTS)]
            clients = [pool.submit(self._run, random.Random(seed)) for seed in seeds]
            try:
                yield
            finally:
                self._over.set()
                with self._changed:
                    self._changed.notify_all()
        for client in clients:
            client.result()

    def _run(self, rng: random.Random) -> None:
        try:
            with httpx.Client(timeout=TIMEOUT, trust_env=False, verify=False) as http:
                client = Client(self, rng, http)
                while not self._over.is_set():
                    client.act()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            raise

    def send(self, client: "Client", path: str, body: Any, key: str | None = None) -> Any:
        """Send a request until it has a final response; None if the client abandons it."""
        headers = {} if key is None else {"Idempotency-Key": key}
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._urls or self._over.is_set())
                if not self._urls:
                    return None
                url = client.rng.choice(self._urls)
                self._in_flight += 1
            try:
                answer = client.http.post(url + path, json=body, headers=headers)
                status = answer.status_code
            except httpx.TransportError:
                answer, status = None, 0
            with self._changed:
                self._in_flight -= 1
                self.statuses[status] += 1
                self._changed.notify_all()
            if answer is not None and status in (200, 201, 410):
                return answer
            if answer is not None:  # the only errors expected
                code = answer.json()["error"]["code"]
                assert (status, code) in [(503, "unavailable"), (429, "too_many_requests")], code
            if self._over.is_set() or client.rng.random() < ABANDONED:
                return None
            self._over.wait(0.05 * client.rng.random())

    def pick(self, rng: random.Random, *, ended: bool) -> Round | None:
        """Remove and return a random open round, or return a random ended one."""
        with self._changed:
            rounds = self._ended if ended else self._open
            if not rounds:
                return None
            return rng.choice(rounds) if ended else rounds.pop(rng.randrange(len(rounds)))

    def add(self, round_: Round) -> None:
        with self._changed:
            (self._open if round_.status == "open" else self._ended).append(round_)


class Client:
    """A client that sends random requests."""

    def __init__(self, load: Load, rng: random.Random, http: httpx.Client) -> None:
        self.load = load
        self.rng = rng
        self.http = http

    def act(self) -> None:
        actions = {self.open: 40, self.report: 60, self.repeat: 6, self.label: 4}
        self.rng.choices(list(actions), list(actions.values()))[0]()

    def open(self) -> None:
        rng, name = self.rng, self.rng.choice(list(ARMS))
        size, n = (1, 1) if name == "stages" else (2, rng.choice([1, 1, 1, 4]))
        contexts = [[rng.uniform(-0.7, 0.7) for _ in range(size)] for _ in range(n)]
        body = {"context": contexts[0]} if n == 1 else {"contexts": contexts}
        key = f"{rng.getrandbits(64):x}"
        self.load.keys.add(key)
        path = f"/v1/cascades/{name}/rounds" + (":batch" if n > 1 else "")
        answer = self.load.send(self, path, body, key)
        if answer is None:
            return
        rounds = answer.json().get("rounds", [answer.json()])
        for opened, context in zip(rounds, contexts, strict=True):
            outputs = ["yes" if rng.random() < 0.5 + context[0] / 2 else "no" for _ in ARMS[name]]
            request, stop = body if n == 1 else None, opened.get("stop")
            round_ = Round(name, opened["id"], key, request, context, outputs, stop)
            assert (name, round_.id) not in self.load.rounds
            self.load.rounds[name, round_.id] = round_
            self.load.add(round_)

    def report(self) -> None:
        """Report the next, some or all outputs of an open round, possibly as final."""
        rng, round_ = self.rng, self.load.pick(self.rng, ended=False)
        if round_ is None:
            return
        body: dict[str, Any] = {"final": rng.random() < 0.08}  # a stage failed
        if round_.stop is None:
            arms = [len(round_.reported)]
            body["revealed"] = REVEALED[arms[0]]
        else:
            arms = list(range(round_.stop + 1))
            if rng.random() >= 0.6:
                arms = rng.sample(arms, rng.randint(1, len(arms)))
        body["outputs"] = {ARMS[round_.cascade][arm]: round_.outputs[arm] for arm in arms}
        answer = self.load.send(self, f"{round_.path}/outputs", body)
        if answer is None:
            return  # the round is abandoned
        if answer.status_code == 410:
            assert round_.cascade == "chance"
            round_.status = "expired"
            return
        round_.status, round_.stop = answer.json()["status"], answer.json().get("stop")
        round_.reported |= set(arms)
        self.load.add(round_)

    def repeat(self) -> None:
        """Repeat requests that were answered, as a client might after a crash."""
        round_ = self.load.pick(self.rng, ended=True)
        if round_ is None or round_.cascade == "stages":
            return
        if round_.request is not None:
            path = round_.path.rpartition("/")[0]
            answer = self.load.send(self, path, round_.request, round_.key)
            assert answer is None or (answer.status_code, answer.json()["id"]) == (200, round_.id)
        first = {"outputs": round_.outputs[:1] if 0 in round_.reported else []}
        answer = self.load.send(self, f"{round_.path}/outputs", first)
        assert answer is None or answer.json()["repeated"]

    def label(self) -> None:
        round_ = self.load.pick(self.rng, ended=True)
        if round_ is not None and round_.cascade != "chance" and 0 in round_.reported:
            label = round_.outputs[-1]
            if self.load.send(self, f"{round_.path}/label", {"label": label}) is not None:
                round_.label = label


# -- checks ----------------------------------------------------------------------------------------


async def _states(where: str) -> list[State]:
    """Return the states recovered from the newest snapshot and from the first event."""
    async with open_existing_store(where) as store:
        return [await recover_state(store), (await verify(store)).state]


def check(server: ServerProcess, where: str, load: Load) -> dict[str, Any]:
    """Check that a server and its log have all acknowledged data once; return the state."""
    shown = server.wait_until_ready()
    recovered, folded = asyncio.run(_states(where))
    assert shown["hash"] == state_hash(recovered) == state_hash(folded)
    assert sorted(folded.cascades) == sorted(ARMS)
    for cascade in folded.order:
        ledger = cascade.ledger
        assert cascade.divergences == 0
        # Each key opened rounds once, all rounds have a key, and no round is labelled twice.
        assert sum(request.count for request in ledger.idempotency_keys.values()) == len(ledger)
        assert ledger.idempotency_keys.keys() <= load.keys
        assert cascade.counts.labels_total == len(ledger.labels)
    rounds = list(load.rounds.values())
    for round_ in rounds:
        ledger = folded.cascades[round_.cascade].ledger
        opened, number = ledger.idempotency_keys[round_.key], ledger.number(round_.id)
        assert 0 <= number - opened.first < opened.count
        assert round_.stop in (None, ledger.stops[number])
        status = STATUS_NAMES[ledger.status[number]]
        assert round_.status != "learned" or status == "learned"
        if status == "open":
            assert all(ledger.fingerprint(number, arm) for arm in round_.reported)
        assert round_.label is None or number in ledger.labels
    # Contexts and outputs are not in the ledger, so look up a sample of the rounds.
    with httpx.Client(
        base_url=server.url, timeout=TIMEOUT, trust_env=False, verify=False
    ) as client:
        for round_ in random.Random(len(rounds)).sample(rounds, min(len(rounds), LOOKED_UP)):
            view = client.get(round_.path).json()
            assert view["context"][: len(round_.context)] == round_.context
            names = ARMS[round_.cascade]
            outputs = dict(zip(names, round_.outputs, strict=True))
            assert view["outputs"].items() <= outputs.items()
            if view["status"] == "open":
                assert {names[arm] for arm in round_.reported} <= view["outputs"].keys()
    return shown
