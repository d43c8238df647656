"""Create the arena's data from its public sources: ``python -m benchmarks.arena.convert``."""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arena.data import SOURCES, ArenaError

MAX_ROWS = 20_000  # larger sets are sampled

# Arm, its number in the file names, and its price for 10,000 calls (from the source's meta.csv).
SPEECH = (("deepspeech", 101, 0.02), ("ibm", 5, 25.0), ("microsoft", 2, 41.0), ("google", 0, 60.0))
TEXT = (("bixin", 100, 0.001), ("amazon", 4, 0.75), ("google", 0, 2.5), ("baidu", 3, 3.5))
FACES = (("cnn", 100, 0.001), ("facepp", 1, 5.0), ("microsoft", 2, 10.0), ("google", 0, 15.0))
FRUGALML = {
    "digit": ("spoken digits", SPEECH),
    "waimai": ("sentiment of reviews of food delivery", TEXT),
    "shop": ("sentiment of shop reviews", TEXT),
    "rafdb": ("facial expression", FACES),
    "expw": ("facial expression", FACES),
    "fluent": ("spoken commands", SPEECH),
}

# Arm, the archive of its answers, and an illustrative price per million input tokens.
MODELS = (
    ("llama-3.1-8b", "model_outputs_Meta-Llama-3_1-8B-Instruct_5shots", 0.02),
    ("llama-3.1-70b", "model_outputs_Meta-Llama-3_1-70B-Instruct_5shots", 0.12),
    ("gemini-1.5-pro", "model_outputs_gemini-1.5-pro-002_5shots", 1.25),
)
TEXT_FIELDS = ("model_outputs", "response", "generated_text")  # possible fields of an answer's text

Columns = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and convert the sources."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arena.convert", description=__doc__)
    parser.add_argument("--frugalml", type=Path, help="a copy of lchen001/FrugalML")
    parser.add_argument("--mmlu-pro", type=Path, help="a copy of TIGER-AI-Lab/MMLU-Pro")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    options = parser.parse_args(arguments)
    try:
        convert(options.frugalml, options.mmlu_pro, options.out)
    except ArenaError as error:
        print(f"convert: {error}", file=sys.stderr)
        return 2
    return 0


def convert(frugalml: Path | None, mmlu_pro: Path | None, out: Path) -> None:
    """Write a Parquet file for each cascade and arena.json, which describes them."""
    about: dict[str, Any] = {}
    out.mkdir(parents=True, exist_ok=True)
    if frugalml is not None:
        for name, (task, arms) in FRUGALML.items():
            rows = _write(out / f"{name}.parquet", _frugalml(frugalml, name))
            source = f"github.com/lchen001/FrugalML, {_folder(name)}, Apache-2.0"
            about[name] = _about(task, arms, "US dollars per 10,000 calls", rows, source)
    if mmlu_pro is not None:
        rows = _write(out / "mmlu_pro.parquet", _mmlu_pro(mmlu_pro))
        unit = "US dollars per million input tokens, illustrative"
        source = "github.com/TIGER-AI-Lab/MMLU-Pro, eval_results, Apache-2.0"
        task = "multiple choice questions of MMLU-Pro"
        about["mmlu_pro"] = _about(task, MODELS, unit, rows, source)
    if not about:
        raise ArenaError(f"--frugalml or --mmlu-pro is required.\n{SOURCES}")
    (out / "arena.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _about(
    task: str, arms: Sequence[tuple[str, Any, float]], unit: str, rows: int, source: str
) -> dict[str, Any]:
    return {
        "task": task,
        "arms": [arm for arm, _, _ in arms],
        "price": [price for _, _, price in arms],
        "unit": unit,
        "rows": rows,
        "source": source,
    }


def _folder(name: str) -> str:
    return f"dataset/mlserviceperformance_{name.upper()}"


def _frugalml(source: Path, name: str) -> Columns:
    """Read files with one number per line; the line is the case."""
    folder, arms = source / _folder(name), FRUGALML[name][1]

    def numbers(number: int, column: str) -> Any:
        path = folder / f"Model{number}_{column}.txt"
        try:
            return np.loadtxt(path, ndmin=1)
        except (OSError, ValueError) as error:
            raise ArenaError(f"{path} cannot be read ({error}).\n{SOURCES}") from error

    columns: Columns = {}
    for arm, number, _ in arms:
        columns[f"output.{arm}"] = numbers(number, "PredictedLabel").astype(np.int16)
    for arm, number, _ in arms:
        columns[f"confidence.{arm}"] = numbers(number, "Confidence").astype(np.float32)
    columns["label"] = numbers(arms[0][1], "TrueLabel").astype(np.int16)
    return columns


def _mmlu_pro(source: Path) -> Columns:
    """Read the questions that all models answered; an answer without a letter is "none"."""
    answers = [
        {entry["question_id"]: entry for entry in _entries(source / "eval_results" / archive)}
        for _, archive, _ in MODELS
    ]
    common = sorted(set.intersection(*(set(entries) for entries in answers)))
    questions = [answers[0][key] for key in common]
    columns: Columns = {
        "category": [question["category"] for question in questions],
        "question_characters": [len(question["question"]) for question in questions],
        "options": [len(question["options"]) for question in questions],
    }
    for (arm, _, _), entries in zip(MODELS, answers, strict=True):
        columns[f"output.{arm}"] = [entries[key].get("pred") or "none" for key in common]
    for (arm, _, _), entries in zip(MODELS, answers, strict=True):
        columns[f"characters.{arm}"] = [len(_text(entries[key])) for key in common]
    columns["label"] = [question["answer"] for question in questions]
    return {name: np.array(values) for name, values in columns.items()}


def _entries(archive: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of all JSON files of an archive, or of its unpacked folder."""
    path = archive.with_name(f"{archive.name}.zip")
    try:
        if path.exists():
            with zipfile.ZipFile(path) as packed:
                files = [n for n in packed.namelist() if _has_answers(n.rpartition("/")[2])]
                texts = [packed.read(name) for name in files]
        else:
            texts = [
                p.read_bytes() for p in sorted(archive.rglob("*.json")) if _has_answers(p.name)
            ]
        entries = [entry for text in texts for entry in json.loads(text)]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ArenaError(f"{path} cannot be read ({error}).\n{SOURCES}") from error
    if not entries:
        raise ArenaError(f"{path} has no answers.\n{SOURCES}")
    yield from entries


def _has_answers(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".") and "summary" not in name


def _text(entry: dict[str, Any]) -> str:
    return next((entry[key] for key in TEXT_FIELDS if entry.get(key)), "")


def _write(path: Path, columns: Columns) -> int:
    """Write at most `MAX_ROWS` rows in random order; return their number."""
    import pyarrow as pa
    from pyarrow import parquet

    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ArenaError(f"the columns of {path.stem} have different lengths: {lengths}")
    rows = np.random.default_rng(0).permutation(lengths["label"])[:MAX_ROWS]
    parquet.write_table(pa.table({name: values[rows] for name, values in columns.items()}), path)
    return len(rows)


if __name__ == "__main__":
    sys.exit(main())
