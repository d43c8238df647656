"""What the pages mention exists, and every public name, option and setting is on some page.

The settings of the service and its metrics are compared with their tables in
``tests/service/ops``, the options of the proxy in ``test_documented_facts.py``.
"""

import importlib.util
import re
from functools import cache
from typing import Any

import msgspec
import pytest
from typer.main import get_command

import stopwise as sw
from stopwise import research
from stopwise.cli.main import app
from stopwise.proxy import config
from stopwise.service.settings import SETTINGS
from tests.site.pages import PACKAGE, ROOT, TEXTS, is_mentioned, mentions

CREATED_BY_THE_READER = {
    "policies/greedy.py",
    "benchmarks/results/arena",
    "proxy-report/assistant-rounds.jsonl",
}
# Identifiers of other programs, and of data in examples.
FOREIGN = {
    "blood_pressure",
    "general_settings",
    "held_labels",
    "large_ok",
    "parentbased_traceidratio",
    "pg_restore",
    "sample_weight",
    "skin_thickness",
    "small_ok",
}
SOURCES = {".py", ".cpp", ".h", ".js", ".html", ".toml", ".yml", ".yaml", ".json", ".txt", ".sh"}


@cache
def commands() -> dict[str, set[str]]:
    """Return the options of each command."""
    options: dict[str, set[str]] = {}

    def collect(command: Any, name: str) -> None:
        options[name] = {option for param in command.params for option in param.opts}
        for inner_name, inner in getattr(command, "commands", {}).items():
            collect(inner, f"{name} {inner_name}")

    collect(get_command(app), "stopwise")
    options["stopwise proxy"] |= options["stopwise proxy run"]  # "run" is optional
    return options


@cache
def words_of_the_repository() -> set[str]:
    """Return the words of all sources, and the names of files."""
    paths = [path for name in ("Makefile", "CMakeLists.txt") for path in ROOT.glob(name)]
    for folder in ("src", "tests", "benchmarks", "examples", "deploy", ".github", ".ci", "docs"):
        paths += [path for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES]
    words = {path.stem for path in paths}
    for path in paths:
        words.update(re.findall(r"\w+", path.read_text("utf-8")))
    return words


@pytest.mark.parametrize(("prefix", "module"), [("sw", sw), ("research", research)])
def test_names_of_the_package_exist(prefix: str, module: Any) -> None:
    names = mentions(rf"\b{prefix}\.([A-Za-z_]\w*)")
    assert len(names) > 20
    assert [(page, name) for page, name in names if not hasattr(module, name)] == []


def test_identifiers_in_backticks_exist() -> None:
    """Snake case and camel case: `context_dim`, `LogWriter.close()`."""
    quoted = mentions(r"(?<!`)`([^`\n]+)`(?!`)")
    identifier = re.compile(
        r"(?<![\w/.-])(?:[a-z]+_[a-z_\d]+|[A-Z][a-z]+(?:[A-Z][a-z]+)+)(?![\w/-])"
    )
    names = [(page, name) for page, text in quoted for name in identifier.findall(text)]
    assert len(names) > 300
    existing = words_of_the_repository() | FOREIGN
    unknown = {(page, name) for page, name in names if name not in existing}
    assert sorted(item for item in unknown if not item[1].startswith("stopwise_")) == []  # metrics


def test_files_exist() -> None:
    """In backticks, a path below a folder of the repository or of the package."""
    folders = [path for base in (ROOT, PACKAGE) for path in base.iterdir() if path.is_dir()]
    first = {path.name for path in folders if not path.name.startswith(".")} - {"build", "dist"}
    paths = [
        (page, path)
        for page, path in mentions(r"`([\w-]+/[\w./-]+)`")
        if path.partition("/")[0] in first
    ]
    assert len(paths) > 100
    missing = [
        (page, path)
        for page, path in paths
        if path not in CREATED_BY_THE_READER
        and not any((base / path).exists() for base in (ROOT, PACKAGE))
    ]
    assert missing == []


def test_commands_and_their_options_exist() -> None:
    lines = mentions(r"^(?:\$ )?(stopwise (?:[^#\n\\]|\\\n)+)") + mentions(r"`(stopwise [^`\n]+)`")
    assert len(lines) > 50
    wrong: list[tuple[str, str]] = []
    for page, line in lines:
        name = "stopwise"
        for word in line.split()[1:]:
            if f"{name} {word}" not in commands():
                break
            name = f"{name} {word}"
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line))
        if not options <= commands()[name] | {"--help"} or (name == "stopwise" and not options):
            wrong.append((page, line))
    assert wrong == []


def test_make_targets_modules_and_scripts_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    existing = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    targets = mentions(r"(?:`|^)make ([a-z-]+)(?=[` \n])")
    assert len(targets) > 10
    assert [(page, target) for page, target in targets if target not in existing] == []
    modules = mentions(r"python -m (benchmarks[\w.]*|stopwise[\w.]*|docs[\w.]*)")
    assert len(modules) > 10
    missing = [
        (page, name) for page, name in modules if importlib.util.find_spec(name.rstrip(".")) is None
    ]
    assert missing == []
    scripts = mentions(r"python (examples/[\w.]+\.py)")
    assert [(page, path) for page, path in scripts if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("module", [sw, research])
def test_every_public_name_is_on_a_page(module: Any) -> None:
    names = getattr(module, "_MODULES", None) or vars(module)
    public = [name for name in names if not name.startswith("_")]
    assert len(public) > 10
    assert [name for name in public if not is_mentioned(name)] == []


def test_every_command_is_on_a_page_with_its_options() -> None:
    """An option counts if a page that has the command has it too, or the setting of its name."""
    missing: list[str] = []
    for command, options in commands().items():
        pages = [text for text in TEXTS.values() if re.search(rf"\b{command}\b", text)]
        if not pages:
            missing.append(command)
        for option in sorted(options):
            if option.startswith("--") and option != "--help":
                setting = option.removeprefix("--").replace("-", "_")
                wanted = rf"(?<![\w-]){option}(?![\w-])"
                pattern = re.compile(f"{wanted}|`{setting}`" if setting in SETTINGS else wanted)
                if not any(pattern.search(text) for text in pages):
                    missing.append(f"{command} {option}")
    assert missing == []


@pytest.mark.parametrize(
    "table", [config.StageConfig, config.CascadeConfig, config.EmbeddingConfig, config.Limits]
)
def test_every_key_of_the_configuration_of_the_proxy_is_on_a_page(table: Any) -> None:
    keys = [field.name for field in msgspec.structs.fields(table)]
    assert [key for key in keys if not is_mentioned(key)] == []
