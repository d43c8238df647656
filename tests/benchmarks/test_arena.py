"""The arena on a small made-up copy of its public sources."""

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
    """The arena's folder, converted from sources in their own layout: six sets and three models."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("arena")
    random = np.random.default_rng(0)
    for name, (_, arms) in convert.FRUGALML.items():
        place = source / f"dataset/mlserviceperformance_{name.upper()}"
        place.mkdir(parents=True)
        label = random.integers(3, size=ROWS)
        for k, (_, number, _) in enumerate(arms):
            right = random.random(ROWS) < 0.6 + 0.1 * k
            sure = np.where(right, random.uniform(0.4, 1, ROWS), random.uniform(0, 0.7, ROWS))
            said = np.where(right, label, (label + 1) % 3)
            np.savetxt(place / f"Model{number}_PredictedLabel.txt", said, fmt="%d")
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
            for q in range(k, ROWS)  # the first questions were not put to all models
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


def test_a_case_keeps_its_numbers_through_the_conversion(folder):
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


def test_a_round_costs_its_arms_and_one_more_if_it_is_wrong(folder, setting):
    recorded = data.read(folder, "rafdb")
    shuffled = np.random.default_rng([1, 1]).permutation(ROWS)
    for t, stop in ((0, 0), (1, 2), (2, 3)):
        paid = 0.2 * sum([0.001, 5, 10, 15][: stop + 1]) / 30.001
        row = shuffled[t]
        error = recorded.outputs[row, stop] != recorded.labels[row]
        assert setting.losses(np.full(ROWS, stop))[t] == pytest.approx(paid + error)


@pytest.mark.parametrize("player", COMPETITORS, ids=lambda player: player.title)
def test_nobody_sees_labels_that_were_not_granted_or_what_arms_not_run_would_have_said(
    player: Player, setting
):
    stops = player.play(setting, player.labels, 3)
    told = np.arange(ROWS) < player.labels  # in these every arm runs
    if player.labels and player.name in LABELLED:
        told = _asked_for(player, setting, stops)
    else:
        assert (stops[told] == setting.last).all()
    assert bool(player.labels) <= told.sum() <= player.labels
    random = np.random.default_rng(4)
    outputs, contexts, labels = (
        array.copy() for array in (setting.outputs, setting.contexts, setting.labels)
    )
    labels[~told] = random.integers(3, size=(~told).sum())
    for t, stop in enumerate(stops):
        outputs[t, stop + 1 :] = random.integers(3, size=setting.last - stop)
        known = setting.sees[min(stop, setting.last - 1)]
        contexts[t, known:] = random.random(contexts.shape[1] - known)
    other = dataclasses.replace(setting, outputs=outputs, contexts=contexts, labels=labels)
    np.testing.assert_array_equal(player.play(other, player.labels, 3), stops)


def _asked_for(player: Player, setting, stops):
    """Play a policy arm by arm, with the same stops; return the rounds whose labels it asks for."""
    base, told = setting.sees[0] - 1, np.zeros(ROWS, dtype=bool)
    known = {"reveals": 1, "context_dim": base}
    policy = sw.make(player.name, setting.cascade, **known, labels=player.labels, seed=3)
    for t, (x, said) in enumerate(zip(setting.contexts, setting.outputs.tolist(), strict=True)):
        current = policy.start(x[:base])
        while (arm := current.next()) is not None:
            current.give(said[arm], x[base + arm : base + arm + 1])
        current.learn()
        assert len(current.outputs) - 1 == stops[t], t
        told[t] = current.wants_label
        if told[t]:
            policy.label(current, int(setting.labels[t]))
    return told


def test_agreement_stops_where_a_plain_loop_does(setting):
    plays = {player.title: player.play(setting, 0, 0) for player in players() if not player.labels}
    for t, said in enumerate(setting.outputs.tolist()):
        assert plays["agreement of all"][t] == (1 if said[0] == said[1] else 3)
        repeated = [arm for arm in (1, 2) if said[arm] in said[:arm]]
        assert plays["agreement of two"][t] == min(repeated, default=3)


@pytest.mark.parametrize(("confident", "sign"), [(True, 1), (False, -1)])
def test_thresholds_find_the_confidence_above_which_an_arm_is_right(setting, confident, sign):
    """Arm 0 is right if it is surer than in six cases of ten, arm 1 never, arms 2 and 3 always."""
    sure = np.random.default_rng(5).permutation(ROWS) / ROWS
    label = np.zeros(ROWS, dtype=int)
    outputs = np.column_stack([sure < 0.6, label + 1, label, label]).astype(int)
    contexts = np.column_stack([sign * sure, label, label])
    made = {"contexts": contexts, "outputs": outputs, "labels": label, "confident": confident}
    stops = thresholds.play(dataclasses.replace(setting, **made), ROWS // 2)
    assert (stops[: ROWS // 2] == 3).all()
    rest = slice(ROWS // 2, None)
    # the decile is of a half of the rounds: a few cases about 0.6 may fall on the other side
    surely = np.abs(sure[rest] - 0.6) > 0.1
    np.testing.assert_array_equal(stops[rest][surely], np.where(sure[rest] > 0.6, 0, 2)[surely])


def test_scores_by_hand():
    losses = {("a", 0.1): [0.2, 0.4], ("b", 0.1): [0.6, 0.6]}
    runs = [
        contest.Run(player, cascade, level, order, loss + extra, 0.5, 1.0)
        for player, extra in (("one", 0.0), ("two", 0.05))
        for (cascade, level), both in losses.items()
        for order, loss in enumerate(both)
    ]
    one, two = scores.score(runs, "one")
    assert one.of_best.value == pytest.approx((0.4 + 0.8 + 1.2 + 1.2) / 4)
    # means of the orders 0.8 and 1.0: 0.9 ± 12.706·(0.1·√2)/√2
    assert one.of_best.half == pytest.approx(1.2706, abs=1e-4)
    assert (one.worst_at, one.worst.value, one.better) == (("b", 0.1), pytest.approx(1.2), 1)
    assert one.of_last.value == pytest.approx(0.45)
    assert two.against == (pytest.approx(0.1), 0.0)  # paired: the same in every order
    assert "| two | 1.000 ± 1.271 | 1.300 (b, 0.1) |" in tables.summary([one, two], "one")
    with pytest.raises(data.ArenaError, match="not all settings were played by two"):
        scores.score(runs[:-1])


def test_the_command_writes_the_same_with_two_processes_and_keeps_others_on_update(
    folder, tmp_path, capsys
):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nstale\n{tables.END}\nafter\n", encoding="utf-8")
    (tmp_path / "images").mkdir()
    alone, both = tmp_path / "alone", tmp_path / "both"
    common = ["--data", str(folder), "--quick"]
    names = ["--only", "thresholds", "random depth", "uss-pd"]
    assert main([*common, *names, "--out", str(alone), "--docs", str(page)]) == 0
    command = [sys.executable, "-m", "benchmarks.arena", *common, *names]
    done = subprocess.run(
        [*command, "--jobs", "2", "--out", str(both)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert "4/4 settings" in done.stderr
    assert (both / "runs.csv").read_text() == (alone / "runs.csv").read_text()
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{tables.BEGIN}\n\n| competitor")
    assert text.endswith(f"{tables.END}\nafter\n")
    assert "stale" not in text
    assert (tmp_path / "images" / "arena.png").read_bytes().startswith(b"\x89PNG")

    before = contest.read(alone / "runs.csv")
    assert main([*common, "--only", "always last", "--update", "--out", str(alone)]) == 0
    after = contest.read(alone / "runs.csv")
    assert [run for run in after if run.player != "always last"] == before
    ours = [run for run in after if run.player == "always last"]
    assert [run.loss for run in ours] == pytest.approx([run.last for run in ours])
    assert len(ours) == 4
    capsys.readouterr()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (None, "say where the data are"),
        ("arena.json", "no arena.json"),
        ("digit.parquet", "digit.parquet cannot be read"),
    ],
)
def test_without_data_it_names_the_sources(folder, tmp_path, capsys, broken, said):
    for path in folder.iterdir():
        if path.name != broken:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    assert main([] if broken is None else ["--data", str(tmp_path), "--quick"]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "lchen001/FrugalML" in message
    assert "TIGER-AI-Lab/MMLU-Pro" in message


def test_a_name_that_is_not_there_is_refused_with_those_that_are(folder, capsys):
    assert main(["--data", str(folder), "--only", "nobody"]) == 2
    assert "no competitor is called 'nobody'; there are agreement of all" in capsys.readouterr().err
