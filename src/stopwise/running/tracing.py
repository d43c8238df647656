"""OpenTelemetry spans of a runner; they never hold a case."""

from contextlib import ExitStack
from typing import Any

from stopwise.cascade import Cascade
from stopwise.records import Round
from stopwise.running.round_loop import Ask, RoundLoop
from stopwise.running.stage import ask, ask_async


class RoundSpan(ExitStack):
    """The span of one round; it and those of its stages are current while these run."""

    def __init__(self, tracer: Any, loop: RoundLoop, cascade: Cascade, number: str) -> None:
        super().__init__()
        self._loop, self._cascade, self._start = loop, cascade, tracer.start_as_current_span
        self._known = {"stopwise.cascade": " → ".join(cascade.names), "stopwise.round": number}
        self._span = self.enter_context(self._start("stopwise.round", attributes=self._known))

    def _stage(self) -> Any:
        arm = self._cascade.names[len(self._loop.answers)]  # they run in order
        return self._start(f"stopwise.stage {arm}", attributes=self._known | {"stopwise.arm": arm})

    def ask(self, step: Ask) -> Any:
        """Ask a stage, in a span."""
        with self._stage():
            return ask(*step)

    async def ask_async(self, step: Ask) -> Any:
        """Ask a stage without blocking, in a span."""
        with self._stage():
            return await ask_async(*step)

    def ended(self, done: Round) -> Round:
        """Say in the span how the round ended; return the round."""
        known: dict[str, Any] = {"stopwise.rule_stop": done.rule_stop}
        if done.stop is not None:
            paid = self._cascade.cumulative[done.stop] if done.costs is None else sum(done.costs)
            known |= {"stopwise.stop": done.stop, "stopwise.cost": float(paid)}
            known["stopwise.arm"] = self._cascade.names[done.stop]
        if done.failure is not None:
            from opentelemetry.trace import StatusCode

            known["error.type"] = done.failure.kind
            self._span.set_status(StatusCode.ERROR, str(done.failure))
        self._span.set_attributes(known)
        return done
