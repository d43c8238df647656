"""The runner: lazy, honest about failures, and never a danger to what the policy has learned."""

import copy
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import stopwise as sw
from stopwise.running.answers import normalised_text
from stopwise.running.runner import Runner
from stopwise.running.stage import Stage

SRC = Path(str(sw.__file__)).parents[1]
CASCADE = sw.Cascade([0.02, 0.1, 0.2], names=["rule", "model", "expert"])
CASES = np.random.default_rng(5).uniform(-1, 1, (400, 2))
STAGES: list[Callable[[Any], Any]] = [
    lambda x: bool(x[0] > 0),
    lambda x: bool(x[0] + 0.5 * x[1] > 0),
    lambda x: bool(x[0] + x[1] > 0),
]


def learner(**settings: Any) -> sw.USSPD:
    return sw.USSPD(CASCADE, sw.Polynomial(degree=2), 2, **{"forced_rounds": 30, **settings})


def taught() -> sw.USSPD:
    """A policy past its exploration."""
    policy = learner()
    for x in CASES[:60]:
        policy.observe(x, [stage(x) for stage in STAGES])
    return policy


def frozen(policy: sw.Policy) -> dict[str, bytes]:
    return {part: array.tobytes() for part, array in policy.state().items()}


class Kept:
    """A log in memory."""

    def __init__(self) -> None:
        self.rounds: list[sw.Round] = []

    def write(self, round: sw.Round) -> None:  # noqa: A002
        self.rounds.append(round)


# --------------------------------------------------------------------------------- going down


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_stages_beyond_the_stop_are_never_called(depth: int) -> None:
    called: list[int] = []

    def stage(arm: int) -> Callable[[Any], str]:
        return lambda case: called.append(arm) or f"arm {arm}"

    runner = Runner(sw.FixedDepth(CASCADE, depth=depth), [stage(arm) for arm in range(3)])
    done = runner.run("a case")
    assert called == list(range(depth + 1))
    assert done.outputs == done.answers == tuple(f"arm {arm}" for arm in called)
    assert (done.stop, done.rule_stop, done.failure, done.costs) == (depth, depth, None, None)
    assert done.answer == f"arm {depth}"


def test_a_runner_does_what_deciding_and_observing_by_hand_does() -> None:
    policy, twin = learner(), learner()
    rounds = list(Runner(policy, STAGES).run_many(CASES))
    stops: list[int] = []
    for x in CASES:
        decision = twin.decide(x)
        twin.observe(x, [stage(x) for stage in STAGES[: decision.stop + 1]])
        stops.append(decision.stop)
    assert [done.stop for done in rounds] == stops
    assert set(stops) == {0, 1, 2}
    assert frozen(policy) == frozen(twin)
    assert [done.context for done in rounds] == [tuple(x) for x in CASES.tolist()]


def test_fitted_estimators_are_stages() -> None:
    labels = np.where(CASES.sum(axis=1) > 0, "ill", "well")
    small = LogisticRegression().fit(CASES[:, :1], labels)
    large = DecisionTreeClassifier(random_state=0).fit(CASES, labels)
    cascade = sw.Cascade([0.02, 0.2], names=["small", "large"])
    policy = sw.USSPD(cascade, sw.Polynomial(degree=2), 2, forced_rounds=30)
    runner = Runner(policy, [lambda x: small.predict([x[:1]])[0], large])
    rounds = list(runner.run_many(CASES.tolist()))
    deep = [done for done in rounds if done.stop == 1]
    assert 30 <= len(deep) < len(rounds)
    wanted = large.predict([done.context for done in deep])
    assert [done.answer for done in deep] == wanted.tolist()
    assert all(type(done.answer) is str for done in deep)


def test_the_context_is_what_the_function_says() -> None:
    policy = sw.USSPD(CASCADE, context_dim=1)
    stages = [len, lambda text: len(text) // 2, lambda text: 0]
    runner = Runner(policy, stages, context=lambda text: [len(text) / 10])
    assert runner.run("four").context == (0.4,)


def test_a_case_without_a_proper_context_is_refused_before_any_stage_runs() -> None:
    policy = learner()
    runner = Runner(policy, [lambda case: pytest.fail("must not run")] * 3)
    for case in ("text", [1.0], [1.0, float("nan")], [[0.0, 0.0]], None, [5.0, 5.0]):
        with pytest.raises(sw.InvalidContextError):
            runner.run(case)
    assert policy.rounds == 0


def test_a_failing_context_function_goes_through() -> None:
    runner = Runner(learner(), STAGES, context=lambda case: case["x"])
    with pytest.raises(KeyError, match="x"):
        runner.run({})


@pytest.mark.parametrize("case", ["a text", "7", {"text": 1}, None, [[1, 2], [3, 4]]])
def test_a_policy_that_looks_at_no_context_needs_none(case: object) -> None:
    runner = Runner(sw.USSUCB(CASCADE), [lambda case: 1] * 3)
    assert runner.run(case).context == ()


def test_a_policy_that_looks_at_no_context_still_records_numbers() -> None:
    policy = sw.FixedDepth(CASCADE)
    plain = Runner(policy, [lambda case: 1] * 3)
    assert plain.run([0.5, 2]).context == (0.5, 2.0)
    stages = [Stage(lambda case: 1, reveals=lambda answer: [7.0, 8.0]), STAGES[1], STAGES[2]]
    assert Runner(policy, stages).run([0.5, 2]).context == (0.5, 2.0, 7.0, 8.0)


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


# ------------------------------------------------------------------------ context on the way down


def staged() -> sw.USSPD:
    """One number is known at first; arm 0 adds one, arm 1 adds two."""
    features = sw.PerStage([sw.Polynomial(degree=1)] * 2, sees=[2, 4])
    return sw.USSPD(CASCADE, features, 4, forced_rounds=10)


def revealing(first: Any = (0.25,), second: Any = (0.5, -0.5)) -> list[Any]:
    return [
        Stage(lambda x: "a", reveals=lambda answer: first),
        Stage(lambda x: "b", reveals=lambda answer: second),
        Stage(lambda x: "c", reveals=lambda answer: pytest.fail("nothing is beyond")),
    ]


def test_what_stages_reveal_joins_the_context() -> None:
    policy, twin = staged(), staged()
    done = Runner(policy, revealing()).run([1.0])
    assert done.context == (1.0, 0.25, 0.5, -0.5)
    assert done.outputs == ("a", "b", "c")
    descent = twin.start([1.0])
    for output, revealed in [("a", [0.25]), ("b", [0.5, -0.5]), ("c", [])]:
        descent.next()
        descent.give(output, revealed)
    assert descent.next() is None
    descent.learn()
    assert frozen(policy) == frozen(twin)


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ((0.5,), "arm 1 .* 4 numbers"),
        ((0.5, 0.5, 0.5), "arm 1 .* 4 numbers"),
        ((0.5, float("nan")), "nan at place 1"),
        ((0.5, 99.0), "coordinate 3"),  # outside the bound that the features promise
        (0.5, "a list of numbers"),
    ],
)
def test_what_cannot_join_the_context_is_a_failure_of_the_stage(second: Any, says: str) -> None:
    policy, twin = staged(), staged()
    done = Runner(policy, revealing(second=second)).run([1.0])
    assert done.failure is not None
    assert (done.failure.arm, done.failure.kind) == (1, "error")
    assert (done.stop, done.outputs, done.context) == (0, ("a",), (1.0, 0.25))
    assert re.search(says, done.failure.message), done.failure.message
    descent = twin.start([1.0])
    descent.next()
    descent.give("a", [0.25])
    descent.next()
    descent.learn()
    assert frozen(policy) == frozen(twin)


def test_a_stage_that_reveals_needs_a_policy_that_sees() -> None:
    with pytest.raises(sw.InvalidParameterError, match=r"'rule' reveals numbers.*PerStage"):
        Runner(learner(), revealing())
    last_only = [*STAGES[:2], Stage(STAGES[2], reveals=lambda answer: [1.0])]
    Runner(learner(), last_only).run([0.1, 0.2])  # the last arm's is ignored


# ------------------------------------------------------------------------------------- failures


def late(case: Any) -> None:
    time.sleep(30)  # in a thread that is left behind


FAILURES: list[tuple[Stage, str, str]] = [
    (Stage(lambda x: 1 / 0), "error", "ZeroDivisionError: division by zero"),
    (Stage(lambda x: next(iter(()))), "error", "StopIteration"),
    (Stage(late, timeout=0.02), "timeout", "no answer within 0.02 s"),
    (Stage(lambda x: {}["x"], timeout=20), "error", "KeyError: 'x'"),
    (Stage(lambda x: [1]), "error", "answers like [1] cannot be compared"),
    (Stage(lambda x: float("nan")), "error", "an output must be hashable and equal to itself"),
    (Stage(lambda x: "7", canonical=lambda a: 1 // 0), "error", "canonical: ZeroDivisionError"),
    (Stage(lambda x: np.zeros(2)), "error", "answers like array([0., 0.]) cannot be compared"),
]


@pytest.mark.parametrize("arm", [0, 1, 2])
@pytest.mark.parametrize(("failing", "kind", "message"), FAILURES)
def test_a_failure_ends_the_round_and_teaches_what_was_answered(
    arm: int, failing: Stage, kind: str, message: str
) -> None:
    policy, twin = learner(), learner()
    stages = [failing if i == arm else stage for i, stage in enumerate(STAGES)]
    runner = Runner(policy, stages)
    for x in CASES[:5]:
        done = runner.run(x)
        assert done.failure is not None
        assert (done.failure.arm, done.failure.kind) == (arm, kind)
        assert done.failure.message.startswith(message)
        assert (done.stop, len(done.outputs), len(done.answers)) == (
            arm - 1 if arm else None,
            arm,
            arm,
        )
        decision = twin.decide(x)
        if arm:
            twin.observe(x, [stage(x) for stage in STAGES[:arm]], rule_stop=decision.rule_stop)
    assert frozen(policy) == frozen(twin)
    assert policy.rounds == (5 if arm else 0)


def test_a_failed_round_leaves_a_policy_that_goes_on() -> None:
    policy, twin = taught(), taught()
    Runner(policy, [late] * 3, timeout=0.02).run(CASES[0])  # answers nothing
    twin.decide(CASES[0])
    rounds = list(Runner(policy, STAGES).run_many(CASES[60:]))
    wanted = list(Runner(twin, STAGES).run_many(CASES[60:]))
    assert [done.outputs for done in rounds] == [done.outputs for done in wanted]
    assert frozen(policy) == frozen(twin)


def test_a_timeout_of_the_stage_itself_is_a_timeout_too() -> None:
    def client(case: Any) -> None:
        raise TimeoutError("the read timed out")

    for timeout in (None, 20.0):
        done = Runner(sw.FixedDepth(CASCADE), [client, *STAGES[1:]], timeout=timeout).run([0, 0])
        assert done.failure == sw.Failure(0, "timeout", "the read timed out")


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


def test_a_stage_of_its_own_timeout_overrules_the_runners() -> None:
    runner = Runner(sw.FixedDepth(CASCADE), [Stage(late, timeout=0.02), *STAGES[1:]], timeout=999)
    assert [stage.timeout for stage in runner.stages] == [0.02, 999, 999]
    assert runner.run([0, 0]).failure is not None


def test_a_stage_that_hangs_does_not_keep_the_program_from_ending() -> None:
    program = """
        import time
        import stopwise as sw
        from stopwise.running.runner import Runner
        cascade = sw.Cascade([0.1, 0.2])
        runner = Runner(sw.FixedDepth(cascade), [lambda x: time.sleep(3600)] * 2, timeout=0.05)
        print(runner.run(None).failure.kind)
        import asyncio
        print(asyncio.run(runner.arun(None)).failure.kind)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"PYTHONPATH": str(SRC), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split() == ["timeout", "timeout"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize("arm", [0, 2])
def test_an_interrupt_goes_through_and_nothing_is_learned(
    interrupt: type[BaseException], timeout: float | None, arm: int
) -> None:
    def interrupted(case: Any) -> None:
        raise interrupt

    policy, twin, log = learner(), learner(), Kept()
    stages = [interrupted if i == arm else stage for i, stage in enumerate(STAGES)]
    with pytest.raises(interrupt):
        Runner(policy, stages, timeout=timeout, log=log).run(CASES[0])
    twin.decide(CASES[0])
    assert frozen(policy) == frozen(twin)
    assert log.rounds == []


def test_on_error_raise_lets_the_exception_through() -> None:
    policy, log = learner(), Kept()
    stages = [STAGES[0], lambda x: {}["missing"], STAGES[2]]
    runner = Runner(policy, stages, on_error="raise", log=log)
    with pytest.raises(KeyError, match="missing"):
        runner.run(CASES[0])
    empty = [STAGES[0], lambda x: next(iter(())), STAGES[2]]
    with pytest.raises(StopIteration):
        Runner(policy, empty, on_error="raise").run(CASES[0])
    with pytest.raises(sw.InvalidOutputsError, match="canonical: ZeroDivisionError") as caught:
        Runner(policy, STAGES, canonical=lambda a: 1 / 0, on_error="raise").run(CASES[0])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert (policy.rounds, log.rounds) == (0, [])


# --------------------------------------------------------------------------- what is compared


def test_canonical_answers_are_compared_and_raw_ones_returned() -> None:
    policy = sw.FixedDepth(CASCADE)
    stages = [lambda x: " Paris", lambda x: "PARIS!", Stage(lambda x: 7.2, canonical=round)]
    done = Runner(policy, stages, canonical=str.strip).run(None)
    assert done.outputs == ("Paris", "PARIS!", 7)
    assert done.answers == (" Paris", "PARIS!", 7.2)


def test_agreement_is_agreement_of_canonical_answers() -> None:
    def written(text: str) -> list[Any]:
        return [lambda x: text, lambda x: text.upper(), lambda x: f"{text}."]

    raw, canonical = sw.USSUCB(CASCADE), sw.USSUCB(CASCADE)
    agreeing = sw.USSUCB(CASCADE)
    Runner(raw, written("ja")).run(None)
    Runner(canonical, written("ja"), canonical=normalised_text).run(None)
    Runner(agreeing, [lambda x: 1] * 3).run(None)
    assert frozen(canonical) == frozen(agreeing) != frozen(raw)


# ---------------------------------------------------------------------------- costs, ids, time


def test_real_costs_are_recorded_for_the_arms_that_answered() -> None:
    stages = [
        Stage(lambda x: 1, cost=0),
        Stage(lambda x: {"tokens": 120}, cost=lambda a: a["tokens"] * 1e-6, canonical=lambda a: 1),
        Stage(lambda x: 1 / 0, cost=5),
    ]
    done = Runner(sw.FixedDepth(CASCADE), stages).run(None)
    assert done.costs == (0.0, pytest.approx(120e-6))
    assert done.failure is not None


def test_either_all_stages_say_their_cost_or_none() -> None:
    with pytest.raises(sw.InvalidParameterError, match="without `cost`: 'model', 'expert'"):
        Runner(sw.FixedDepth(CASCADE), [Stage(abs, cost=1), abs, abs])


def test_ids_are_given_or_new() -> None:
    runner = Runner(sw.FixedDepth(CASCADE), STAGES)
    assert runner.run([0, 0], id="case-7").id == "case-7"
    new = {runner.run([0, 0]).id for _ in range(50)}
    assert len(new) == 50
    assert all(len(one) == 32 for one in new)
    rounds = list(runner.run_many([[0, 1], [0, 2]], id_of=lambda case: f"n{case[1]}"))
    assert [done.id for done in rounds] == ["n1", "n2"]


def test_time_is_when_the_round_began() -> None:
    seen: list[float] = []
    runner = Runner(sw.FixedDepth(CASCADE, depth=0), [lambda x: seen.append(time.time()), abs, abs])
    before = time.time()
    done = runner.run(None)
    assert before <= done.time <= seen[0]


def test_a_refused_case_is_named_and_the_rounds_before_it_are_done() -> None:
    features = sw.Scaled.fit(CASES, sw.Polynomial(degree=1))
    policy, done = sw.USSPD(CASCADE, features, 2), list[sw.Round]()
    message = r'case 31 \(counted from 1\): coordinate 1 is 9.*outside="clip"'
    with pytest.raises(sw.InvalidContextError, match=message):
        done.extend(Runner(policy, STAGES).run_many([*CASES[:30], [0.0, 9.0], *CASES[30:]]))
    assert len(done) == policy.rounds == 30


def test_a_data_frame_is_taken_row_by_row() -> None:
    frame = pd.DataFrame(CASES[:3], columns=["age", "weight"])
    runner = Runner(sw.FixedDepth(CASCADE), STAGES, context=lambda row: [row.weight, row.age])
    contexts = [done.context for done in runner.run_many(frame)]
    assert contexts == [(w, a) for a, w in CASES[:3].tolist()]
    with pytest.raises(
        sw.InvalidParameterError, match="a list of cases or a data frame, not a str"
    ):
        list(runner.run_many("ab"))


def test_when_most_rounds_fail_there_is_one_warning() -> None:
    runner = Runner(sw.FixedDepth(CASCADE), [STAGES[0], lambda x: x["key"], STAGES[2]])
    message = "20 of the last 20 rounds failed; the last time stage 'model' .*IndexError"
    with pytest.warns(sw.StageFailureWarning, match=message) as caught:
        rounds = list(runner.run_many(CASES[:60]))
    assert len(caught) == 1
    assert all(done.failure is not None for done in rounds)


def test_without_an_answer_there_is_no_stop_to_mistake_for_an_arm() -> None:
    done = Runner(sw.FixedDepth(CASCADE), [lambda x: 1 / 0, *STAGES[1:]]).run([0, 0])
    assert (done.stop, done.answer) == (None, None)


# --------------------------------------------------------------------------------------- logs


def test_every_round_is_logged_before_it_is_learned() -> None:
    policy = learner()

    class Watching(Kept):
        def write(self, round: sw.Round) -> None:  # noqa: A002
            super().write(round)
            known.append(policy.rounds)

    known: list[int] = []
    log = Watching()
    rounds = list(Runner(policy, STAGES, log=log).run_many(CASES[:40]))
    assert log.rounds == rounds
    assert known == list(range(40))


def test_failed_rounds_are_logged_too() -> None:
    log = Kept()
    runner = Runner(sw.FixedDepth(CASCADE), [STAGES[0], lambda x: 1 / 0, STAGES[2]], log=log)
    done = runner.run([0, 0])
    assert log.rounds == [done]
    assert done.failure is not None


def test_a_round_that_cannot_be_logged_is_not_learned_and_its_answer_not_lost() -> None:
    class Full:
        def write(self, round: sw.Round) -> None:  # noqa: A002
            raise OSError("no space left on device")

    policy, twin = learner(), learner()
    with pytest.raises(OSError, match="no space") as caught:
        Runner(policy, [lambda x: "yes"] * 3, log=Full()).run(CASES[0], id="17")
    assert caught.value.__notes__ == [
        "Round 17 was not logged and not learned from; its answer was 'yes'."
    ]
    twin.decide(CASES[0])
    assert frozen(policy) == frozen(twin)


# --------------------------------------------------------------------------------- construction


@pytest.mark.parametrize("n", [0, 2, 4])
def test_there_is_one_stage_for_each_arm(n: int) -> None:
    with pytest.raises(sw.InvalidParameterError, match=f"{n} stages for a cascade of 3 arms"):
        Runner(sw.FixedDepth(CASCADE), [abs] * n)


def test_names_come_from_the_cascade_and_must_not_contradict_it() -> None:
    runner = Runner(sw.FixedDepth(CASCADE), [abs, Stage(abs, name="model"), abs])
    assert [stage.name for stage in runner.stages] == ["rule", "model", "expert"]
    with pytest.raises(sw.InvalidParameterError, match="order of the arms"):
        Runner(sw.FixedDepth(CASCADE), [Stage(abs, name="model"), abs, abs])
    unnamed = sw.FixedDepth(sw.Cascade([0.1, 0.2]))
    assert Runner(unnamed, [Stage(abs, name="small"), abs]).stages[0].name == "small"


@pytest.mark.parametrize("comparator", [sw.Oracle, sw.Clairvoyant])
def test_comparators_that_need_the_truth_cannot_run_a_cascade(comparator: Any) -> None:
    with pytest.raises(sw.TruthRequiredError, match="nobody knows"):
        Runner(comparator(CASCADE), STAGES)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(sw.InvalidParameterError, match="on_error"):
        Runner(sw.FixedDepth(CASCADE), STAGES, on_error="ignore")  # pyright: ignore[reportArgumentType]
    with pytest.raises(sw.InvalidParameterError, match="timeout"):
        Runner(sw.FixedDepth(CASCADE), STAGES, timeout=-1)


def test_it_shows_what_it_runs() -> None:
    assert repr(Runner(sw.FixedDepth(CASCADE), STAGES)).startswith("Runner(rule → model → expert)")


# ----------------------------------------------------------------------------- threads and audit


def test_several_threads_may_share_a_runner() -> None:
    policy = learner(forced_rounds=10_000)
    log = Kept()
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


def test_an_audit_reaches_the_policy_with_the_label_made_canonical() -> None:
    policy, twin = taught(), taught()
    words = {True: "Yes", False: "No"}
    stages = [lambda x, stage=stage: words[stage(x)] for stage in STAGES]
    runner = Runner(policy, stages, canonical=str.lower)
    done = runner.run(CASES[0])
    runner.audit(done, "YES")
    by_hand = copy.deepcopy(done)
    Runner(twin, stages, canonical=str.lower).run(CASES[0])
    twin.audit(by_hand, "yes")
    assert frozen(policy) == frozen(twin)
    other = taught()
    Runner(other, stages, canonical=str.lower).run(CASES[0])
    assert frozen(policy) != frozen(other)


def test_an_audit_of_a_policy_without_use_for_it_says_so() -> None:
    runner = Runner(sw.FixedDepth(CASCADE), STAGES)
    with pytest.raises(sw.AuditNotSupportedError):
        runner.audit(runner.run([0, 0]), True)


def test_an_audit_does_not_guess_in_what_form_labels_are() -> None:
    policy = taught()
    stages = [Stage(lambda x: {"text": "Yes"}, canonical=lambda a: a["text"].lower())] * 3
    runner = Runner(policy, stages)
    done = runner.run(CASES[0])
    before = frozen(policy)
    with pytest.raises(sw.InvalidParameterError, match=r"canonical= for labels.*policy\.audit"):
        runner.audit(done, "Yes")
    assert frozen(policy) == before
    Runner(policy, stages, canonical=str.lower).audit(done, "Yes")
    assert frozen(policy) != before


# ---------------------------------------------------------------------------- answers from hell


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


class Unhashable:
    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def mute(_: Any) -> Any:
    raise Mute


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (lambda _: Unequal(), "not beside that"),
        (lambda _: NoTruth(), "ambiguous"),
        (lambda _: Unhashable(), "no hash"),
        (lambda _: (x for x in "yes"), "gave a generator"),
        (mute, "Mute"),
        (Stage(lambda x: x, canonical=mute), "Mute"),
    ],
)
def test_an_answer_that_cannot_be_used_is_a_failure_of_its_stage(stage: Any, words: str) -> None:
    policy, twin, log = learner(), learner(), Kept()
    done = Runner(policy, [STAGES[0], stage, STAGES[2]], log=log).run(CASES[0])
    assert done.failure is not None
    assert (done.failure.arm, done.failure.kind, done.stop) == (1, "error", 0)
    assert words in done.failure.message
    assert log.rounds == [done]
    twin.observe(CASES[0], [STAGES[0](CASES[0])])
    assert frozen(policy) == frozen(twin)


@pytest.mark.parametrize("timeout", [True, "5", 0, 1e7, float("nan")])
def test_a_timeout_that_cannot_be_is_refused(timeout: Any) -> None:
    stages = [Stage(stage, timeout=5) for stage in STAGES]
    with pytest.raises(sw.InvalidParameterError, match="timeout"):
        Runner(learner(), stages, timeout=timeout)
