"""Settings: precedence of the sources, validation, documentation."""

from pathlib import Path

import msgspec
import pytest

from stopwise.errors import InvalidParameterError
from stopwise.service.settings import SETTINGS, Setting, Settings, load_settings, redacted_store

DOCS = Path(__file__).parents[3] / "docs" / "service.md"


def write_toml(folder: Path, text: str) -> Path:
    path = folder / "stopwise.toml"
    path.write_text(text, "utf-8")
    return path


def test_options_override_variables_and_variables_override_the_file(tmp_path: Path) -> None:
    file = write_toml(tmp_path, 'port = 1\nhost = "::1"\nmax_batch = 7\nfollow_every = 2\n')
    environment = {"STOPWISE_PORT": "2", "STOPWISE_MAX_BATCH": "8"}
    settings = load_settings(file, environment, {"port": "3", "host": None})
    assert (settings.port, settings.max_batch, settings.host) == (3, 8, "::1")
    assert settings.follow_every == 2.0
    assert isinstance(settings.follow_every, float)
    assert settings.snapshot_every == Settings().snapshot_every


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_setting_can_come_from_every_source(tmp_path: Path, setting: Setting) -> None:
    if setting.choices:
        value = next(choice for choice in setting.choices if choice != setting.default)
    elif setting.kind is str:
        value = "http://127.0.0.1/some/text"  # also valid for `traces`
    else:
        value = setting.kind(setting.default + 1)
    other = {"tls_cert": "tls_key", "tls_key": "tls_cert"}.get(setting.name, "store")
    values = {"store": "other.db", other: "other.pem", setting.name: value}  # TLS needs both files
    toml = "".join(
        f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in values.items()
    )
    assert getattr(load_settings(write_toml(tmp_path, toml), {}, {}), setting.name) == value
    variables = {f"STOPWISE_{name.upper()}": str(value) for name, value in values.items()}
    assert getattr(load_settings(None, variables, {}), setting.name) == value
    flags = {name: str(value) for name, value in values.items()}
    assert getattr(load_settings(None, {}, flags), setting.name) == value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PORT", "abc", "STOPWISE_PORT must be an integer, got 'abc'. Port to listen on"),
        ("PORT", "65536", "STOPWISE_PORT must be an integer <= 65535, got '65536'."),
        ("PORT", "tcp://10.0.0.1:8350", "set enableServiceLinks: false."),
        ("FOLLOW_EVERY", "nan", "STOPWISE_FOLLOW_EVERY must be a number > 0, got 'nan'"),
        ("STORE", "a\0b", "STOPWISE_STORE must be text without a NUL character"),
        (
            "LOG_REQUESTS",
            "xml",
            "STOPWISE_LOG_REQUESTS must be none or failed or all, got 'xml'. Requests to log.",
        ),
        ("PROT", "1", "STOPWISE_PROT: unknown setting; did you mean 'port'?"),
    ],
)
def test_an_invalid_variable_is_reported(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=rf"STOPWISE_{name}\b") as caught:
        load_settings(None, {f"STOPWISE_{name}": value}, {})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = '8350'", "stopwise.toml: port must be an integer, got '8350'."),
        ("port = true", "stopwise.toml: port must be an integer, got True."),
        ("store = ''", "stopwise.toml: store must be a string of length >= 1, got ''."),
        ("max-body = 5000", "max-body: unknown setting; did you mean 'max_body'?"),
        ("port = ", "cannot read the settings in"),
    ],
)
def test_an_invalid_file_is_reported_with_the_setting(
    tmp_path: Path, text: str, message: str
) -> None:
    file = write_toml(tmp_path, text)
    with pytest.raises(InvalidParameterError) as caught:
        load_settings(file, {}, {})
    assert str(file) in str(caught.value)
    assert message in str(caught.value)


def test_an_invalid_option_is_reported() -> None:
    with pytest.raises(InvalidParameterError, match=r"--max-body .*'10'"):
        load_settings(None, {}, {"max_body": "10"})


def test_a_certificate_requires_its_key() -> None:
    with pytest.raises(InvalidParameterError, match="set both tls_cert and tls_key, or neither"):
        load_settings(None, {}, {"tls_cert": "cert.pem"})


@pytest.mark.parametrize(
    "name", ["DEBUG", "CONFIG", "KEY", "URL", "SERVICE_HOST", "SERVICE_PORT", "PORT_8350_TCP_ADDR"]
)
def test_unrelated_variables_are_ignored(name: str) -> None:
    assert load_settings(None, {f"STOPWISE_{name}": "tcp://10.0.0.1:8350"}, {}) == Settings()


def test_the_defaults_are_valid() -> None:
    defaults = {
        f"STOPWISE_{name.upper()}": str(setting.default)
        for name, setting in SETTINGS.items()
        if setting.default is not None
    }
    assert load_settings(None, defaults | {"PATH": "/bin"}, {"port": None}) == Settings()
    assert load_settings(None, {"STOPWISE_PORT": ""}, {}) == Settings()
    assert load_settings(None, {"STOPWISE_PORT": " 9000\n"}, {}).port == 9000


def test_the_documented_table_equals_the_settings() -> None:
    lines = ["| setting | default | |", "|---|---|---|"]
    for setting in SETTINGS.values():
        default = "–" if setting.default is None else f"`{setting.default}`"
        choices = ", ".join(f"`{choice}`" for choice in setting.choices)
        choices = f" ({choices})" if choices else ""
        lines.append(f"| `{setting.name}` | {default}{choices} | {setting.help} |")
    assert "\n".join(lines) + "\n\n" in DOCS.read_text("utf-8")


def test_a_collector_requires_a_scheme() -> None:
    with pytest.raises(InvalidParameterError, match=r"traces must .*http://HOST.*127.0.0.1:4318"):
        load_settings(None, {"STOPWISE_TRACES": "127.0.0.1:4318"}, {})


@pytest.mark.parametrize(
    "address", ["me:hush@db/x", "me:hu@sh:hush@db/x", "db/x?password=a@hush", "me:hush?a@[bad/x"]
)
def test_a_password_is_redacted(address: str) -> None:
    assert "hush" not in redacted_store(f"postgresql://{address}")


def test_a_redacted_store_keeps_host_and_database() -> None:
    assert redacted_store("postgresql://me:hush@db/x") == "postgresql://db/x"
