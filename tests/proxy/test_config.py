"""The example configuration is valid, and errors name the field."""

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from examples.proxy_upstreams import Upstream
from stopwise.cli.main import app
from stopwise.errors import InvalidParameterError
from stopwise.proxy.config import load_config
from tests.proxy.proxy_harness import ProxyProcess, running_proxy, stages, write_config

URL = {"url": "http://127.0.0.1:9/v1", "model": "m", "cost": 0.1}


def problems(tmp_path: Path, text: str) -> str:
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    with pytest.raises(InvalidParameterError) as caught:
        load_config(file, {})
    return str(caught.value)


def test_the_example_is_a_valid_configuration(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["proxy", "--example"])
    file = tmp_path / "proxy.toml"
    file.write_text(printed.output)
    config = load_config(file, {})
    (cascade,) = config.cascades.values()
    assert (cascade.mode, cascade.answer_arm, cascade.expected(1)) == ("shadow", 1, 0.00325)
    assert config.settings.max_body == 20_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[service]\nprot = 1\n[[cascade]]", "service.prot: unknown setting; did you mean 'port'?"),
        ("", "cascade is missing"),
        ("cascade = []", "cascade must be an array"),
        ('[[cascade]]\nname = "Big"', "cascade[0].name must be a name like"),
        (
            '[[cascade]]\nname = "a"\nmod = "on"',
            "cascade[0].mod is an unknown field; did you mean",
        ),
        ('[[cascade]]\nname = "a"\nsample = 2', "cascade[0].sample must be a number <= 1"),
        ('[[cascade]]\nname = "a"\nstage = [{name = "x"}]', "cascade[0].stage must be an array"),
        ("[casacde]", "casacde is an unknown field; did you mean 'cascade'?"),
    ],
)
def test_invalid_fields_are_reported_with_their_path(
    tmp_path: Path, text: str, message: str
) -> None:
    if "[[cascade]]" in text and "stage" not in text:
        if text.endswith("[[cascade]]"):
            text += '\nname = "c"'
        text += (
            '\nstage = [{name = "a", python = "math:sqrt"}, {name = "b", python = "math:sqrt"}]\n'
        )
    assert message in problems(tmp_path, text)


def test_all_inconsistencies_are_reported_at_once(tmp_path: Path) -> None:
    reported = problems(
        tmp_path,
        """
        [[cascade]]
        name = "one"
        stage = [{name = "a", python = "math:sqrt"}, {name = "b", python = "math:sqrt"}]
        [[cascade]]
        name = "two"
        answer = "c"
        compare = "regex"
        policy = "fixed-depth"
        [[cascade.stage]]
        name = "a"
        url = "ftp://x"
        key_env = "NO_SUCH_KEY"
        [[cascade.stage]]
        name = "a"
        python = "nowhere:same"
        price_in = 1
        """,
    )
    for message in (
        "cascade[1].stage: duplicate name 'a'",
        "cascade[1].answer: unknown stage 'c'; choose from a, a",
        "cascade[1].stage[0].url must be http:// or https:// followed by a host",
        "cascade[1].stage[0].model is missing",
        "cascade[1].stage[0].key_env: the environment variable NO_SUCH_KEY does not contain",
        "valid key; run: export NO_SUCH_KEY=",
        "cascade[1].stage[0].cost is missing: set cost, or price_in and price_out",
        "cascade[1].stage[1].python: cannot import 'nowhere:same'",
        "cascade[1].stage[1].price_in and price_out must be set together",
        "cascade[1].compare: unknown comparison 'regex'; choose from text, json",
        "cascade[1].policy: invalid kind 'fixed-depth'; choose from",
    ):
        assert message in reported, reported


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"max_cost": 0.01},
            "max_cost must be at least 0.1 (the cost of one call to 'a')",
        ),
        ({"policy": "uss-anchor", "labels": 10}, "unknown parameter of uss-anchor"),
        ({"compare": {"module": "x"}}, "cascade[0].compare.module is an unknown field"),
        ({"error_cost": 0}, "error_cost must be a number > 0"),
        ({"context": ["weather"]}, "context"),
    ],
)
def test_inconsistent_fields_are_rejected(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    file = write_config(tmp_path, [{"name": "a", **URL}, {"name": "b", **URL}], **fields)
    with pytest.raises(InvalidParameterError) as caught:
        load_config(file, {})
    assert message in str(caught.value)


def test_the_error_of_a_missing_file_shows_how_to_create_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["proxy", str(tmp_path / "no.toml")])
    assert "stopwise proxy --example >" in str(done.exception)


@pytest.mark.parametrize("change", ["costs", "compare"])
def test_a_changed_cascade_is_rejected_with_advice(
    models: list[Upstream], tmp_path: Path, change: str
) -> None:
    with running_proxy(tmp_path, stages(models)):
        pass
    costs = (0.1, 0.2, 0.3) if change == "costs" else ()
    more = {"compare": "number"} if change == "compare" else {}
    process = ProxyProcess(write_config(tmp_path, stages(models, *costs), **more))
    process.start()
    assert process.process.wait(60) == 2
    assert 'rename it in the configuration (name = "tickets-2")' in process.printed
    process.end()


def test_stages_comparison_and_embedding_may_be_functions(
    models: list[Upstream], tmp_path: Path
) -> None:
    (tmp_path / f"mine_{os.getpid()}.py").write_text(
        "def rule(request):\n"
        "    return 'It is Billing' if 'invoice' in request['messages'][-1]['content'] else '?'\n"
        "def same(a, b):\n"
        "    return 'billing' in a.lower() and 'billing' in b.lower()\n"
        "def embed(text):\n"
        "    return [len(text), text.count(' '), 1.0]\n"
    )
    module = f"mine_{os.getpid()}"
    rows = [{"name": "rule", "python": f"{module}:rule"}, *stages(models)[1:]]
    more: dict[str, Any] = {
        "compare": {"python": f"{module}:same"},
        "embedding": {"python": f"{module}:embed", "size": 2},
        "policy": {"kind": "uss-anchor", "forced_rounds": 1000},
    }
    with running_proxy(tmp_path, rows, mode="on", **more) as proxy:
        name = proxy.chat().headers["x-stopwise-round"]
        round_ = proxy.get(f"/v1/cascades/tickets/rounds/{name}").json()
        assert round_["outputs"] == {"rule": 0, "words": 0, "phrases": 0}
        assert len(round_["context"]) == 4 + 3 + 2 * 5
        assert round_["context"][6] == 1.0  # the prompt was embedded
