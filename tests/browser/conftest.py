"""Headless Chromium, driven by Selenium."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)


def _executable(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed; run `make browser`")
    return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = _executable("chromium")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chromium = webdriver.Chrome(options, Service(_executable("chromedriver")))
    yield chromium
    chromium.quit()


class Page:
    """A browser tab with a given screen width and colour scheme."""

    def __init__(self, chromium: webdriver.Chrome) -> None:
        self.chromium = chromium

    def open(self, path: Path | str, *, width: int = 1280, scheme: str = "light") -> None:
        self.chromium.get("about:blank")
        for log in ("browser", "performance"):
            self.chromium.get_log(log)  # reading clears it
        self._cdp(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._cdp("Emulation.setEmulatedMedia", {"features": [feature]})
        self.chromium.get(path if isinstance(path, str) else path.as_uri())

    def run(self, script: str) -> Any:
        return self.chromium.execute_script(script)

    def logs(self, kind: str) -> list[dict[str, Any]]:
        return self.chromium.get_log(kind)

    def screenshot(self) -> bytes:
        return self.chromium.get_screenshot_as_png()

    def _cdp(self, command: str, arguments: dict[str, Any]) -> None:
        self.chromium.execute_cdp_cmd(command, arguments)


@pytest.fixture
def page(browser: webdriver.Chrome) -> Page:
    return Page(browser)
