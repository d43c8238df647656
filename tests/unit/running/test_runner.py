"""The runner: stages, failures, learning, logging and labels."""

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import stopwise as sw
from stopwise.running.runner import Runner
from stopwise.running.stage import Stage
from tests.helpers.processes import run_python

CASCADE = sw.Cascade([0.02, 0.1, 0.2], names=["rule", "model", "expert"])
CASES = np.random.default_rng(5).uniform(-1, 1, (400, 2))
STAGES: list[Callable[[Any], Any]] = [
    lambda x: bool(x[0] > 0),
    lambda x: bool(x[0] + 0.5 * x[1] > 0),
    lambda x: bool(x[0] + x[1] > 0),
]


def learner(**options: Any) -> sw.USSPD:
    return sw.USSPD(CASCADE, sw.Polynomial(degree=2), 2, **{"forced_rounds": 30, **options})


def trained() -> sw.USSPD:
    """Return a policy that has finished its forced rounds."""
    policy = learner()
    for x in CASES[:60]:
        policy.observe(x, [stage(x) for stage in STAGES])
    return policy


def frozen(policy: sw.Policy) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in policy.state().items()}


class InMemory:
    """A log in memory."""

    def __init__(self) -> None:
        self.rounds: list[sw.Round] = []

    def write(self, round: sw.Round) -> None:  # noqa: A002
        self.rounds.append(round)


def test_stages_after_the_stop_are_not_called() -> None:
    stages = [str.lower, Stage(str.title, canonical=str.upper), lambda case: pytest.fail("deeper")]
    done = Runner(sw.FixedDepth(CASCADE, depth=1), stages, canonical=str.strip).run(" A case")
    assert (done.outputs, done.answers) == (("a case", " A CASE"), (" a case", " A Case"))
    assert (done.stop, done.rule_stop, done.failure, done.costs) == (1, 1, None, None)
    assert done.answer == " A Case"


@pytest.mark.parametrize(
    "case", ["text", [1.0], [1.0, float("nan")], [[0.0, 0.0]], None, [5.0, 5.0]]
)
def test_an_invalid_context_is_rejected_before_any_stage_runs(case: Any) -> None:
    policy = learner()
    runner = Runner(policy, [lambda case: pytest.fail("must not run")] * 3)
    with pytest.raises(sw.errors.InvalidContextError):
        runner.run(case)
    assert policy.rounds == 0


def test_a_stage_that_modifies_its_case_does_not_affect_learning() -> None:
    def modify(x: Any) -> bool:
        x[:] = 0.0
        return True

    policy, twin = learner(), learner()
    done = Runner(policy, [modify] * 3).run(np.array([0.5, -0.5]))
    decision = twin.decide([0.5, -0.5])
    twin.observe([0.5, -0.5], [True] * (decision.stop + 1))
    assert done.context == (0.5, -0.5)
    assert frozen(policy) == frozen(twin)


def test_a_late_answer_is_dropped() -> None:
    release, ended = threading.Event(), threading.Event()

    def slow(case: Any) -> str:
        release.wait(30)
        ended.set()
        return "too late"

    policy = sw.USSUCB(CASCADE)
    runner = Runner(policy, [lambda x: 1, Stage(slow, timeout=0.02), lambda x: 1])
    done = runner.run(None)
    before = frozen(policy)
    release.set()
    assert ended.wait(30)
    assert (done.outputs, done.failure) == (
        (1,),
        sw.Failure(1, "timeout", "no answer within 0.02 s"),
    )
    assert frozen(policy) == before


def test_on_error_raise_propagates_the_exception() -> None:
    policy, log = learner(), InMemory()
    stages = [STAGES[0], lambda x: {}["missing"], STAGES[2]]
    runner = Runner(policy, stages, on_error="raise", log=log)
    with pytest.raises(KeyError, match="missing"):
        runner.run(CASES[0])
    empty = [STAGES[0], lambda x: next(iter(())), STAGES[2]]
    with pytest.raises(StopIteration):
        Runner(policy, empty, on_error="raise").run(CASES[0])
    with pytest.raises(
        sw.errors.InvalidOutputsError, match="canonical: ZeroDivisionError"
    ) as caught:
        Runner(policy, STAGES, canonical=lambda a: 1 / 0, on_error="raise").run(CASES[0])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert (policy.rounds, log.rounds) == (0, [])


def test_actual_costs_are_recorded_for_the_arms_that_answered() -> None:
    stages = [
        Stage(lambda x: 1, cost=0),
        Stage(lambda x: {"tokens": 120}, cost=lambda a: a["tokens"] * 1e-6, canonical=lambda a: 1),
        Stage(lambda x: 1 / 0, cost=5),
    ]
    done = Runner(sw.FixedDepth(CASCADE), stages).run(None)
    assert done.costs == (0.0, pytest.approx(120e-6))
    assert done.failure is not None


def test_an_invalid_case_is_numbered_and_earlier_rounds_are_complete() -> None:
    features = sw.Scaled.fit(CASES, sw.Polynomial(degree=1))
    policy, done = sw.USSPD(CASCADE, features, 2), list[sw.Round]()
    message = r'case 31 \(counted from 1\): coordinate 1 is 9.*outside="clip"'
    with pytest.raises(sw.errors.InvalidContextError, match=message):
        done.extend(Runner(policy, STAGES).run_many([*CASES[:30], [0.0, 9.0], *CASES[30:]]))
    assert len(done) == policy.rounds == 30


def test_rows_of_a_data_frame_are_cases() -> None:
    frame = pd.DataFrame(CASES[:3], columns=["age", "weight"])
    runner = Runner(sw.FixedDepth(CASCADE), STAGES, context=lambda row: [row.weight, row.age])
    contexts = [done.context for done in runner.run_many(frame)]
    assert contexts == [(w, a) for a, w in CASES[:3].tolist()]
    with pytest.raises(
        sw.errors.InvalidParameterError, match="a list of cases or a data frame, got str"
    ):
        list(runner.run_many("ab"))


def test_a_single_warning_is_given_when_most_rounds_fail() -> None:
    runner = Runner(sw.FixedDepth(CASCADE), [STAGES[0], lambda x: x["key"], STAGES[2]])
    message = "20 of the last 20 rounds failed, most recently stage 'model' .*IndexError"
    with pytest.warns(sw.errors.StageFailureWarning, match=message) as caught:
        rounds = list(runner.run_many(CASES[:60]))
    assert len(caught) == 1
    assert all(done.failure is not None for done in rounds)


def test_threads_can_share_a_runner() -> None:
    policy = learner(forced_rounds=10_000)
    log = InMemory()
    runner = Runner(policy, STAGES, log=log)
    cases = [CASES[t % len(CASES)] for t in range(2000)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # frequent switches make races likely
    try:
        with ThreadPoolExecutor(8) as pool:
            rounds = list(pool.map(runner.run, cases))
    finally:
        sys.setswitchinterval(interval)
    assert policy.rounds == len(rounds) == len(log.rounds) == 2000
    assert policy.observations(0, 2) == policy.observations(1, 2) == 2000
    phi = policy.features.transform(np.array(cases))
    np.testing.assert_allclose(policy.gram(0, 1)[0], phi.T @ phi, rtol=1e-9, atol=1e-9)


class Unequal:
    """Equal to itself; comparison with any other value raises."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        raise RuntimeError("not comparable")


class NoTruth:
    """Comparison gives an array, which has no truth value."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


def raise_unprintable(_: Any) -> Any:
    raise UnprintableError


class AsyncEstimator:
    async def predict(self, table: Any) -> Any:
        return [True for _ in table]


def test_an_estimator_with_async_predict_is_rejected() -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match="`predict` is async"):
        Stage(AsyncEstimator())


@pytest.mark.parametrize("policy", [sw.USSUCB(CASCADE), sw.FixedDepth(CASCADE)])
@pytest.mark.parametrize("case", ["a text", "7", {"text": 1}, None, [[1, 2], [3, 4]]])
def test_a_policy_without_contexts_accepts_any_case(policy: sw.Policy, case: Any) -> None:
    runner = Runner(policy, [lambda case: 1] * 3)
    assert runner.run(case).context == ()


@pytest.mark.parametrize("policy", [sw.USSUCB(CASCADE), sw.FixedDepth(CASCADE)])
def test_a_policy_without_contexts_records_valid_ones(policy: sw.Policy) -> None:
    runner = Runner(policy, [lambda case: 1] * 3)
    assert runner.run([0.5, 2]).context == (0.5, 2.0)
    stages = [Stage(lambda case: 1, reveals=lambda answer: [7.0, 8.0]), *STAGES[1:]]
    assert Runner(sw.FixedDepth(CASCADE), stages).run([0.5, 2]).context == (0.5, 2.0, 7.0, 8.0)


def staged() -> sw.USSPD:
    """Return a policy with one initial number; arm 0 reveals one number, arm 1 two."""
    return sw.USSPD(CASCADE, sw.Polynomial(degree=1), 1, reveals=[1, 2], forced_rounds=10)


def revealing(second: Any) -> list[Any]:
    return [
        Stage(lambda x: "a", reveals=lambda answer: (0.25,)),
        Stage(lambda x: "b", reveals=lambda answer: second),
        Stage(lambda x: "c", reveals=lambda answer: pytest.fail("the last arm reveals nothing")),
    ]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ((0.5, -0.5), None),
        ((0.5,), "arm 1 must reveal 2 values"),
        ((0.5, 99.0), "coordinate 3"),  # outside the bound of the features
    ],
)
def test_invalid_revealed_numbers_are_a_failure(second: Any, message: str | None) -> None:
    done = Runner(staged(), revealing(second)).run([1.0])
    if message is None:
        assert (done.failure, done.context) == (None, (1.0, 0.25, *second))
        return
    assert done.failure is not None
    assert (done.failure.arm, done.failure.kind) == (1, "error")
    assert (done.stop, done.outputs, done.context) == (0, ("a",), (1.0, 0.25))
    assert re.search(message, done.failure.message), done.failure.message


def own_timeout(case: Any) -> None:
    raise TimeoutError("the read timed out")


@pytest.mark.parametrize(
    ("stage", "kind", "message"),
    [
        (lambda _: 1 / 0, "error", "ZeroDivisionError: division by zero"),
        (lambda _: next(iter(())), "error", "StopIteration"),
        (Stage(lambda x: {}["x"], timeout=20), "error", "KeyError: 'x'"),
        (Stage(own_timeout, timeout=20), "timeout", "the read timed out"),
        (lambda _: float("nan"), "error", "an output must be hashable and equal to itself"),
        (lambda _: Unequal(), "error", "not comparable"),
        (lambda _: NoTruth(), "error", "ambiguous"),
        (raise_unprintable, "error", "UnprintableError"),
    ],
)
def test_a_failure_ends_the_round_with_the_answers_so_far(
    stage: Any, kind: str, message: str
) -> None:
    policy, twin, log = learner(), learner(), InMemory()
    runner = Runner(policy, [STAGES[0], stage, STAGES[2]], log=log, timeout=999)
    assert [stage.timeout for stage in runner.stages][::2] == [999, 999]
    done = runner.run(CASES[0])
    assert done.failure is not None
    assert (done.failure.arm, done.failure.kind, done.stop) == (1, kind, 0)
    assert message in done.failure.message
    assert log.rounds == [done]
    decision = twin.decide(CASES[0])
    twin.observe(CASES[0], [STAGES[0](CASES[0])], rule_stop=decision.rule_stop)
    assert frozen(policy) == frozen(twin)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_thread_propagates_without_learning(
    interrupt: type[BaseException],
) -> None:
    def interrupted(case: Any) -> None:
        raise interrupt

    policy, twin, log = learner(), learner(), InMemory()
    with pytest.raises(interrupt):
        Runner(policy, [*STAGES[:2], interrupted], timeout=30, log=log).run(CASES[0])
    twin.decide(CASES[0])
    assert frozen(policy) == frozen(twin)
    assert log.rounds == []


def test_rounds_have_an_id_and_their_start_time() -> None:
    calls: list[float] = []
    stages = [lambda x: calls.append(time.time()), abs, abs]
    runner = Runner(sw.FixedDepth(CASCADE, depth=0), stages)
    before = time.time()
    done = runner.run([0, 0], id="case-7")
    assert done.id == "case-7"
    assert before <= done.time <= calls[0]
    assert runner.run([0, 0]).id != runner.run([0, 0]).id
    rounds = list(runner.run_many([[0, 1], [0, 2]], id_of=lambda case: f"n{case[1]}"))
    assert [done.id for done in rounds] == ["n1", "n2"]


def test_every_round_is_logged_before_it_is_learned() -> None:
    policy = learner()

    class FailingLog(InMemory):
        def write(self, round: sw.Round) -> None:  # noqa: A002
            if len(self.rounds) == 40:
                raise OSError("no space left on device")
            super().write(round)
            assert policy.rounds == len(self.rounds) - 1

    log = FailingLog()
    runner = Runner(policy, STAGES, log=log)
    assert log.rounds == list(runner.run_many(CASES[:40]))
    with pytest.raises(OSError, match="no space") as caught:
        runner.run(CASES[40], id="17")
    (note,) = caught.value.__notes__
    assert re.match(
        "Round 17 was neither logged nor learned from; its answer was (Tru|Fals)e", note
    )
    assert policy.rounds == 40


@pytest.mark.parametrize(
    ("stages", "options", "message"),
    [
        ([abs] * 2, {}, "got 2 stages for a cascade of 3 arms"),
        ([Stage(abs, name="model"), abs, abs], {}, "order of the arms"),
        (
            [Stage(abs, cost=1), abs, abs],
            {},
            "set `cost` for all stages .* missing for 'model', 'expert'",
        ),
        (STAGES, {"on_error": "ignore"}, "on_error"),
        (revealing((1.0, 1.0)), {}, r"'rule' reveals numbers.*reveals="),
        (STAGES, {"timeout": 0}, "timeout"),
    ],
)
def test_invalid_stages_and_options_are_rejected(
    stages: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match=message):
        Runner(learner(), stages, **options)


def test_stages_are_named_by_the_cascade_or_themselves() -> None:
    runner = Runner(sw.FixedDepth(CASCADE), [abs, Stage(abs, name="model"), abs])
    assert [stage.name for stage in runner.stages] == ["rule", "model", "expert"]
    unnamed = sw.FixedDepth(sw.Cascade([0.1, 0.2]))
    assert Runner(unnamed, [Stage(abs, name="small"), abs]).stages[0].name == "small"


def test_labels_are_made_canonical() -> None:
    policy, twin, own = trained(), trained(), trained()
    texts = {True: "Yes", False: "No"}
    stages = [lambda x, stage=stage: texts[stage(x)] for stage in STAGES]
    runner = Runner(policy, stages, canonical=str.lower)
    runner.label(runner.run(CASES[0]), "YES")
    done = Runner(twin, stages, canonical=str.lower).run(CASES[0])
    unlabelled = frozen(twin)
    twin.label(done, "yes")
    assert frozen(policy) == frozen(twin) != unlabelled

    runner = Runner(own, [Stage(stage, canonical=str.lower) for stage in stages])
    done = runner.run(CASES[0])
    with pytest.raises(
        sw.errors.InvalidParameterError, match=r"pass canonical= to Runner.*policy\.label"
    ):
        runner.label(done, "Yes")  # the form of labels is ambiguous
    assert frozen(own) == unlabelled


def test_labels_by_arm_need_no_canonical_form() -> None:
    policy, twin = trained(), trained()
    texts = {True: "Yes", False: "No"}
    stages = [
        Stage(lambda x, stage=stage: texts[stage(x)], canonical=str.lower) for stage in STAGES
    ]
    runner, other = Runner(policy, stages), Runner(twin, stages)
    done, same = runner.run(CASES[0]), other.run(CASES[0])
    runner.label(done, right=[output == "yes" for output in done.outputs])
    twin.label(same, "yes")
    assert frozen(policy) == frozen(twin)
    with pytest.raises(sw.errors.InvalidOutputsError, match="got neither"):
        runner.label(done)


@pytest.mark.parametrize("awaited", [False, True])
def test_label_requests_are_passed_on_after_learning(awaited: bool) -> None:
    policy, log, requested = learner(labels=20, seed=1), InMemory(), list[sw.Round]()

    def label(done: sw.Round) -> None:
        assert policy.rounds == len(log.rounds)  # learned; the lock is free for `label`
        requested.append(done)
        runner.label(done, STAGES[-1](done.context))

    runner = Runner(policy, STAGES, log=log, on_label_request=label)
    rounds = [asyncio.run(runner.arun(x)) if awaited else runner.run(x) for x in CASES[:120]]
    assert requested == [done for done in rounds if done.wants_label]
    assert 0 < len(requested) == policy.labels.requested == policy.labels.received < 120
    twin = learner(labels=20, seed=1)
    for done in rounds:
        explored = {"rule_stop": done.rule_stop} if done.rule_stop != done.stop else {}
        assert done.stop == twin.decide(done.context).stop
        assert done.request == twin.observe(done.context, done.outputs, **explored)
        if done.wants_label:
            twin.label(done, STAGES[-1](done.context))
    assert frozen(twin) == frozen(policy)


def test_a_failing_label_callback_does_not_affect_the_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = learner(labels=20, seed=1)
    runner = Runner(policy, STAGES, on_label_request=lambda _: 1 / 0)
    rounds = list(runner.run_many(CASES[:60]))
    expected = [
        f"on_label_request failed for round {done.id}" for done in rounds if done.wants_label
    ]
    assert caplog.messages == expected != []
    assert policy.rounds == 60
    with pytest.raises(sw.errors.InvalidParameterError, match="must not be async"):
        Runner(policy, STAGES, on_label_request=cast(Any, asyncio.sleep))


def test_a_hanging_stage_does_not_block_the_exit_of_the_program() -> None:
    script = """
        import asyncio, threading
        import stopwise as sw
        cascade = sw.Cascade([0.1, 0.2])
        hangs = threading.Event().wait
        runner = sw.Runner(sw.FixedDepth(cascade), [lambda x: hangs(3600)] * 2, timeout=0.05)
        print(runner.run(None).failure.kind, asyncio.run(runner.arun(None)).failure.kind)
        """
    assert run_python(script, timeout=300).split() == ["timeout", "timeout"]
