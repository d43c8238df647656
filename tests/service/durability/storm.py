"""Eight clients who behave as clients do, and note down what they were promised.

They decide, one at a time and in batches, and take rounds step by step. They tell outputs late, in
parts, twice and in any order, and labels now and then. What got no answer they send again with the
same Idempotency-Key, or give up.
"""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.service.durability.cascades import ARMS, SPECS

CLIENTS = 8
GIVE_UP = 0.03  # of requests that got no answer, how many are not sent again
WAITING, DONE = 400, 400  # decisions that the clients remember, to tell of them
PATIENCE = 60.0  # seconds without any answer after which something is wrong


@dataclass
class Promised:
    """A decision that a client was told."""

    cascade: str
    id: str
    stop: int
    context: list[float]
    key: str
    outputs: list[str]  # what the arms are going to say
    told: dict[int, str] = field(default_factory=dict)  # what the service has acknowledged
    status: str = "open"
    label: str | None = None


@dataclass
class Taken:
    """A round step by step, as far as a client was told."""

    id: str
    key: str
    context: list[float]
    next: int | None
    steps: list[tuple[int, str, list[float]]] = field(default_factory=list)
    ended: bool = False  # by its client, early
    stop: int | None = None


@dataclass
class Book:
    """All that was acknowledged, and all keys that were ever sent."""

    promised: dict[tuple[str, str], Promised] = field(default_factory=dict)
    taken: dict[str, Taken] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    made: dict[str, list[str]] = field(default_factory=dict)  # key → ids
    answers: Counter[str] = field(default_factory=Counter)

    def note(self, one: Promised) -> None:
        before = self.promised.setdefault((one.cascade, one.id), one)
        assert (before.stop, before.context, before.key) == (one.stop, one.context, one.key)

    def note_key(self, key: str, ids: list[str]) -> None:
        """An Idempotency-Key stands for the same decisions, however often they are asked for."""
        assert self.made.setdefault(key, ids) == ids


class Line:
    """An HTTP connection to whichever server is up, opened again when it breaks."""

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


class Storm:
    """The clients, what they share, and where the servers are.

    Parameters
    ----------
    seed : int
        Of all that is random here.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.book = Book()
        self.ports: list[int] = []
        self.over = False
        self.waiting: list[Promised] = []
        self.done: list[Promised] = []
        self._up = asyncio.Event()
        self._answered = 0
        self._refused = 0
        self._asking = 0
        self._change = asyncio.Condition()

    # -- the weather ----------------------------------------------------------------------------

    def serve(self, *ports: int) -> None:
        """Send the clients there; nowhere, if no port is given."""
        self.ports = list(ports)
        if ports:
            self._up.set()
        else:
            self._up.clear()

    @contextlib.asynccontextmanager
    async def calm(self) -> AsyncIterator[None]:
        """Let the clients wait; what they had asked for before has been answered."""
        ports = self.ports
        self.serve()
        async with self._change:
            await self._change.wait_for(lambda: self.over or self._asking == 0)
        yield
        self.serve(*ports)

    async def asking(self, more: int) -> None:
        """Note that a request is under way, or no longer is."""
        async with self._change:
            self._asking += more
            self._change.notify_all()

    async def port(self, rng: random.Random) -> int | None:
        """Return where a server is, once there is one; None if all is over."""
        await self._up.wait()
        return rng.choice(self.ports) if self.ports else None

    async def heard(self, status: int) -> None:
        async with self._change:
            self._answered += status < 300
            self._refused += status == 503
            self._change.notify_all()

    async def _end(self) -> None:
        self.over = True
        self._up.set()
        async with self._change:
            self._change.notify_all()

    async def progress(self, answers: int) -> None:
        """Wait for some more answers."""
        goal = self._answered + answers
        await self._wait_until(lambda: self._answered >= goal)

    async def refusals(self, number: int) -> None:
        """Wait for some more refusals because nothing can be written (503)."""
        goal = self._refused + number
        await self._wait_until(lambda: self._refused >= goal)

    async def _wait_until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE), self._change:
            await self._change.wait_for(lambda: self.over or condition())

    # -- the clients ----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def raging(self) -> AsyncIterator[None]:
        """Make the cascades, then keep the clients at it until the end of the block.

        At its end each finishes what it is doing. What one of them finds wrong is raised.
        """
        first = Client(self, 0)
        try:
            for spec in SPECS:
                assert await first.insist("/v1/cascades", spec, key=f"make-{spec['name']}")
        finally:
            first.close()
        clients = [Client(self, number) for number in range(1, CLIENTS + 1)]
        tasks = [asyncio.create_task(self._let(client)) for client in clients]
        try:
            yield
        finally:
            await self._end()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _let(self, client: "Client") -> None:
        try:
            await client.live()
        finally:
            await self._end()  # if it found something wrong, nobody need wait for answers


class Client:
    """One of them."""

    def __init__(self, storm: Storm, number: int) -> None:
        self._storm = storm
        self._book = storm.book
        self._number = number
        self._rng = random.Random(f"{storm.seed}/{number}")
        self._line = Line()
        self._counter = 0
        self._rounds: list[Taken] = []

    async def live(self) -> None:
        deeds = {
            self.decide: 30,
            self.repeat: 3,
            self.batch: 6,
            self.tell: 45,
            self.tell_again: 4,
            self.label: 4,
            self.begin: 4,
            self.step: 14,
        }
        try:
            while not self._storm.over:
                (deed,) = self._rng.choices(list(deeds), list(deeds.values()))
                await deed()
        finally:
            self.close()

    def close(self) -> None:
        self._line.close()

    # -- asking -----------------------------------------------------------------------------------

    async def insist(
        self, path: str, body: Any, key: str | None = None, also: tuple[int, ...] = ()
    ) -> tuple[int, Any] | None:
        """Send a request until it is answered for good; None if the client gave up."""
        rng, storm = self._rng, self._storm
        if key is not None:
            self._book.keys.add(key)
        while True:
            port = await storm.port(rng)
            if port is None:
                return None
            try:
                await storm.asking(+1)
                async with asyncio.timeout(PATIENCE):
                    status, answer = await self._line.ask(port, "POST", path, body, key)
            except (OSError, EOFError):
                self._book.answers["lost"] += 1
                wait = 0.02
            else:
                self._book.answers[str(status)] += 1
                await storm.heard(status)
                if status in (200, 201, *also):
                    return status, answer
                # whatever goes wrong has the one shape
                assert set(answer) == {"error"}, answer
                assert {"code", "message"} <= set(answer["error"]), answer
                code = answer["error"]["code"]
                assert (status, code) in [(503, "unavailable"), (429, "too_many_requests")], answer
                wait = 0.05
            finally:
                await storm.asking(-1)
            if storm.over or (self._number and rng.random() < GIVE_UP):
                return None
            await asyncio.sleep(wait * rng.random())

    def _key(self) -> str:
        self._counter += 1
        return f"{self._storm.seed}-{self._number}-{self._counter}"

    def _context(self) -> list[float]:
        return [self._rng.uniform(-0.7, 0.7) for _ in range(2)]

    # -- decisions --------------------------------------------------------------------------------

    async def decide(self) -> None:
        name, context = self._rng.choice(["triage", "triage", "chance"]), self._context()
        body: dict[str, Any] = {"context": context}
        if name == "triage" and self._rng.random() < 0.5:
            body["context"] = dict(zip(["risk", "age"], reversed(context), strict=True))
        if self._rng.random() < 0.1:
            body["evidence"] = True
        await self._decided(name, "decisions", body, [context], self._key())

    async def batch(self) -> None:
        name = self._rng.choice(["triage", "chance"])
        contexts = [self._context() for _ in range(self._rng.randint(1, 6))]
        body = {"contexts": contexts, "evidence": self._rng.random() < 0.3}
        await self._decided(name, "decisions:batch", body, contexts, self._key())

    async def repeat(self) -> None:
        """Ask again for what was answered, as a client that crashed might."""
        if self._storm.done:
            one = self._rng.choice(self._storm.done)
            if len(self._book.made[one.key]) == 1:
                body = {"context": one.context}
                answer = await self.insist(
                    f"/v1/cascades/{one.cascade}/decisions", body, key=one.key
                )
                if answer is not None:
                    status, decision = answer
                    assert (status, decision["id"], decision["stop"]) == (200, one.id, one.stop)

    async def _decided(
        self, name: str, route: str, body: Any, contexts: list[list[float]], key: str
    ) -> None:
        answer = await self.insist(f"/v1/cascades/{name}/{route}", body, key=key)
        if answer is None:
            return
        decisions = answer[1]["decisions"] if route == "decisions:batch" else [answer[1]]
        assert len(decisions) == len(contexts)
        self._book.note_key(key, [decision["id"] for decision in decisions])
        for decision, context in zip(decisions, contexts, strict=True):
            stop = decision["stop"]
            assert decision["arm"] == ARMS[name][stop]
            # arms agree the more often the smaller the first number is
            outputs = ["yes" if self._rng.random() < 0.5 + context[0] / 2 else "no"]
            for _ in range(stop):
                outputs.append(outputs[0] if self._rng.random() < 0.7 else "no")
            one = Promised(name, decision["id"], stop, context, key, outputs)
            self._book.note(one)
            self._storm.waiting.append(one)
        del self._storm.waiting[:-WAITING]

    # -- what arms said ---------------------------------------------------------------------------

    async def tell(self) -> None:
        """Tell of any decision that waits, also of another client's; all of it, or a part."""
        rng, waiting = self._rng, self._storm.waiting
        if not waiting:
            return
        one = waiting.pop(rng.randrange(len(waiting)))
        outputs, arms = one.outputs, ARMS[one.cascade]
        match rng.choices(["whole", "part", "final"], [6, 4, 1])[0]:
            case "whole":
                given = dict(enumerate(outputs))
                body: dict[str, Any] = {"outputs": outputs}
            case "part":
                chosen = rng.sample(range(one.stop + 1), rng.randint(1, one.stop + 1))
                given = {arm: outputs[arm] for arm in chosen}
                body = {"outputs": {arms[arm]: output for arm, output in given.items()}}
            case _:  # a stage failed
                given = dict(enumerate(outputs[: rng.randint(0, one.stop + 1)]))
                body = {"outputs": list(given.values()), "final": True}
        status = await self._told(one, body)
        if status is None:
            return  # and nobody tells of it again
        if status == "expired":
            one.status = status
            return
        one.told |= given
        one.status = status
        if status == "open":
            waiting.append(one)
        else:
            self._storm.done.append(one)
            del self._storm.done[:-DONE]

    async def tell_again(self) -> None:
        if self._storm.done:
            one = self._rng.choice(self._storm.done)
            reached = next((arm for arm in range(one.stop + 1) if arm not in one.told), 99)
            body = {"outputs": [one.told[arm] for arm in range(min(reached, one.stop + 1))]}
            assert await self._told(one, body) in ("learned", None)

    async def _told(self, one: Promised, body: Any) -> str | None:
        path = f"/v1/cascades/{one.cascade}/decisions/{one.id}/outputs"
        answer = await self.insist(path, body, also=(410,) if one.cascade == "chance" else ())
        if answer is None:
            return None
        status, told = answer
        if status == 410:
            assert told["error"]["code"] == "gone"
            return "expired"
        assert told["id"] == one.id
        return told["status"]

    async def label(self) -> None:
        fit = [one for one in self._storm.done if one.cascade == "triage" and 0 in one.told]
        if fit:
            one = self._rng.choice(fit)
            label = one.label or one.outputs[-1]
            path = f"/v1/cascades/{one.cascade}/decisions/{one.id}/label"
            if await self.insist(path, {"label": label}) is not None:
                one.label = label

    # -- step by step -----------------------------------------------------------------------------

    async def begin(self) -> None:
        key, context = self._key(), self._context()
        answer = await self.insist("/v1/cascades/stages/rounds", {"context": context}, key=key)
        if answer is not None:
            one = Taken(answer[1]["id"], key, context, answer[1]["next"])
            self._book.note_key(key, [one.id])
            assert one.next == 0
            self._book.taken[one.id] = one
            self._rounds.append(one)

    async def step(self) -> None:
        if not self._rounds:
            return
        rng = self._rng
        one = self._rounds.pop(rng.randrange(len(self._rounds)))
        path, arm = f"/v1/cascades/stages/rounds/{one.id}", one.next
        assert arm is not None
        if rng.random() < 0.08:
            answer = await self.insist(f"{path}/end", {})
            one.ended = answer is not None
        else:
            output = rng.choice(["yes", "yes", "no"])
            revealed = [rng.uniform(-0.5, 0.5)] if arm == 1 else []
            body = {"arm": arm, "output": output, "revealed": revealed}
            answer = await self.insist(f"{path}/steps", body)
            if answer is not None:
                one.steps.append((arm, output, revealed))
        if answer is not None:
            one.next, one.stop = answer[1]["next"], answer[1]["stop"]
            if one.next is not None:
                self._rounds.append(one)
