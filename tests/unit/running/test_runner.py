"""The runner: lazy, honest about failures, and never a danger to what the policy has learned."""

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


def learner(**settings: Any) -> sw.USSPD:
    return sw.USSPD(CASCADE, sw.Polynomial(degree=2), 2, **{"forced_rounds": 30, **settings})


def trained() -> sw.USSPD:
    """A policy past its exploration."""
    policy = learner()
    for x in CASES[:60]:
        policy.observe(x, [stage(x) for stage in STAGES])
    return policy


def frozen(policy: sw.Policy) -> dict[str, bytes]:
    return {part: array.tobytes() for part, array in policy.state().items()}


class InMemory:
    """A log in memory."""

    def __init__(self) -> None:
        self.rounds: list[sw.Round] = []

    def write(self, round: sw.Round) -> None:  # noqa: A002
        self.rounds.append(round)


def test_stages_beyond_the_stop_are_never_called() -> None:
    stages = [str.lower, Stage(str.title, canonical=str.upper), lambda case: pytest.fail("deeper")]
    done = Runner(sw.FixedDepth(CASCADE, depth=1), stages, canonical=str.strip).run(" A case")
    assert (done.outputs, done.answers) == (("a case", " A CASE"), (" a case", " A Case"))
    assert (done.stop, done.rule_stop, done.failure, done.costs) == (1, 1, None, None)
    assert done.answer == " A Case"


def test_a_case_without_a_proper_context_is_refused_before_any_stage_runs() -> None:
    policy = learner()
    runner = Runner(policy, [lambda case: pytest.fail("must not run")] * 3)
    for case in ("text", [1.0], [1.0, float("nan")], [[0.0, 0.0]], None, [5.0, 5.0]):
        with pytest.raises(sw.errors.InvalidContextError):
            runner.run(case)
    assert policy.rounds == 0


def test_what_a_stage_does_to_its_case_changes_nothing_that_is_learned() -> None:
    def vandal(x: Any) -> bool:
        x[:] = 0.0
        return True

    policy, twin = learner(), learner()
    done = Runner(policy, [vandal] * 3).run(np.array([0.5, -0.5]))
    decision = twin.decide([0.5, -0.5])
    twin.observe([0.5, -0.5], [True] * (decision.stop + 1))
    assert done.context == (0.5, -0.5)
    assert frozen(policy) == frozen(twin)


def test_an_answer_that_comes_too_late_is_forgotten() -> None:
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


def test_on_error_raise_lets_the_exception_through() -> None:
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


def test_real_costs_are_recorded_for_the_arms_that_answered() -> None:
    stages = [
        Stage(lambda x: 1, cost=0),
        Stage(lambda x: {"tokens": 120}, cost=lambda a: a["tokens"] * 1e-6, canonical=lambda a: 1),
        Stage(lambda x: 1 / 0, cost=5),
    ]
    done = Runner(sw.FixedDepth(CASCADE), stages).run(None)
    assert done.costs == (0.0, pytest.approx(120e-6))
    assert done.failure is not None


def test_a_refused_case_is_named_and_the_rounds_before_it_are_done() -> None:
    features = sw.Scaled.fit(CASES, sw.Polynomial(degree=1))
    policy, done = sw.USSPD(CASCADE, features, 2), list[sw.Round]()
    message = r'case 31 \(counted from 1\): coordinate 1 is 9.*outside="clip"'
    with pytest.raises(sw.errors.InvalidContextError, match=message):
        done.extend(Runner(policy, STAGES).run_many([*CASES[:30], [0.0, 9.0], *CASES[30:]]))
    assert len(done) == policy.rounds == 30


def test_a_data_frame_is_taken_row_by_row() -> None:
    frame = pd.DataFrame(CASES[:3], columns=["age", "weight"])
    runner = Runner(sw.FixedDepth(CASCADE), STAGES, context=lambda row: [row.weight, row.age])
    contexts = [done.context for done in runner.run_many(frame)]
    assert contexts == [(w, a) for a, w in CASES[:3].tolist()]
    with pytest.raises(
        sw.errors.InvalidParameterError, match="a list of cases or a data frame, got str"
    ):
        list(runner.run_many("ab"))


def test_when_most_rounds_fail_there_is_one_warning() -> None:
    runner = Runner(sw.FixedDepth(CASCADE), [STAGES[0], lambda x: x["key"], STAGES[2]])
    message = "20 of the last 20 rounds failed, most recently stage 'model' .*IndexError"
    with pytest.warns(sw.errors.StageFailureWarning, match=message) as caught:
        rounds = list(runner.run_many(CASES[:60]))
    assert len(caught) == 1
    assert all(done.failure is not None for done in rounds)


def test_several_threads_may_share_a_runner() -> None:
    policy = learner(forced_rounds=10_000)
    log = InMemory()
    runner = Runner(policy, STAGES, log=log)
    cases = [CASES[t % len(CASES)] for t in range(2000)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as many chances to collide as there can be
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
    """Equal to itself, and an error beside anything else."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        raise RuntimeError("not beside that")


class NoTruth:
    """Compares to what is neither true nor false."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def mute(_: Any) -> Any:
    raise Mute


class Remote:
    async def predict(self, table: Any) -> Any:
        return [True for _ in table]


def test_an_estimator_that_predicts_async_is_refused() -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match="`predict` is async"):
        Stage(Remote())


@pytest.mark.parametrize("policy", [sw.USSUCB(CASCADE), sw.FixedDepth(CASCADE)])
def test_a_policy_that_looks_at_no_context_needs_none_but_records_it(policy: sw.Policy) -> None:
    runner = Runner(policy, [lambda case: 1] * 3)
    for case in ("a text", "7", {"text": 1}, None, [[1, 2], [3, 4]]):
        assert runner.run(case).context == ()
    assert runner.run([0.5, 2]).context == (0.5, 2.0)
    stages = [Stage(lambda case: 1, reveals=lambda answer: [7.0, 8.0]), *STAGES[1:]]
    assert Runner(sw.FixedDepth(CASCADE), stages).run([0.5, 2]).context == (0.5, 2.0, 7.0, 8.0)


def staged() -> sw.USSPD:
    """One number is known at first; arm 0 adds one, arm 1 adds two."""
    return sw.USSPD(CASCADE, sw.Polynomial(degree=1), 1, reveals=[1, 2], forced_rounds=10)


def revealing(second: Any) -> list[Any]:
    return [
        Stage(lambda x: "a", reveals=lambda answer: (0.25,)),
        Stage(lambda x: "b", reveals=lambda answer: second),
        Stage(lambda x: "c", reveals=lambda answer: pytest.fail("nothing is beyond")),
    ]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ((0.5, -0.5), None),
        ((0.5,), "arm 1 must reveal 2 values"),
        ((0.5, 99.0), "coordinate 3"),  # outside the bound that the features promise
    ],
)
def test_what_cannot_join_the_context_is_a_failure_of_the_stage(second: Any, says: str) -> None:
    done = Runner(staged(), revealing(second)).run([1.0])
    if says is None:
        assert (done.failure, done.context) == (None, (1.0, 0.25, *second))
        return
    assert done.failure is not None
    assert (done.failure.arm, done.failure.kind) == (1, "error")
    assert (done.stop, done.outputs, done.context) == (0, ("a",), (1.0, 0.25))
    assert re.search(says, done.failure.message), done.failure.message


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
        (lambda _: Unequal(), "error", "not beside that"),
        (lambda _: NoTruth(), "error", "ambiguous"),
        (mute, "error", "Mute"),
    ],
)
def test_a_failure_ends_the_round_with_what_was_answered(
    stage: Any, kind: str, message: str
) -> None:
    policy, twin, log = learner(), learner(), InMemory()
    runner = Runner(policy, [STAGES[0], stage, STAGES[2]], log=log, timeout=999)
    assert [one.timeout for one in runner.stages][::2] == [999, 999]  # its own comes first
    done = runner.run(CASES[0])
    assert done.failure is not None
    assert (done.failure.arm, done.failure.kind, done.stop) == (1, kind, 0)
    assert message in done.failure.message
    assert log.rounds == [done]
    decision = twin.decide(CASES[0])
    twin.observe(CASES[0], [STAGES[0](CASES[0])], rule_stop=decision.rule_stop)
    assert frozen(policy) == frozen(twin)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_thread_goes_through_and_nothing_is_learned(
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


def test_ids_are_given_or_new_and_time_is_when_the_round_began() -> None:
    seen: list[float] = []
    stages = [lambda x: seen.append(time.time()), abs, abs]
    runner = Runner(sw.FixedDepth(CASCADE, depth=0), stages)
    before = time.time()
    done = runner.run([0, 0], id="case-7")
    assert done.id == "case-7"
    assert before <= done.time <= seen[0]
    assert runner.run([0, 0]).id != runner.run([0, 0]).id
    rounds = list(runner.run_many([[0, 1], [0, 2]], id_of=lambda case: f"n{case[1]}"))
    assert [done.id for done in rounds] == ["n1", "n2"]


def test_every_round_is_logged_before_it_is_learned() -> None:
    policy = learner()

    class Watching(InMemory):
        def write(self, round: sw.Round) -> None:  # noqa: A002
            if len(self.rounds) == 40:
                raise OSError("no space left on device")
            super().write(round)
            assert policy.rounds == len(self.rounds) - 1

    log = Watching()
    runner = Runner(policy, STAGES, log=log)
    assert log.rounds == list(runner.run_many(CASES[:40]))
    with pytest.raises(OSError, match="no space") as caught:
        runner.run(CASES[40], id="17")
    (note,) = caught.value.__notes__
    assert re.match("Round 17 was neither logged nor learned; its answer was (Tru|Fals)e", note)
    assert policy.rounds == 40


@pytest.mark.parametrize(
    ("stages", "settings", "words"),
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
def test_what_does_not_fit_is_refused(stages: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match=words):
        Runner(learner(), stages, **settings)


def test_names_come_from_the_cascade_or_from_stages() -> None:
    runner = Runner(sw.FixedDepth(CASCADE), [abs, Stage(abs, name="model"), abs])
    assert [stage.name for stage in runner.stages] == ["rule", "model", "expert"]
    unnamed = sw.FixedDepth(sw.Cascade([0.1, 0.2]))
    assert Runner(unnamed, [Stage(abs, name="small"), abs]).stages[0].name == "small"


def test_a_label_reaches_the_policy_made_canonical() -> None:
    policy, twin, own = trained(), trained(), trained()
    words = {True: "Yes", False: "No"}
    stages = [lambda x, stage=stage: words[stage(x)] for stage in STAGES]
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
        runner.label(done, "Yes")  # it cannot know in what form labels are
    assert frozen(own) == unlabelled


def test_a_label_that_says_which_arms_were_right_needs_no_canonical_form() -> None:
    policy, twin = trained(), trained()
    words = {True: "Yes", False: "No"}
    stages = [Stage(lambda x, one=one: words[one(x)], canonical=str.lower) for one in STAGES]
    runner, other = Runner(policy, stages), Runner(twin, stages)
    done, same = runner.run(CASES[0]), other.run(CASES[0])
    runner.label(done, right=[output == "yes" for output in done.outputs])
    twin.label(same, "yes")
    assert frozen(policy) == frozen(twin)
    with pytest.raises(sw.errors.InvalidOutputsError, match="got neither"):
        runner.label(done)


@pytest.mark.parametrize("awaited", [False, True])
def test_labels_asked_for_are_handed_out_once_their_round_was_learned(awaited: bool) -> None:
    policy, log, handed = learner(labels=20, seed=1), InMemory(), []

    def hand_out(done: sw.Round) -> None:
        assert policy.rounds == len(log.rounds)  # learned, and not under the lock: labels go in
        handed.append(done)
        runner.label(done, STAGES[-1](done.context))

    runner = Runner(policy, STAGES, log=log, on_label_request=hand_out)
    rounds = [asyncio.run(runner.arun(x)) if awaited else runner.run(x) for x in CASES[:120]]
    assert handed == [done for done in rounds if done.wants_label]
    assert 0 < len(handed) == policy.labels.asked == policy.labels.came < 120
    twin = learner(labels=20, seed=1)
    for done in rounds:  # a request is what the policy said when it learned, and labels count
        explored = {"rule_stop": done.rule_stop} if done.rule_stop != done.stop else {}
        assert done.stop == twin.decide(done.context).stop
        assert done.request == twin.observe(done.context, done.outputs, **explored)
        if done.wants_label:
            twin.label(done, STAGES[-1](done.context))
    assert frozen(twin) == frozen(policy)


def test_a_request_that_fails_breaks_no_round(caplog: pytest.LogCaptureFixture) -> None:
    policy = learner(labels=20, seed=1)
    runner = Runner(policy, STAGES, on_label_request=lambda _: 1 / 0)
    rounds = list(runner.run_many(CASES[:60]))
    wanted = [f"on_label_request failed for round {done.id}" for done in rounds if done.wants_label]
    assert caplog.messages == wanted != []
    assert policy.rounds == 60
    with pytest.raises(sw.errors.InvalidParameterError, match="must not be async"):
        Runner(policy, STAGES, on_label_request=cast(Any, asyncio.sleep))


def test_a_stage_that_hangs_does_not_keep_the_program_from_ending() -> None:
    script = """
        import asyncio, threading
        import stopwise as sw
        cascade = sw.Cascade([0.1, 0.2])
        hangs = threading.Event().wait
        runner = sw.Runner(sw.FixedDepth(cascade), [lambda x: hangs(3600)] * 2, timeout=0.05)
        print(runner.run(None).failure.kind, asyncio.run(runner.arun(None)).failure.kind)
        """
    assert run_python(script, timeout=300).split() == ["timeout", "timeout"]
