"""Eight clients that use a service, and record what it acknowledged.

They open rounds, one at a time and in batches, and report outputs late, in parts, twice, in any
order and for rounds of each other; now and then a label. A request without an answer is sent again
with the same Idempotency-Key, or given up.
"""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.service.durability.cascades import ARMS, SPECS

CLIENTS = 8
GIVE_UP = 0.03  # of requests that got no answer, how many are not sent again
REMEMBERED = 400  # open rounds, and as many ended ones, that the clients come back to
LONGEST = 60.0  # seconds without any answer after which something is wrong


@dataclass
class Round:
    """A round as far as the service has acknowledged it."""

    cascade: str
    id: str
    key: str
    request: Any  # that opened it; None: a batch
    context: list[float]
    outputs: list[str]  # what the arms are going to answer
    revealed: list[list[float]]  # what they are going to reveal
    stop: int | None  # None: not known yet
    next: int = 0
    reported: dict[int, str] = field(default_factory=dict)
    status: str = "open"
    label: str | None = None

    @property
    def path(self) -> str:
        return f"/v1/cascades/{self.cascade}/rounds/{self.id}"

    @property
    def known(self) -> list[str]:
        """The outputs before the first that is missing."""
        missing = next(arm for arm in range(99) if arm not in self.reported)
        return self.outputs[:missing]


@dataclass
class Record:
    """Everything that was acknowledged, and every key that was ever sent."""

    rounds: dict[tuple[str, str], Round] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)


class Connection:
    """An HTTP connection, opened again when it breaks or when the server has another port."""

    def __init__(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._port = 0

    async def ask(
        self, port: int, method: str, path: str, body: Any = None, key: str | None = None
    ) -> tuple[int, Any]:
        """Return status and answer; raise OSError or EOFError if there is none."""
        if self._streams is None or self._port != port:
            self.close()
            self._streams, self._port = await asyncio.open_connection("127.0.0.1", port), port
        reader, writer = self._streams
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(content)}"]
        lines += ["Content-Type: application/json"] if method == "POST" else []
        lines += [f"Idempotency-Key: {key}"] if key is not None else []
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + content)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length:")[2].split("\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
        except BaseException:
            self.close()
            raise
        return int(head.split()[1]), answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Load:
    """The clients, what they share, and where the servers are.

    Parameters
    ----------
    seed : int
        Of all random choices.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.record = Record()
        self.ports: list[int] = []
        self.over = False
        self.waiting: list[Round] = []
        self.done: list[Round] = []
        self._up = asyncio.Event()
        self._answered = self._refused = self._in_flight = 0
        self._change = asyncio.Condition()

    # -- where the servers are ------------------------------------------------------------------

    def use(self, *ports: int) -> None:
        """Send the clients there; let them wait, if no port is given."""
        self.ports = list(ports)
        if ports:
            self._up.set()
        else:
            self._up.clear()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Let the clients wait, once all that they sent before has been answered."""
        ports = self.ports
        self.use()
        async with self._change:
            await self._change.wait_for(lambda: self.over or self._in_flight == 0)
        yield
        self.use(*ports)

    async def port(self, rng: random.Random) -> int | None:
        """Return where a server is, once there is one; None if all is over."""
        await self._up.wait()
        return rng.choice(self.ports) if self.ports else None

    # -- progress -------------------------------------------------------------------------------

    async def count(self, *, in_flight: int = 0, status: int = 0) -> None:
        """Count a request that is sent or no longer in flight, or an answer."""
        async with self._change:
            self._in_flight += in_flight
            self._answered += 200 <= status < 300
            self._refused += status == 503
            self._change.notify_all()

    async def progress(self, answers: int) -> None:
        """Wait for some more answers."""
        goal = self._answered + answers
        await self._wait_until(lambda: self._answered >= goal)

    async def refusals(self, number: int) -> None:
        """Wait for some more refusals because nothing can be written (503)."""
        goal = self._refused + number
        await self._wait_until(lambda: self._refused >= goal)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONGEST), self._change:
            await self._change.wait_for(lambda: self.over or condition())

    # -- the clients ----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Create the cascades, and run the clients until the end of the block.

        At its end each finishes what it is doing. What one of them finds wrong is raised.
        """
        first = Client(self, 0)
        try:
            for spec in SPECS:
                assert await first.send("/v1/cascades", spec, key=f"create-{spec['name']}")
        finally:
            first.close()
        clients = [Client(self, number) for number in range(1, CLIENTS + 1)]
        tasks = [asyncio.create_task(self._run(client)) for client in clients]
        try:
            yield
        finally:
            await self._end()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _run(self, client: "Client") -> None:
        try:
            await client.run()
        finally:
            await self._end()  # if it found something wrong, nobody need wait for answers

    async def _end(self) -> None:
        self.over = True
        self._up.set()
        await self.count()


class Client:
    """One of them."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._record = load.record
        self._number = number
        self._rng = random.Random(f"{load.seed}/{number}")
        self._connection = Connection()
        self._keys = 0

    async def run(self) -> None:
        actions = {
            self.open_one: 34,
            self.open_again: 3,
            self.open_batch: 6,
            self.report: 60,
            self.report_again: 4,
            self.label: 4,
            self.look: 4,
        }
        try:
            while not self._load.over:
                (action,) = self._rng.choices(list(actions), list(actions.values()))
                await action()
        finally:
            self.close()

    def close(self) -> None:
        self._connection.close()

    async def send(
        self,
        path: str,
        body: Any = None,
        key: str | None = None,
        also: tuple[int, ...] = (),
        method: str = "POST",
    ) -> tuple[int, Any] | None:
        """Send a request until it is answered for good; None if the client gave up."""
        rng, load = self._rng, self._load
        if key is not None:
            self._record.keys.add(key)
        while True:
            port = await load.port(rng)
            if port is None:
                return None
            try:
                await load.count(in_flight=+1)
                async with asyncio.timeout(LONGEST):
                    status, answer = await self._connection.ask(port, method, path, body, key)
            except (OSError, EOFError):
                self._record.answers["lost"] += 1
                wait = 0.02
            else:
                self._record.answers[str(status)] += 1
                await load.count(status=status)
                if status in (200, 201, *also):
                    return status, answer
                # Whatever goes wrong has the one shape.
                assert set(answer) == {"error"}, answer
                assert {"code", "message"} <= set(answer["error"]), answer
                code = answer["error"]["code"]
                assert (status, code) in [(503, "unavailable"), (429, "too_many_requests")], answer
                wait = 0.05
            finally:
                await load.count(in_flight=-1)
            if load.over or (self._number and rng.random() < GIVE_UP):
                return None
            await asyncio.sleep(wait * rng.random())

    # -- opening ----------------------------------------------------------------------------------

    async def open_one(self) -> None:
        name = self._rng.choice(["triage", "triage", "chance", "stages"])
        context = self._context(name)
        body: dict[str, Any] = {"context": context}
        if name == "triage" and self._rng.random() < 0.5:
            body["context"] = dict(zip(["risk", "age"], reversed(context), strict=True))
        if self._rng.random() < 0.1:
            body["evidence"] = True
        await self._opened(name, "rounds", body, [context])

    async def open_batch(self) -> None:
        name = self._rng.choice(["triage", "chance"])
        contexts = [self._context(name) for _ in range(self._rng.randint(1, 6))]
        body = {"contexts": contexts, "evidence": self._rng.random() < 0.3}
        await self._opened(name, "rounds:batch", body, contexts)

    async def open_again(self) -> None:
        """Repeat a request that was answered, as a client that crashed might."""
        single = [one for one in self._load.done if one.request is not None]
        if single:
            one = self._rng.choice(single)
            answer = await self.send(f"/v1/cascades/{one.cascade}/rounds", one.request, one.key)
            if answer is not None:
                status, opened = answer
                assert (status, opened["id"], opened.get("stop")) == (200, one.id, one.stop)

    async def _opened(self, name: str, route: str, body: Any, contexts: list[list[float]]) -> None:
        self._keys += 1
        key = f"{self._load.seed}-{self._number}-{self._keys}"
        answer = await self.send(f"/v1/cascades/{name}/{route}", body, key)
        if answer is None:
            return
        rounds = answer[1].get("rounds", [answer[1]])
        request = body if route == "rounds" else None
        for opened, context in zip(rounds, contexts, strict=True):
            stop = opened.get("stop")
            assert opened["next"] == 0
            assert opened["arm"] == ARMS[name][stop or 0]
            assert (stop is None) == (name == "stages")
            answers = self._answers(name, context)
            one = Round(name, opened["id"], key, request, context, *answers, stop)
            assert (name, one.id) not in self._record.rounds
            self._record.rounds[name, one.id] = one
            self._load.waiting.append(one)
        del self._load.waiting[:-REMEMBERED]

    def _context(self, name: str) -> list[float]:
        return [self._rng.uniform(-0.7, 0.7) for _ in range(1 if name == "stages" else 2)]

    def _answers(self, name: str, context: list[float]) -> tuple[list[str], list[list[float]]]:
        """Return what the arms are going to answer, and what they reveal."""
        rng, n_arms = self._rng, len(ARMS[name])
        # Arms agree the more often the smaller the first number is.
        outputs = ["yes" if rng.random() < 0.5 + context[0] / 2 else "no"]
        outputs += [outputs[0] if rng.random() < 0.7 else "no" for _ in range(n_arms - 1)]
        new = [rng.uniform(-0.5, 0.5) for _ in range(2)]
        return outputs, [new[:1], new[1:], []] if name == "stages" else [[]] * n_arms

    # -- outputs ----------------------------------------------------------------------------------

    async def report(self) -> None:
        """Report outputs of any open round: the next one, all of them, or a part."""
        rng, waiting = self._rng, self._load.waiting
        if not waiting:
            return
        one = waiting.pop(rng.randrange(len(waiting)))
        arms = list(range(len(ARMS[one.cascade]) if one.stop is None else one.stop + 1))
        final = rng.random() < 0.08  # a stage failed
        if one.cascade == "stages":
            given = [] if final and rng.random() < 0.5 else [one.next]
        elif final:
            given = arms[: rng.randint(0, len(arms))]
        else:
            given = arms if rng.random() < 0.6 else rng.sample(arms, rng.randint(1, len(arms)))
        body: dict[str, Any] = {"outputs": {ARMS[one.cascade][a]: one.outputs[a] for a in given}}
        if given == sorted(given) == list(range(len(given))) and rng.random() < 0.5:
            body["outputs"] = one.outputs[: len(given)]
        if one.cascade == "stages" and given:
            body["revealed"] = one.revealed[one.next]
        if final:
            body["final"] = True
        answer = await self._reported(one, body)
        if answer is None:
            return  # nobody reports on it again
        one.status = answer["status"]
        if one.status == "expired":
            return
        one.reported |= {arm: one.outputs[arm] for arm in given}
        one.stop = answer.get("stop")
        if one.status == "open":
            one.next = answer["next"]
            assert one.next == len(one.known)
            waiting.append(one)
        else:
            assert "next" not in answer
            self._load.done.append(one)
            del self._load.done[:-REMEMBERED]

    async def report_again(self) -> None:
        done = [one for one in self._load.done if one.cascade != "stages"]
        if done:
            one = self._rng.choice(done)
            answer = await self._reported(one, {"outputs": one.known})
            assert answer is None or (answer["status"], answer["repeated"]) == ("learned", True)

    async def _reported(self, one: Round, body: Any) -> Any:
        also = (410,) if one.cascade == "chance" else ()
        answer = await self.send(f"{one.path}/outputs", body, also=also)
        if answer is None:
            return None
        status, reported = answer
        if status == 410:
            assert reported["error"]["code"] == "gone"
            return {"status": "expired"}
        assert reported["id"] == one.id
        return reported

    # -- labels and views -------------------------------------------------------------------------

    async def label(self) -> None:
        fit = [one for one in self._load.done if one.cascade != "chance" and one.known]
        if fit:
            one = self._rng.choice(fit)
            label = one.label or one.outputs[-1]
            if await self.send(f"{one.path}/label", {"label": label}) is not None:
                one.label = label

    async def look(self) -> None:
        """Look up a round that has ended."""
        if self._load.done:
            one = self._rng.choice(self._load.done)
            answer = await self.send(one.path, method="GET")
            if answer is not None:
                view = answer[1]
                assert (view["status"], view["stop"]) == ("learned", one.stop)
                named = zip(ARMS[one.cascade], one.known, strict=False)
                assert view["outputs"] == dict(named)
                assert view["context"][: len(one.context)] == one.context
