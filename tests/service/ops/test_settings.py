"""Settings: which source wins, what is refused, and that all of it is documented."""

from pathlib import Path

import msgspec
import pytest

from stopwise.errors import InvalidParameterError
from stopwise.service.settings import SETTINGS, Settings, load_settings, shown_store

DOCS = Path(__file__).parents[3] / "docs" / "service.md"


def written(folder: Path, text: str) -> Path:
    path = folder / "stopwise.toml"
    path.write_text(text, "utf-8")
    return path


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
    """A value that is not the default is read from each source that may have it."""
    if row.choices:
        value = next(one for one in row.choices if one != row.default)
    elif row.kind is str:
        value = "http://127.0.0.1/some/text"  # which is an address, too
    else:
        value = row.kind(row.default + 1)
    other = {"tls_cert": "tls_key", "tls_key": "tls_cert"}.get(row.name, "store")
    names = {"store": "other.db"} | {other: "other.pem", row.name: value}  # TLS needs both
    toml = "".join(f"{name} = {msgspec.json.encode(one).decode()}\n" for name, one in names.items())
    assert getattr(load_settings(written(tmp_path, toml), {}, {}), row.name) == value
    variables = {f"STOPWISE_{name.upper()}": str(one) for name, one in names.items()}
    assert getattr(load_settings(None, variables, {}), row.name) == value
    texts = {name: str(one) for name, one in names.items()}
    assert getattr(load_settings(None, {}, texts), row.name) == value


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PORT", "abc", ["'abc': must be a whole number. Port to listen on"]),
        ("PORT", "65536", ["'65536': must be a whole number of at most 65535."]),
        ("PORT", "tcp://10.0.0.1:8350", ["enableServiceLinks"]),
        ("FOLLOW_EVERY", "nan", ["'nan': must be a number of more than 0."]),
        ("STORE", "a\0b", ["must be text without a NUL character."]),
        ("LOG_REQUESTS", "xml", ["'xml': must be none or failed or all."]),
        ("PROT", "1", ["port"]),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str, words: list[str]) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        load_settings(None, {f"STOPWISE_{name}": value}, {})
    assert all(word in str(caught.value) for word in [f"STOPWISE_{name}", *words])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = '8350'", ["port is '8350': must be a whole number."]),
        ("port = true", ["port is True: must be a whole number."]),
        ("store = ''", ["store is '': must be a string of length at least 1."]),
        ("max-body = 5000", ["max-body", "max_body"]),
        ("port = ", []),
        ("tls_cert = 'cert.pem'", []),
    ],
)
def test_a_bad_file_is_named_with_the_key(tmp_path: Path, text: str, words: list[str]) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InvalidParameterError) as caught:
        load_settings(file, {}, {})
    where = ["tls_cert", "tls_key"] if "tls" in text else [str(file)]
    assert all(word in str(caught.value) for word in [*where, *words])
    with pytest.raises(InvalidParameterError, match=r"--max-body .*'10'"):
        load_settings(None, {}, {"max_body": "10"})  # a bad flag too


@pytest.mark.parametrize(
    "name", ["DEBUG", "CONFIG", "KEY", "URL", "SERVICE_HOST", "SERVICE_PORT", "PORT_8350_TCP_ADDR"]
)
def test_variables_of_others_are_left_alone(name: str) -> None:
    assert load_settings(None, {f"STOPWISE_{name}": "tcp://10.0.0.1:8350"}, {}) == Settings()


def test_the_defaults_are_allowed() -> None:
    """Limits and defaults do not contradict each other."""
    defaults = {name: row.default for name, row in SETTINGS.items() if row.default is not None}
    given = {f"STOPWISE_{name.upper()}": str(default) for name, default in defaults.items()}
    assert load_settings(None, given | {"PATH": "/bin"}, {"port": None}) == Settings()
    assert load_settings(None, {"STOPWISE_PORT": ""}, {}) == Settings()
    assert load_settings(None, {"STOPWISE_PORT": " 9000\n"}, {}).port == 9000


def test_the_documented_table_has_every_setting_and_nothing_else() -> None:
    lines = ["| setting | default | |", "|---|---|---|"]
    for row in SETTINGS.values():
        default = "–" if row.default is None else f"`{row.default}`"
        choices = f" ({', '.join(f'`{one}`' for one in row.choices)})" if row.choices else ""
        lines.append(f"| `{row.name}` | {default}{choices} | {row.help} |")
    assert "\n".join(lines) + "\n\n" in DOCS.read_text("utf-8")


def test_a_collector_without_a_scheme_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=r"traces is '127.0.0.1:4318'.*http://HOST"):
        load_settings(None, {"STOPWISE_TRACES": "127.0.0.1:4318"}, {})


def test_a_password_is_never_shown() -> None:
    for place in ("me:hush@db/x", "me:hu@sh:hush@db/x", "db/x?password=a@hush", "me:hush?a@[bad/x"):
        assert "hush" not in shown_store(f"postgresql://{place}")
    assert shown_store("postgresql://me:hush@db/x") == "postgresql://db/x"
