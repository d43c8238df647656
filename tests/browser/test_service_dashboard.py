"""The dashboard of a real service in a real browser, at the widths of a laptop and a phone."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.conftest import Page
from tests.browser.screens import INSIDE, check_layout, fetched
from tests.service.harness import Served, keys_in, served

WIDTHS = (400, 1400)
TIMEOUT = 30  # seconds for a page to show an update; it fetches one every 3 s
ARMS = ["history", "glucose & insulin", "a <b>long</b> name of an arm that goes on and on"]
SPEC = {
    "name": "triage",
    "arms": [{"name": arm, "cost": cost} for arm, cost in zip(ARMS, (0.1, 0.3, 0.2), strict=True)],
    "context": ["age", "bmi"],
    "policy": {"kind": "uss-laplace", "labels": 30, "explore": 0},
}
ROUNDS, PAGE = "/v1/cascades/triage/rounds", "/cascades/triage"


def open_round(running: Served, x: float = 0.5, key: str | None = None) -> Any:
    answer = running.post(ROUNDS, {"context": {"age": x, "bmi": -x}}, key=key)
    assert answer.is_success, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without keys, with a cascade of 150 rounds."""
    rng = np.random.default_rng(7)
    with served(tmp_path_factory.mktemp("busy")) as running:
        running.post("/v1/cascades", SPEC)
        for x in rng.uniform(-1, 1, 150):
            opened = open_round(running, float(x))
            wrong = rng.random(3) < (0.45 if x > 0 else 0.2, 0.02, 0.02)
            outputs = [bool(w) for w in wrong[: opened["stop"] + 1]]
            running.post(f"{ROUNDS}/{opened['id']}/outputs", {"outputs": outputs})
        yield running


def wait_for(page: Page, script: str) -> None:
    WebDriverWait(page.chromium, TIMEOUT, 0.1).until(lambda _: page.run(f"return {script}"))


def wait_for_round(page: Page, opened: Any) -> None:
    wait_for(page, f"document.getElementById('round-{opened['id']}') !== null")


def text_of(page: Page, selector: str) -> str:
    return page.run(f"return document.querySelector({json.dumps(selector)}).innerText")


def test_a_round_opened_through_the_api_appears(page: Page, busy: Served) -> None:
    page.open(busy.url + PAGE)
    before = int(text_of(page, "#tiles .large"))
    opened = open_round(busy, 0.125)
    wait_for_round(page, opened)
    shown = text_of(page, f"[id='round-{opened['id']}']")
    assert opened["arm"].split(" name")[0] in shown
    assert "Stop at arm" in shown
    assert int(text_of(page, "#tiles .large")) == before + 1
    page.open(busy.url)
    assert f"{before + 1:,}" in text_of(page, ".summaries")


def test_a_click_or_a_typed_answer_labels_a_round(page: Page, busy: Served) -> None:
    def wanted() -> int:
        return busy.get("/v1/cascades/triage/label-requests").json()["wanted"]

    before = wanted()
    page.open(f"{busy.url}{PAGE}/labels")
    chosen = page.chromium.find_element(By.CSS_SELECTOR, "[data-answer]")
    first = chosen.get_attribute("data-round")
    chosen.click()
    wait_for(page, f"document.getElementById('case-{first}') === null")
    typed = page.chromium.find_element(By.CSS_SELECTOR, "input[data-round]")
    second = typed.get_attribute("data-round")
    typed.send_keys("neither\n")
    wait_for(page, f"document.getElementById('case-{second}') === null")
    assert wanted() == before - 2
    assert busy.get(f"{ROUNDS}/{second}").json()["labelled"]


def test_checked_answers_label_a_round_by_arm(page: Page, busy: Served) -> None:
    page.open(f"{busy.url}{PAGE}/labels")
    unfold = page.chromium.find_element(By.CSS_SELECTOR, "[id^='several-'] summary")
    unfold.click()
    case = unfold.find_element(By.XPATH, "./..")
    boxes = case.find_elements(By.CSS_SELECTOR, "[data-arms]")
    boxes[0].click()
    mark = case.find_element(By.CSS_SELECTOR, "[data-mark]")
    labelled = mark.get_attribute("data-mark")
    mark.click()
    wait_for(page, f"document.getElementById('case-{labelled}') === null")
    view = busy.get(f"{ROUNDS}/{labelled}").json()
    assert view["labelled"]
    right = {
        arm: output == next(iter(view["outputs"].values()))
        for arm, output in view["outputs"].items()
    }
    again = busy.post(f"{ROUNDS}/{labelled}/label", {"right": right})
    assert again.json()["repeated"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_layout_has_no_errors_or_horizontal_scrolling(
    page: Page, busy: Served, width: int, scheme: str
) -> None:
    for path in ("/", PAGE, f"{PAGE}/labels"):
        page.open(busy.url + path, width=width, scheme=scheme)
        check_layout(page, width, INSIDE, texts=20)


def test_bar_lengths_equal_the_shares(page: Page, busy: Served) -> None:
    page.open(busy.url + PAGE, width=1400)
    lengths = page.run(
        "return [...document.querySelectorAll('#tiles .shares rect:not(.groove)')].map(r =>"
        " r.getBoundingClientRect().width / r.closest('svg').getBoundingClientRect().width)"
    )
    stops = busy.get("/v1/cascades/triage").json()["stops"]
    shares = [n / sum(stops) for n in stops if n]
    assert lengths == pytest.approx(shares, abs=0.02)
    coloured = page.run(
        "return [...document.querySelectorAll('#depth g rect')].map(r => getComputedStyle(r).fill)"
    )
    assert len(set(coloured)) == len(shares)


def test_updates_keep_open_details_and_can_be_paused(page: Page, busy: Served) -> None:
    opened = open_round(busy, 0.25)
    page.open(busy.url + PAGE, width=1400)
    page.run(f"const s = document.getElementById('ask-{opened['id']}'); s.focus(); s.click()")
    wait_for_round(page, open_round(busy, 0.26))
    assert page.run(f"return document.getElementById('why-{opened['id']}').open")
    assert page.run("return document.activeElement.id") == f"ask-{opened['id']}"
    button = page.chromium.find_element(By.ID, "pause")
    button.click()
    assert "paused" in text_of(page, "#live")
    assert button.text.startswith("Resume")
    opened = open_round(busy, 0.75)
    page.run("document.dispatchEvent(new Event('visibilitychange'))")
    assert page.run(f"return document.getElementById('round-{opened['id']}')") is None
    button.click()
    wait_for_round(page, opened)
    assert button.text.startswith("Pause")


@pytest.mark.slow
def test_a_page_reports_a_lost_connection(page: Page, tmp_path: Path) -> None:
    with served(tmp_path) as running:
        running.post("/v1/cascades", SPEC)
        page.open(running.url, width=1400)
    wait_for(page, "document.getElementById('live').innerText.includes('does not respond')")
    assert "triage" in text_of(page, "main")


def test_pages_work_without_scripts(page: Page, busy: Served) -> None:
    page.chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.open(busy.url + PAGE, width=1400)
        text = page.chromium.find_element(By.TAG_NAME, "body").text
        assert "Reload the page" in text
        assert "Recent rounds" in text
        assert not page.chromium.find_element(By.ID, "pause").is_displayed()
        page.run("document.querySelector('#recent summary').click()")
        assert page.chromium.find_element(By.CSS_SELECTOR, "#recent table").is_displayed()
    finally:
        page.chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_commands_shown_on_the_pages_work(page: Page, tmp_path: Path) -> None:
    def open_at(path: str) -> None:
        for width in WIDTHS[::-1]:
            page.open(running.url + path, width=width)
            assert page.run("return document.documentElement.scrollWidth") <= width

    with served(tmp_path) as running:
        open_at("/")
        assert "No cascades yet" in text_of(page, "main")
        _type(text_of(page, "pre"))
        wait_for(page, "document.querySelector('a[href=\"/cascades/triage\"]') !== null")
        open_at(PAGE)
        _type(text_of(page, "pre"))
        wait_for(page, "document.querySelector('#no-outputs pre') !== null")
        (id_,) = re.findall(
            "round-(.+)", page.run("return document.querySelector('.recent li').id")
        )
        command = text_of(page, "#no-outputs pre")
        _type(command.replace("/ID/", f"/{id_}/").replace("OUTPUT", "ill"))
        wait_for(page, "document.querySelector('#no-outputs pre') === null")
        assert "1 learned" in text_of(page, "#tiles")
        assert page.logs("browser") == []


def _type(command: str) -> None:
    """Run a command shown on a page."""
    assert command.startswith("curl ")
    command = f"{command} --fail-with-body -s -S"
    done = subprocess.run(["sh", "-c", command], check=False, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_key_gives_access_and_does_not_leak(page: Page, tmp_path: Path) -> None:
    file, keys = keys_in(tmp_path)
    key = keys["decide"]
    with served(tmp_path, keys=file) as running:
        running.post("/v1/cascades", SPEC, key=keys["admin"])
        page.open(running.url.replace("://", f"://any:{key}@") + PAGE)  # as typed into the prompt
        assert text_of(page, ".who") == "decide"
        page.open(running.url + PAGE, width=400)  # the browser remembers it, for updates too
        wait_for_round(page, open_round(running, key=key))
        assert page.run("return document.documentElement.scrollWidth") <= 400
        secret = key.split("_", 2)[2]
        assert secret not in page.chromium.page_source
        urls = fetched(page)
        assert urls
        assert not any(secret in url for url in urls)
        assert page.logs("browser") == []
