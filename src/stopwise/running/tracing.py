"""OpenTelemetry spans of a runner, which contain no case data."""

from contextlib import ExitStack
from typing import Any

from stopwise.cascade import Cascade
from stopwise.records import Round
from stopwise.running.round_loop import Ask, RoundLoop
from stopwise.running.stage import ask, ask_async


class RoundSpan(ExitStack):
    """The span of a round, with a child span for each stage, active while the stage runs."""

    def __init__(self, tracer: Any, loop: RoundLoop, cascade: Cascade, round_id: str) -> None:
        super().__init__()
        self._loop, self._cascade, self._start = loop, cascade, tracer.start_as_current_span
        self._attributes = {
            "stopwise.cascade": " → ".join(cascade.names),
            "stopwise.round": round_id,
        }
        self._span = self.enter_context(self._start("stopwise.round", attributes=self._attributes))

    def _stage(self) -> Any:
        arm = self._cascade.names[len(self._loop.answers)]  # stages run in order
        attributes = self._attributes | {"stopwise.arm": arm}
        return self._start(f"stopwise.stage {arm}", attributes=attributes)

    def ask(self, step: Ask) -> Any:
        """Call a stage in a span."""
        with self._stage():
            return ask(*step)

    async def ask_async(self, step: Ask) -> Any:
        """Call a stage in a span, without blocking."""
        with self._stage():
            return await ask_async(*step)

    def finish(self, done: Round) -> Round:
        """Add the outcome of the round to its span; return the round."""
        outcome: dict[str, Any] = {"stopwise.rule_stop": done.rule_stop}
        if done.stop is not None:
            cost = self._cascade.cumulative[done.stop] if done.costs is None else sum(done.costs)
            outcome["stopwise.stop"] = done.stop
            outcome["stopwise.cost"] = float(cost)
            outcome["stopwise.arm"] = self._cascade.names[done.stop]
        if done.failure is not None:
            from opentelemetry.trace import StatusCode

            outcome["error.type"] = done.failure.kind
            self._span.set_status(StatusCode.ERROR, str(done.failure))
        self._span.set_attributes(outcome)
        return done
