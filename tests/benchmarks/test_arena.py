"""The arena on small synthetic copies of its public sources."""

import dataclasses
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import stopwise as sw
from benchmarks.arena import contest, convert, data, scores, tables, thresholds
from benchmarks.arena.__main__ import main
from benchmarks.arena.players import LABELLED, Player, players

ROWS = 400
COMPETITORS = [player for player in players() if "hindsight" not in player.name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the arena's folder, converted from sources in their layout: six sets, three models."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("arena")
    random = np.random.default_rng(0)
    for name, (_, arms) in convert.FRUGALML.items():
        place = source / f"dataset/mlserviceperformance_{name.upper()}"
        place.mkdir(parents=True)
        label = random.integers(3, size=ROWS)
        for k, (_, number, _) in enumerate(arms):
            right = random.random(ROWS) < 0.6 + 0.1 * k
            sure = np.where(right, random.uniform(0.4, 1, ROWS), random.uniform(0, 0.7, ROWS))
            answers = np.where(right, label, (label + 1) % 3)
            np.savetxt(place / f"Model{number}_PredictedLabel.txt", answers, fmt="%d")
            np.savetxt(place / f"Model{number}_Confidence.txt", sure)
            np.savetxt(place / f"Model{number}_TrueLabel.txt", label, fmt="%d")
    (source / "eval_results").mkdir()
    for k, (_, archive, _) in enumerate(convert.MODELS):
        entries = [
            {
                "question_id": q,
                "question": "?" * (10 + q),
                "options": ["yes", "no", "perhaps"],
                "category": "law",
                "answer": "A",
                "pred": None if q == 5 else "BAA"[(q + k) % 3],
                "model_outputs": "x" * (20 + q * (k + 1)),
            }
            for q in range(k, ROWS)  # the first questions are missing for some models
        ]
        with zipfile.ZipFile(source / "eval_results" / f"{archive}.zip", "w") as packed:
            packed.writestr("answers/law.json", json.dumps(entries))
            packed.writestr("answers/law_summary.json", json.dumps({"acc": 1}))
    assert convert.main(_arguments(frugalml=source, mmlu_pro=source, out=out)) == 0
    return out


def _arguments(**options):
    return [str(part) for k, v in options.items() for part in (f"--{k.replace('_', '-')}", v)]


@pytest.fixture(scope="module")
def setting(folder):
    return data.setting(data.read(folder, "rafdb"), 0.2, order=1)


def test_conversion_preserves_the_values_of_each_case(folder):
    questions = data.read(folder, "mmlu_pro")
    assert len(questions.labels) == ROWS - 2
    q = np.rint(10 ** (4 * questions.contexts[:, 0]) - 11).astype(int)
    assert sorted(q) == list(range(2, ROWS))
    right = questions.outputs == questions.labels[:, None]
    for k in range(3):
        np.testing.assert_array_equal(right[:, k], (q != 5) & ((q + k) % 3 != 0))
    np.testing.assert_allclose(questions.contexts[:, 1], 0.3)
    np.testing.assert_allclose(questions.contexts[:, 3], np.log10(21 + 2 * q) / 4)
    assert questions.sees == (3, 4)
    assert data.names(folder) == (*convert.FRUGALML, "mmlu_pro")


def test_the_loss_of_a_round_is_the_cost_of_its_arms_plus_an_error(folder, setting):
    recorded = data.read(folder, "rafdb")
    shuffled = np.random.default_rng([1, 1]).permutation(ROWS)
    for t, stop in ((0, 0), (1, 2), (2, 3)):
        cost = 0.2 * sum([0.001, 5, 10, 15][: stop + 1]) / 30.001
        row = shuffled[t]
        error = recorded.outputs[row, stop] != recorded.labels[row]
        assert setting.losses(np.full(ROWS, stop))[t] == pytest.approx(cost + error)


@pytest.mark.parametrize("player", COMPETITORS, ids=lambda player: player.title)
def test_competitors_use_only_requested_labels_and_outputs_of_arms_that_ran(
    player: Player, setting
):
    stops = player.play(setting, player.labels, 3)
    labelled = np.arange(ROWS) < player.labels  # every arm runs in these rounds
    if player.labels and player.name in LABELLED:
        labelled = _requested_labels(player, setting, stops)
    else:
        assert (stops[labelled] == setting.last).all()
    assert bool(player.labels) <= labelled.sum() <= player.labels
    random = np.random.default_rng(4)
    outputs, contexts, labels = (
        array.copy() for array in (setting.outputs, setting.contexts, setting.labels)
    )
    labels[~labelled] = random.integers(3, size=(~labelled).sum())
    for t, stop in enumerate(stops):
        outputs[t, stop + 1 :] = random.integers(3, size=setting.last - stop)
        n_visible = setting.sees[min(stop, setting.last - 1)]
        contexts[t, n_visible:] = random.random(contexts.shape[1] - n_visible)
    changed = dataclasses.replace(setting, outputs=outputs, contexts=contexts, labels=labels)
    np.testing.assert_array_equal(player.play(changed, player.labels, 3), stops)


def _requested_labels(player: Player, setting, stops):
    """Run a policy arm by arm; return the rounds whose labels it requests."""
    base, requested = setting.sees[0] - 1, np.zeros(ROWS, dtype=bool)
    options = {"reveals": 1, "context_dim": base}
    policy = sw.make(player.name, setting.cascade, **options, labels=player.labels, seed=3)
    for t, (x, outputs) in enumerate(zip(setting.contexts, setting.outputs.tolist(), strict=True)):
        current = policy.start(x[:base])
        while (arm := current.next()) is not None:
            current.give(outputs[arm], x[base + arm : base + arm + 1])
        current.learn()
        assert len(current.outputs) - 1 == stops[t], t
        requested[t] = current.wants_label
        if requested[t]:
            policy.label(current, int(setting.labels[t]))
    return requested


def test_agreement_rules_equal_a_plain_loop(setting):
    plays = {player.title: player.play(setting, 0, 0) for player in players() if not player.labels}
    for t, outputs in enumerate(setting.outputs.tolist()):
        assert plays["agreement of all"][t] == (1 if outputs[0] == outputs[1] else 3)
        repeated = [arm for arm in (1, 2) if outputs[arm] in outputs[:arm]]
        assert plays["agreement of two"][t] == min(repeated, default=3)


@pytest.mark.parametrize(("confident", "sign"), [(True, 1), (False, -1)])
def test_thresholds_separate_right_from_wrong_answers(setting, confident, sign):
    """Arm 0 is right if its confidence exceeds the sixth decile, arm 1 never, others always."""
    confidence = np.random.default_rng(5).permutation(ROWS) / ROWS
    label = np.zeros(ROWS, dtype=int)
    outputs = np.column_stack([confidence < 0.6, label + 1, label, label]).astype(int)
    contexts = np.column_stack([sign * confidence, label, label])
    columns = {"contexts": contexts, "outputs": outputs, "labels": label, "confident": confident}
    stops = thresholds.play(dataclasses.replace(setting, **columns), ROWS // 2)
    assert (stops[: ROWS // 2] == 3).all()
    later = slice(ROWS // 2, None)
    # The decile of half of the rounds may misplace a few cases near 0.6.
    clear = np.abs(confidence[later] - 0.6) > 0.1
    expected = np.where(confidence[later] > 0.6, 0, 2)
    np.testing.assert_array_equal(stops[later][clear], expected[clear])


def test_scores_equal_a_calculation_by_hand():
    losses = {("a", 0.1): [0.2, 0.4], ("b", 0.1): [0.6, 0.6]}
    runs = [
        contest.Run(player, cascade, level, order, loss + extra, 0.5, 1.0)
        for player, extra in (("first", 0.0), ("second", 0.05))
        for (cascade, level), both in losses.items()
        for order, loss in enumerate(both)
    ]
    first, second = scores.score(runs, "first")
    assert first.of_best.value == pytest.approx((0.4 + 0.8 + 1.2 + 1.2) / 4)
    # means of the orders 0.8 and 1.0: 0.9 ± 12.706·(0.1·√2)/√2
    assert first.of_best.half == pytest.approx(1.2706, abs=1e-4)
    assert (first.worst_at, first.worst.value, first.better) == (("b", 0.1), pytest.approx(1.2), 1)
    assert first.of_last.value == pytest.approx(0.45)
    assert second.against == (pytest.approx(0.1), 0.0)  # paired, and equal in every order
    assert "| second | 1.000 ± 1.271 | 1.300 (b, 0.1) |" in tables.summary([first, second], "first")
    with pytest.raises(data.ArenaError, match="runs are missing for second"):
        scores.score(runs[:-1])


def test_two_processes_give_equal_results_and_update_keeps_other_competitors(
    folder, tmp_path, capsys
):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nstale\n{tables.END}\nafter\n", encoding="utf-8")
    (tmp_path / "images").mkdir()
    single, parallel = tmp_path / "single", tmp_path / "parallel"
    common = ["--data", str(folder), "--quick"]
    names = ["--only", "thresholds", "random depth", "uss-pd"]
    assert main([*common, *names, "--out", str(single), "--docs", str(page)]) == 0
    command = [sys.executable, "-m", "benchmarks.arena", *common, *names]
    done = subprocess.run(
        [*command, "--jobs", "2", "--out", str(parallel)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert "4/4 settings" in done.stderr
    assert (parallel / "runs.csv").read_text() == (single / "runs.csv").read_text()
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{tables.BEGIN}\n\n| competitor")
    assert text.endswith(f"{tables.END}\nafter\n")
    assert "stale" not in text
    assert (tmp_path / "images" / "arena.png").read_bytes().startswith(b"\x89PNG")

    before = contest.read(single / "runs.csv")
    assert main([*common, "--only", "always last", "--update", "--out", str(single)]) == 0
    after = contest.read(single / "runs.csv")
    assert [run for run in after if run.player != "always last"] == before
    ours = [run for run in after if run.player == "always last"]
    assert [run.loss for run in ours] == pytest.approx([run.last for run in ours])
    assert len(ours) == 4
    capsys.readouterr()


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (None, "--data is missing"),
        ("arena.json", "arena.json cannot be read"),
        ("digit.parquet", "digit.parquet cannot be read"),
    ],
)
def test_errors_about_data_name_the_sources(folder, tmp_path, capsys, broken, expected):
    for path in folder.iterdir():
        if path.name != broken:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    assert main([] if broken is None else ["--data", str(tmp_path), "--quick"]) == 2
    message = capsys.readouterr().err
    assert expected in message
    assert "lchen001/FrugalML" in message
    assert "TIGER-AI-Lab/MMLU-Pro" in message


def test_an_unknown_competitor_is_rejected_with_the_available_names(folder, capsys):
    assert main(["--data", str(folder), "--only", "magic"]) == 2
    message = capsys.readouterr().err
    assert "unknown competitor 'magic'; choose from agreement of all" in message
