"""Settings: which source wins, what is refused, and that all of it is documented."""

import math
from pathlib import Path

import msgspec
import pytest

from stopwise.errors import InvalidParameterError
from stopwise.service.settings import SETTINGS, Settings, load_settings, settings_table, shown_store

DOCS = Path(__file__).parents[3] / "docs" / "service.md"


def written(folder: Path, text: str) -> Path:
    path = folder / "stopwise.toml"
    path.write_text(text, "utf-8")
    return path


def test_nothing_said_gives_the_defaults() -> None:
    assert load_settings(None, {}, {}) == Settings()
    assert load_settings(None, {"PATH": "/bin", "STOPWISE_PORT": ""}, {"port": None}) == Settings()


def test_later_sources_win_one_by_one(tmp_path: Path) -> None:
    file = written(tmp_path, 'port = 1\nhost = "::1"\nmax_batch = 7\nfollow_every = 2\n')
    environment = {"STOPWISE_PORT": "2", "STOPWISE_MAX_BATCH": "8"}
    found = load_settings(file, environment, {"port": "3", "host": None})
    assert (found.port, found.max_batch, found.host) == (3, 8, "::1")
    assert found.follow_every == 2.0
    assert isinstance(found.follow_every, float)
    assert found.snapshot_every == Settings().snapshot_every


@pytest.mark.parametrize("row", SETTINGS.values(), ids=lambda row: row.name)
def test_every_setting_can_come_from_every_source(tmp_path: Path, row) -> None:
    """A value that is not the default arrives unharmed from each source that may say it."""
    if row.choices:
        value = next(one for one in row.choices if one != row.default)
    elif row.kind is str:
        value = "some text that is long"
    else:
        value = row.kind(row.default + 1)
    line = f"{row.name} = {msgspec.json.encode(value).decode()}\n"
    assert getattr(load_settings(written(tmp_path, line), {}, {}), row.name) == value
    assert getattr(load_settings(None, {row.variable: str(value)}, {}), row.name) == value
    if row.flag:
        assert getattr(load_settings(None, {}, {row.name: str(value)}), row.name) == value
        assert getattr(load_settings(None, {}, {row.name: value}), row.name) == value


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {"STOPWISE_PORT": "abc"},
            "STOPWISE_PORT is 'abc': must be a whole number from 0 to 65535",
        ),
        ({"STOPWISE_PORT": "65536"}, "STOPWISE_PORT is '65536'"),
        ({"STOPWISE_PORT": "-1"}, "STOPWISE_PORT is '-1'"),
        ({"STOPWISE_PORT": "8e3"}, "STOPWISE_PORT is '8e3'"),
        ({"STOPWISE_PORT": "tcp://10.0.0.1:8350"}, "enableServiceLinks"),
        ({"STOPWISE_FOLLOW_EVERY": "nan"}, "STOPWISE_FOLLOW_EVERY is 'nan'"),
        ({"STOPWISE_FOLLOW_EVERY": "inf"}, "must be a number above 0"),
        ({"STOPWISE_FOLLOW_EVERY": "0"}, "must be a number above 0"),
        ({"STOPWISE_LOG_FORMAT": "xml"}, "STOPWISE_LOG_FORMAT is 'xml': must be json or text"),
        ({"STOPWISE_LOG_CONTEXTS": "Hashed"}, "must be none, hashed or plain"),
        ({"STOPWISE_PROT": "1"}, "STOPWISE_PROT is no setting: did you mean STOPWISE_PORT"),
        ({"STOPWISE_MAXBODY": "1"}, "did you mean STOPWISE_MAX_BODY"),
        ({"STOPWISE_SNAPSHOT_EACH": "1"}, "did you mean STOPWISE_SNAPSHOT_EVERY"),
    ],
)
def test_a_bad_variable_is_named(environment: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        load_settings(None, environment, {})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = '8350'", "port is '8350': must be a whole number"),
        ("port = 1.5", "port is 1.5"),
        ("port = true", "port is True"),
        ("port = [1]", "port is [1]"),
        ("store = 5", "store is 5: must be text"),
        ("store = ''", "store is ''"),
        ("follow_every = nan", "follow_every is nan"),
        ("Port = 1", "'Port' is no setting: did you mean port?"),
        ("max-body = 5000", "did you mean max_body?"),
        ("[server]\nport = 1", "'server' is no setting"),
        ("port = ", "is not TOML"),
    ],
)
def test_a_bad_file_is_named_with_the_key(tmp_path: Path, text: str, words: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InvalidParameterError) as caught:
        load_settings(file, {}, {})
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=r"nowhere\.toml"):
        load_settings(tmp_path / "nowhere.toml", {}, {})


def test_a_bad_flag_is_named_as_it_is_typed() -> None:
    with pytest.raises(InvalidParameterError, match=r"--max-body is '10': must be a whole number"):
        load_settings(None, {}, {"max_body": "10"})


@pytest.mark.parametrize(
    "name", ["DEBUG", "CONFIG", "KEY", "URL", "SERVICE_HOST", "SERVICE_PORT", "PORT_8350_TCP_ADDR"]
)
def test_variables_of_others_are_left_alone(name: str) -> None:
    assert load_settings(None, {f"STOPWISE_{name}": "tcp://10.0.0.1:8350"}, {}) == Settings()


def test_a_secret_has_no_flag_and_is_not_repeated() -> None:
    assert SETTINGS["log_salt"].flag == ""
    with pytest.raises(InvalidParameterError) as caught:
        load_settings(None, {"STOPWISE_LOG_SALT": "hush hush"}, {})
    assert "STOPWISE_LOG_SALT" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_defaults_are_allowed() -> None:
    """Each default, said aloud, is accepted: limits and defaults do not contradict each other."""
    said = {row.variable: str(row.default) for row in SETTINGS.values() if row.default is not None}
    assert load_settings(None, said, {}) == Settings()
    assert all(math.isfinite(row.default) for row in SETTINGS.values() if row.kind is float)


@pytest.mark.parametrize("row", SETTINGS.values(), ids=lambda row: row.name)
def test_every_setting_is_documented(row) -> None:
    lines = [line for line in DOCS.read_text("utf-8").splitlines() if f"`{row.name}`" in line]
    table = [line for line in settings_table().splitlines() if line.startswith(f"| `{row.name}` ")]
    assert table[0] in lines, f"docs/service.md must have the line {table[0]}"


def test_the_documented_table_has_nothing_else() -> None:
    assert settings_table() in DOCS.read_text("utf-8")


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://me:hush@db/stopwise",
        "postgresql://me:hu@sh:hush@db/stopwise",
        "postgres://db/stopwise?user=me&password=hush",
        "postgresql://me:hush@[bad/stopwise",
    ],
)
def test_a_password_is_never_shown(store: str) -> None:
    assert "hush" not in shown_store(store)
