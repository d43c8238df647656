"""Clients that use a service whatever happens to it, and what must be true of its log afterwards.

A request without an answer is sent again under the same Idempotency-Key, or given up.
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
GIVE_UP = 0.03  # of requests that got no answer
LOOKED_UP = 60  # rounds that are checked by the API, too
LONGEST = 120.0  # seconds without progress after which something is wrong
SPECS = [
    {**SPEC, "policy": {"kind": "uss-pd", "forced_rounds": 20, "explore": 0.1}},
    {**SPEC, "name": "chance", "policy": {"kind": "thompson", "seed": 4}, "keep_open": 60},
    {**REVEALING, "policy": {"kind": "uss-pd", "forced_rounds": 20}},
]
ARMS: dict[str, list[str]] = {one["name"]: [arm["name"] for arm in one["arms"]] for one in SPECS}
REVEALED = [[0.1], [0.2], []]  # by the arms of "stages"


@dataclass
class Round:
    """A round as far as the service has acknowledged it."""

    cascade: str
    id: str
    key: str
    request: Any  # that opened it; None: a batch
    context: list[float]
    outputs: list[str]  # what its arms are going to answer
    stop: int | None
    reported: set[int] = field(default_factory=set)
    status: str = "open"
    label: str | None = None

    @property
    def path(self) -> str:
        return f"/v1/cascades/{self.cascade}/rounds/{self.id}"


class Load:
    """The clients, what was acknowledged to them, and where the servers are."""

    def __init__(self, seed: int) -> None:
        self.rounds: dict[tuple[str, str], Round] = {}
        self.keys: set[str] = set()  # ever sent
        self.statuses: Counter[int] = Counter()  # 0: no answer
        self._seed = seed
        self._urls: list[str] = []
        self._open: list[Round] = []
        self._ended: list[Round] = []
        self._in_flight = 0
        self._over = Event()
        self._error: BaseException | None = None
        self._changed = Condition()

    def use(self, *urls: str) -> None:
        """Send the clients there; without a URL they wait once their requests are answered."""
        with self._changed:
            self._urls = list(urls)
            self._changed.notify_all()
        if not urls:
            self.wait_until(lambda: self._in_flight == 0)

    def wait_for(self, number: int, *statuses: int) -> None:
        """Wait for some more answers of these statuses."""
        goal = sum(self.statuses[one] for one in statuses) + number
        self.wait_until(lambda: sum(self.statuses[one] for one in statuses) >= goal)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, which is looked at after every answer."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._error or condition(), LONGEST)
        if self._error is not None:
            raise self._error

    @contextmanager
    def running(self, *urls: str) -> Iterator[None]:
        """Create the cascades, and run the clients until the end of the block."""
        with httpx.Client(timeout=LONGEST, trust_env=False, verify=False) as client:
            for spec in SPECS:
                while (post := client.post(f"{urls[0]}/v1/cascades", json=spec)).status_code == 503:
                    pass  # it reads its log
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
            with httpx.Client(timeout=LONGEST, trust_env=False, verify=False) as http:
                client = Client(self, rng, http)
                while not self._over.is_set():
                    client.act()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            raise

    def send(self, client: "Client", path: str, body: Any, key: str | None = None) -> Any:
        """Send a request until it is answered for good; None if the client gives up."""
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
            if answer is not None:  # whatever goes wrong has the one shape
                code = answer.json()["error"]["code"]
                assert (status, code) in [(503, "unavailable"), (429, "too_many_requests")], code
            if self._over.is_set() or client.rng.random() < GIVE_UP:
                return None
            self._over.wait(0.05 * client.rng.random())

    def pick(self, rng: random.Random, *, ended: bool) -> Round | None:
        """Take one of the open rounds, or look at one of the ended ones."""
        with self._changed:
            rounds = self._ended if ended else self._open
            if not rounds:
                return None
            return rng.choice(rounds) if ended else rounds.pop(rng.randrange(len(rounds)))

    def add(self, one: Round) -> None:
        with self._changed:
            (self._open if one.status == "open" else self._ended).append(one)


class Client:
    """One of the clients."""

    def __init__(self, load: Load, rng: random.Random, http: httpx.Client) -> None:
        self.load, self.rng, self.http = load, rng, http

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
            one = Round(name, opened["id"], key, request, context, outputs, stop)
            assert (name, one.id) not in self.load.rounds
            self.load.rounds[name, one.id] = one
            self.load.add(one)

    def report(self) -> None:
        """Report outputs of any open round: the next one, all of them, a part, or the last."""
        rng, one = self.rng, self.load.pick(self.rng, ended=False)
        if one is None:
            return
        body: dict[str, Any] = {"final": rng.random() < 0.08}  # a stage failed
        if one.stop is None:
            given = [len(one.reported)]
            body["revealed"] = REVEALED[given[0]]
        else:
            arms = list(range(one.stop + 1))
            given = arms if rng.random() < 0.6 else rng.sample(arms, rng.randint(1, len(arms)))
        body["outputs"] = {ARMS[one.cascade][arm]: one.outputs[arm] for arm in given}
        answer = self.load.send(self, f"{one.path}/outputs", body)
        if answer is None:
            return  # nobody reports on it again
        if answer.status_code == 410:
            assert one.cascade == "chance"
            one.status = "expired"
            return
        one.status, one.stop = answer.json()["status"], answer.json().get("stop")
        one.reported |= set(given)
        self.load.add(one)

    def repeat(self) -> None:
        """KeyedRequest requests that were answered, as a client that crashed might."""
        one = self.load.pick(self.rng, ended=True)
        if one is None or one.cascade == "stages":
            return
        if one.request is not None:
            answer = self.load.send(self, one.path.rpartition("/")[0], one.request, one.key)
            assert answer is None or (answer.status_code, answer.json()["id"]) == (200, one.id)
        first = {"outputs": one.outputs[:1] if 0 in one.reported else []}
        answer = self.load.send(self, f"{one.path}/outputs", first)
        assert answer is None or answer.json()["repeated"]

    def label(self) -> None:
        one = self.load.pick(self.rng, ended=True)
        if one is not None and one.cascade != "chance" and 0 in one.reported:
            label = one.outputs[-1]
            if self.load.send(self, f"{one.path}/label", {"label": label}) is not None:
                one.label = label


# -- what must be true afterwards ------------------------------------------------------------------


async def _states(where: str) -> list[State]:
    """Return the state at the end of a log, recovered from a snapshot and from the first event."""
    async with open_existing_store(where) as store:
        return [await recover_state(store), (await verify(store)).state]


def check(server: ServerProcess, where: str, load: Load) -> dict[str, Any]:
    """Check that a server and its log have what was acknowledged, once; return the state."""
    shown = server.wait_until_ready()
    recovered, folded = asyncio.run(_states(where))
    assert shown["hash"] == state_hash(recovered) == state_hash(folded)
    assert sorted(folded.cascades) == sorted(ARMS)
    for cascade in folded.order:
        ledger = cascade.ledger
        assert cascade.divergences == 0
        # Each key has opened rounds once, and all rounds have one; nothing is labelled twice.
        assert sum(one.count for one in ledger.idempotency_keys.values()) == len(ledger)
        assert ledger.idempotency_keys.keys() <= load.keys
        assert cascade.counts.labels_total == len(ledger.labels)
    rounds = list(load.rounds.values())
    for known in rounds:
        ledger = folded.cascades[known.cascade].ledger
        opened, number = ledger.idempotency_keys[known.key], ledger.number(known.id)
        assert 0 <= number - opened.first < opened.count
        assert known.stop in (None, ledger.stops[number])
        status = STATUS_NAMES[ledger.status[number]]
        assert known.status != "learned" or status == "learned"
        if status == "open":
            assert all(ledger.fingerprint(number, arm) for arm in known.reported)
        assert known.label is None or number in ledger.labels
    # What the ledger does not hold is looked up, of some rounds.
    with httpx.Client(
        base_url=server.url, timeout=LONGEST, trust_env=False, verify=False
    ) as client:
        for known in random.Random(len(rounds)).sample(rounds, min(len(rounds), LOOKED_UP)):
            there = client.get(known.path).json()
            assert there["context"][: len(known.context)] == known.context
            given = dict(zip(ARMS[known.cascade], known.outputs, strict=True))
            assert there["outputs"].items() <= given.items()
            if there["status"] == "open":
                assert {ARMS[known.cascade][arm] for arm in known.reported} <= there[
                    "outputs"
                ].keys()
    return shown
