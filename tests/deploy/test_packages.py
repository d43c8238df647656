"""Dockerfile, Compose file and Helm chart, read and compared with the project."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stopwise.service.settings import SETTINGS
from stopwise.version import __version__
from tests.service.harness import served

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "stopwise"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
BUILD, FINAL = re.split(r"(?m)^FROM ", DOCKERFILE)[1:]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
TEMPLATES = {path.name: path.read_text("utf-8") for path in sorted((CHART / "templates").iterdir())}
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))


def settings_in(text: str) -> set[str]:
    return {name.lower() for name in re.findall(r"STOPWISE_([A-Z_]+)\b", text)}


def test_environment_variables_are_settings() -> None:
    texts = [DOCKERFILE, json.dumps(COMPOSE), *TEMPLATES.values()]
    for text in texts:
        assert settings_in(text) <= set(SETTINGS)
    assert settings_in(DOCKERFILE) >= {"store", "host", "keys"}


def test_the_image_has_no_compiler_and_does_not_run_as_root() -> None:
    assert "g++" in BUILD
    assert not re.search(r"g\+\+|gcc|apt-get|pip ", FINAL)
    user = re.findall(r"(?m)^USER (\S+)", FINAL)
    assert user == ["10001:10001"]
    assert FINAL.index("useradd") < FINAL.index("USER 10001")
    for path in ("/data", "/keys"):
        assert f'"{path}"' in FINAL.partition("VOLUME")[2].splitlines()[0]
    extras = re.findall(r"\[([a-z,]+)\]\"", BUILD)[0].split(",")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert all(re.search(rf"(?m)^{extra} = \[", project) for extra in extras)


def test_copied_files_exist_and_are_not_ignored() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    for line in re.findall(r"(?m)^COPY (?!--from)(.+)", DOCKERFILE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, source


def test_the_health_check_detects_a_stopped_service(tmp_path: Path) -> None:
    check = json.loads(FINAL.partition("CMD ")[2].splitlines()[0])
    command = [sys.executable, *check[1:]]

    def status(port: int) -> int:
        environment = os.environ | {"STOPWISE_PORT": str(port)}
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode

    with served(tmp_path) as running:
        assert status(running.port) == 0
        port = running.port
    assert status(port) == 1


def test_compose_references_exist() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), volume
            else:
                assert source in COMPOSE["volumes"], volume
        assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
        assert set(service.get("depends_on", {})) <= set(COMPOSE["services"])
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), port  # without TLS, only on loopback
    assert (DEPLOY / COMPOSE["services"]["service"]["build"]["dockerfile"]).name == "Dockerfile"
    assert COMPOSE["services"]["service"]["image"] == f"stopwise:{__version__}"
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    for name in prometheus["rule_files"]:
        assert (DEPLOY / "prometheus" / name).exists()
    (scraped,) = prometheus["scrape_configs"]
    assert scraped["job_name"] == "stopwise"  # as in the alerts
    assert scraped["static_configs"][0]["targets"] == ["service:8350"]
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["type"] == "prometheus"
    (provider,) = yaml.safe_load((provisioning / "dashboards/stopwise.yml").read_text())[
        "providers"
    ]
    mounts = COMPOSE["services"]["grafana"]["volumes"]
    assert any(f":{provider['options']['path']}/stopwise.json:" in mount for mount in mounts)


# -- the chart -----------------------------------------------------------------------------------


def leaves(values: dict[str, Any], before: str = "") -> set[str]:
    """Return the paths of all values; an empty object counts as one."""
    paths: set[str] = set()
    for name, value in values.items():
        deeper = isinstance(value, dict) and value and name != "resources"
        paths |= leaves(value, f"{before}{name}.") if deeper else {before + name}
    return paths


def test_the_chart_uses_exactly_the_values_in_its_file() -> None:
    text = "\n".join(TEMPLATES.values())
    assert set(re.findall(r"\.Values\.([\w.]+)", text)) == leaves(VALUES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_blocks_of_a_template_are_closed(name: str) -> None:
    text = TEMPLATES[name]
    actions = re.findall(r"{{-? *(.*?) *-?}}", text)
    assert text.count("{{") == text.count("}}") == len(actions)
    depth = 0
    for action in actions:
        assert action.count('"') % 2 == 0, action
        assert action.count("(") == action.count(")"), action
        word = action.split()[0]
        depth += {"if": 1, "with": 1, "range": 1, "define": 1, "end": -1}.get(word, 0)
        assert depth >= 0, action
    assert depth == 0
    defined = set(re.findall(r'define "([\w.]+)"', TEMPLATES["_helpers.tpl"]))
    assert set(re.findall(r'include "([\w.]+)"', text)) <= defined


def test_the_chart_has_the_version_and_the_probes_of_the_service() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["name"], chart["appVersion"]) == ("stopwise", __version__)
    deployment = TEMPLATES["deployment.yaml"]
    for part in ("path: /healthz", "path: /readyz", "runAsNonRoot: true", "tls.crt", "tls.key"):
        assert part in deployment
    assert "enableServiceLinks: false" in deployment
    assert {"tls_cert", "tls_key", "traces", "drain", "store", "keys"} <= settings_in(deployment)
