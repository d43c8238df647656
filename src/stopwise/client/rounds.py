"""Rounds decided step by step, as loops over the arms to run."""

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike

from stopwise.errors import InvalidOutputsError, InvalidParameterError, ServiceError
from stopwise.service.messages import RoundAnswer

if TYPE_CHECKING:
    from stopwise.client.async_client import AsyncClient
    from stopwise.client.client import Client


class Standing:
    """Where a round stands, as the service last said."""

    def __init__(self, name: str, context: ArrayLike, idempotency_key: str | None) -> None:
        self.name = name
        self._context = context
        self._key = idempotency_key
        self._answer: RoundAnswer | None = None

    @property
    def answer(self) -> RoundAnswer:
        """What the service last said."""
        if self._answer is None:
            raise InvalidParameterError("the round begins where it is entered: use it in a `with`")
        return self._answer

    @property
    def id(self) -> str:
        """By which the round can be found again."""
        return self.answer.id

    @property
    def arm(self) -> str | None:
        """Name of the arm to run now, or of the arm that the round ended at."""
        return self.answer.arm

    @property
    def stop(self) -> int | None:
        """The last arm that ran, once the round has ended."""
        return self.answer.stop

    @property
    def cost(self) -> float:
        """Of all arms that ran so far."""
        return self.answer.cost

    def _asked(self) -> int:
        if self.answer.next is None:
            raise InvalidOutputsError("the round has ended: no arm is to answer any more")
        return self.answer.next

    def _check_answered(self, arm: int) -> None:
        if self.answer.next == arm:
            raise InvalidOutputsError(
                f"arm {arm} was to run and has not answered: `give` its output within the loop"
            )

    def _to_be_ended(self, error: BaseException | None) -> bool:
        """Say whether a round that is left must be ended: it was not, and the service is there."""
        if self._answer is None or self._answer.next is None or isinstance(error, ServiceError):
            return False
        return error is None or isinstance(error, Exception)  # an interrupt must not wait

    def __repr__(self) -> str:
        if self._answer is None:
            return f"{type(self).__name__}({self.name!r}, not begun)"
        return f"{type(self).__name__}({self.name!r}, {self._answer!r})"


class OpenRound(Standing):
    """A round under way: loop over the arms to run, and give what each said.

    Leaving the ``with`` early, by an exception or without, ends the round: the service then learns
    from the arms that answered. Made by `Client.round`.
    """

    def __init__(
        self, client: "Client", name: str, context: ArrayLike, idempotency_key: str | None
    ) -> None:
        super().__init__(name, context, idempotency_key)
        self._client = client

    def give(self, output: Any, revealed: ArrayLike = ()) -> None:
        """Tell what the arm said, and the numbers that it adds to the context."""
        arm = self._asked()
        self._answer = self._client.step(self.name, self.id, arm, output, revealed)

    def end(self) -> None:
        """End the round here: the arm that was to run cannot answer."""
        self._answer = self._client.end_round(self.name, self.id)

    def __iter__(self) -> Iterator[int]:
        while (arm := self.answer.next) is not None:
            yield arm
            self._check_answered(arm)

    def __enter__(self) -> Self:
        self._answer = self._client.start_round(self.name, self._context, idempotency_key=self._key)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._to_be_ended(error):
            try:
                self.end()
            except ServiceError as failed:
                if error is None:
                    raise
                error.add_note(f"Round {self.id} could not be ended: {failed}")


class AsyncOpenRound(Standing):
    """A round under way, for async code; see `OpenRound`. Made by `AsyncClient.round`."""

    def __init__(
        self, client: "AsyncClient", name: str, context: ArrayLike, idempotency_key: str | None
    ) -> None:
        super().__init__(name, context, idempotency_key)
        self._client = client

    async def give(self, output: Any, revealed: ArrayLike = ()) -> None:
        """Tell what the arm said, and the numbers that it adds to the context."""
        arm = self._asked()
        self._answer = await self._client.step(self.name, self.id, arm, output, revealed)

    async def end(self) -> None:
        """End the round here: the arm that was to run cannot answer."""
        self._answer = await self._client.end_round(self.name, self.id)

    async def __aiter__(self) -> AsyncIterator[int]:
        while (arm := self.answer.next) is not None:
            yield arm
            self._check_answered(arm)

    async def __aenter__(self) -> Self:
        self._answer = await self._client.start_round(
            self.name, self._context, idempotency_key=self._key
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._to_be_ended(error):
            try:
                await self.end()
            except ServiceError as failed:
                if error is None:
                    raise
                error.add_note(f"Round {self.id} could not be ended: {failed}")
