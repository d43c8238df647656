"""Fixtures that run the program in this process, which is fast, or in a subprocess."""

import io
import logging
import os
import re
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from stopwise.cli.main import main

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def flat(text: str) -> str:
    """Return text without boxes and line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


ARMS = ("rules", "small", "large")


def rounds(n: int) -> dict[str, Any]:
    """Return the columns of a log: error rates rise with `hard`, most for the first arm."""
    random = np.random.default_rng(0)
    hard = random.uniform(size=n)
    truth = random.integers(0, 2, n)
    errs = [random.uniform(size=n) < e * hard for e in (0.8, 0.4, 0.05)]
    table = {"context.hard": hard, "context.age": random.uniform(20, 90, n)}
    table |= {f"output.{arm}": truth ^ e for arm, e in zip(ARMS, errs, strict=True)}
    return table | {"label": truth}


LOGGERS = [logging.getLogger(n) for n in ("stopwise.service", "_granian", "granian.access")]


@pytest.fixture
def stopwise(tmp_path: Path) -> Iterator[Run]:
    """Return a function that runs a command in this process, in a temporary folder."""
    before = [(logger.handlers, logger.level, logger.propagate) for logger in LOGGERS]

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        code: object = 0
        with (
            pytest.MonkeyPatch.context() as patch,
            warnings.catch_warnings(),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            warnings.simplefilter("default")  # as a program, which shows them
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["stopwise", *words])
            patch.setattr(sys, "stdin", io.StringIO())
            for name, value in {"COLUMNS": "100", **environment}.items():
                patch.setenv(name, value)
            try:
                main()
            except SystemExit as error:
                code = error.code or 0
            except BaseException:
                traceback.print_exc()
                code = 1
        out.seek(0)
        err.seek(0)
        assert isinstance(code, int)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())

    yield run
    for logger, (handlers, level, propagate) in zip(LOGGERS, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture
def process(tmp_path: Path) -> Run:
    """Return a function that runs a command in a subprocess."""

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stopwise", *words],
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "100", **more},
            timeout=300,
            check=False,
        )

    return run
