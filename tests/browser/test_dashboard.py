"""The dashboard in a real browser, from a real server, as wide as a laptop and as a phone."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.seeing import CONTRASTS
from tests.service import harness
from tests.service.harness import keys_in

WIDTHS = (400, 1400)
SCREENS = [(width, scheme) for width in WIDTHS for scheme in ("light", "dark")]
OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
SECONDS = 30  # that a page may take to show what is new; it asks every few
ARMS = ["history", "glucose & insulin", "a <b>long</b> name of an arm that goes on and on"]
SPEC = {
    "name": "triage",
    "arms": [{"name": arm, "cost": cost} for arm, cost in zip(ARMS, (0.1, 0.3, 0.2), strict=True)],
    "context": ["age", "bmi"],
}


class Address(str):
    """Where to go, in the words of the browser's fixture."""

    __slots__ = ()

    def as_uri(self) -> str:
        return self


class Served:
    """A service, and its API as an admin."""

    def __init__(self, url: str, keys: dict[str, str]) -> None:
        self.url = url
        self.keys = keys
        headers = {"Authorization": f"Bearer {keys['admin']}"} if keys else {}
        self.api = httpx.Client(base_url=url, headers=headers, timeout=60)

    def post(self, path: str, body: Any) -> Any:
        answer = self.api.post(f"/v1/cascades{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def cascade(self, name: str) -> Any:
        return self.api.get(f"/v1/cascades/{name}").json()

    def open_round(self, x: float = 0.5) -> Any:
        return self.post("/triage/rounds", {"context": {"age": x, "bmi": -x}})

    def work(self, rounds: int) -> None:
        """Open rounds and report outputs, so that there is something to see."""
        rng = np.random.default_rng(7)
        for x in rng.uniform(-1, 1, rounds):
            made = self.open_round(float(x))
            wrong = rng.random(3) < (0.45 if x > 0 else 0.2, 0.02, 0.02)
            outputs = [bool(w) for w in wrong[: made["stop"] + 1]]
            self.post(f"/triage/rounds/{made['id']}/outputs", {"outputs": outputs})


@contextmanager
def served(folder: Path, *, keys: bool) -> Iterator[Served]:
    file, made = keys_in(folder) if keys else (None, {})
    with harness.served(folder, keys=file) as running:
        one = Served(running.url, made)
        yield one
        one.api.close()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without keys whose cascade has worked."""
    with served(tmp_path_factory.mktemp("busy"), keys=False) as one:
        one.post("", SPEC)
        one.work(150)
        yield one


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    """A service without keys that has nothing yet."""
    with served(tmp_path, keys=False) as one:
        yield one


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with keys."""
    with served(tmp_path_factory.mktemp("locked"), keys=True) as one:
        one.post("", SPEC)
        yield one


@pytest.fixture(autouse=True)
def stranger(page: Any) -> Iterator[None]:
    """Leave no session, and no page that goes on asking, to the next test."""
    yield
    page.chromium.delete_all_cookies()
    page.chromium.get("about:blank")


def wait_for(page: Any, script: str) -> Any:
    return WebDriverWait(page.chromium, SECONDS, 0.1).until(lambda _: page.run(f"return {script}"))


def asked(page: Any) -> list[str]:
    events = [json.loads(entry["message"])["message"] for entry in page.logs("performance")]
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


def click(page: Any, selector: str) -> None:
    """Click on something, wherever it is on the page."""
    page.run(f"document.querySelector({json.dumps(selector)}).click()")


def follow(page: Any, selector: str) -> None:
    """Click on something that leads to another page, and wait for that."""
    page.run("window.before = true")
    click(page, selector)
    wait_for(page, "!window.before && document.readyState === 'complete'")


def sign_in(page: Any, key: str) -> None:
    page.chromium.find_element(By.ID, "key").send_keys(key)
    follow(page, "button.primary")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_round_opened_through_the_api_appears(page: Any, busy: Served, width: int) -> None:
    page.open(Address(f"{busy.url}/cascades/triage"), width=width)
    before = page.run("return document.querySelector('#tiles .large').innerText")
    made = busy.open_round(0.125)
    name = f"round-{made['id']}"
    wait_for(page, f"document.getElementById('{name}') !== null")  # nobody reloads
    shown = page.run(f"return document.getElementById('{name}').innerText")
    assert made["arm"].split(" name")[0] in shown
    assert "Stop at arm" in shown
    after = page.run("return document.querySelector('#tiles .large').innerText")
    assert int(after) == int(before) + 1
    page.open(Address(busy.url), width=width)
    assert f"{int(after):,}" in page.run("return document.querySelector('.summaries').innerText")


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_nothing_complains_nothing_scrolls_sideways_and_all_can_be_read(
    page: Any, busy: Served, width: int, scheme: str
) -> None:
    for path in ("/", "/cascades/triage"):
        page.open(Address(busy.url + path), width=width, scheme=scheme)
        for unfold in ("", OPEN_ALL):
            page.run(unfold)
            assert page.run("return innerWidth") == width
            assert page.run("return document.documentElement.scrollWidth") <= width
            assert page.run(
                "return [...document.querySelectorAll('main *')].every(e => !e.checkVisibility() ||"
                " e.closest('.scroll, svg, .unseen, thead, pre') ||"
                " e.getBoundingClientRect().right <= innerWidth + 1)"
            )
        contrasts = page.run(CONTRASTS)
        assert len(contrasts) > 20
        assert min(contrasts)[0] >= 4.5, min(contrasts)
        assert page.logs("browser") == []


@pytest.mark.parametrize("width", WIDTHS)
def test_labels_of_a_young_cascade_do_not_touch(page: Any, locked: Served, width: int) -> None:
    name = f"young-{width}"
    locked.post("", {**SPEC, "name": name})
    made = locked.post(f"/{name}/rounds", {"context": [0.5, 0.5]})
    locked.post(f"/{name}/rounds/{made['id']}/outputs", {"outputs": [1, 1, 1]})
    page.open(Address(f"{locked.url}/cascades/{name}"), width=width)
    sign_in(page, locked.keys["decide"])
    rows = page.run(
        "return [...document.querySelectorAll('.along')].map(a => [...a.querySelectorAll('text')]"
        ".map(t => t.getBoundingClientRect()).map(r => [r.left, r.right]))"
    )
    assert len(rows) == 2  # depth and cost
    for row in rows:
        assert row
        assert all(left - right >= 4 for (_, right), (left, _) in pairwise(row))


def test_bars_are_as_long_as_the_shares(page: Any, busy: Served) -> None:
    page.open(Address(f"{busy.url}/cascades/triage"), width=1400)
    lengths = page.run(
        "return [...document.querySelectorAll('#tiles .shares rect:not(.groove)')].map(r =>"
        " r.getBoundingClientRect().width / r.closest('svg').getBoundingClientRect().width)"
    )
    stops = busy.cascade("triage")["stops"]
    shares = [n / sum(stops) for n in stops if n]
    assert lengths == pytest.approx(shares, abs=0.02)
    coloured = page.run(
        "return [...document.querySelectorAll('#depth g rect')].map(r => getComputedStyle(r).fill)"
    )
    assert len(set(coloured)) == len(shares)


def test_what_is_unfolded_and_focused_stays_so(page: Any, busy: Served) -> None:
    made = busy.open_round(0.25)
    page.open(Address(f"{busy.url}/cascades/triage"), width=1400)
    page.run(f"const s = document.getElementById('ask-{made['id']}'); s.focus(); s.click()")
    newer = busy.open_round(0.26)
    wait_for(page, f"document.getElementById('round-{newer['id']}') !== null")
    assert page.run(f"return document.getElementById('why-{made['id']}').open")
    assert page.run("return document.activeElement.id") == f"ask-{made['id']}"
    assert page.run(
        f"return document.getElementById('why-{made['id']}').querySelector('table')"
        ".checkVisibility()"
    )


def test_updates_can_be_paused_and_resumed(page: Any, busy: Served) -> None:
    page.open(Address(f"{busy.url}/cascades/triage"), width=1400)
    button = page.chromium.find_element(By.ID, "pause")
    button.click()
    assert "paused" in page.run("return document.getElementById('live').innerText")
    assert button.text.startswith("Resume")
    made = busy.open_round(0.75)
    asked(page)
    page.run("document.dispatchEvent(new Event('visibilitychange'))")
    assert page.run(f"return document.getElementById('round-{made['id']}')") is None
    button.click()
    wait_for(page, f"document.getElementById('round-{made['id']}') !== null")
    assert button.text.startswith("Pause")


@pytest.mark.slow
def test_a_hidden_page_asks_for_nothing(page: Any, busy: Served) -> None:
    page.open(Address(f"{busy.url}/cascades/triage"))
    page.run(
        "Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true});"
        "window.asked = 0; const real = window.fetch;"
        "window.fetch = (...a) => { window.asked += 1; return real(...a); };"
        "window.away = true; document.dispatchEvent(new Event('visibilitychange'));"
    )
    made = busy.open_round(-0.75)
    WebDriverWait(page.chromium, 10, 0.1).until(
        lambda _: page.run("return performance.now()") > 8_000  # two turns would have come
    )
    assert page.run("return window.asked") == 0
    page.run("window.away = false; document.dispatchEvent(new Event('visibilitychange'));")
    wait_for(page, f"document.getElementById('round-{made['id']}') !== null")


@pytest.mark.slow
def test_a_page_says_so_when_the_service_is_gone(page: Any, tmp_path: Path) -> None:
    with served(tmp_path, keys=False) as one:
        one.post("", SPEC)
        page.open(Address(one.url), width=1400)
    wait_for(page, "document.getElementById('live').innerText.includes('does not answer')")
    assert "triage" in page.run("return document.querySelector('main').innerText")


def test_it_works_without_a_script(page: Any, busy: Served) -> None:
    page.chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.open(Address(f"{busy.url}/cascades/triage"), width=1400)
        text = page.chromium.find_element(By.TAG_NAME, "body").text
        assert "Reload the page" in text
        assert "Recent rounds" in text
        assert not page.chromium.find_element(By.ID, "pause").is_displayed()
        click(page, "#recent summary")
        assert page.chromium.find_element(By.CSS_SELECTOR, "#recent table").is_displayed()
    finally:
        page.chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_from_nothing_to_the_first_round_by_typing_what_the_pages_show(
    page: Any, fresh: Served
) -> None:
    for width in WIDTHS[::-1]:
        page.open(Address(fresh.url), width=width)
        assert "No cascade yet" in page.run("return document.querySelector('main').innerText")
        assert page.run("return document.documentElement.scrollWidth") <= width
    _type(page.run("return document.querySelector('pre').innerText"))
    wait_for(page, "document.querySelector('a[href=\"/cascades/triage\"]') !== null")
    for width in WIDTHS[::-1]:
        page.open(Address(f"{fresh.url}/cascades/triage"), width=width)
        assert page.run("return document.documentElement.scrollWidth") <= width
    _type(page.run("return document.querySelector('pre').innerText"))
    wait_for(page, "document.querySelector('#unheard pre') !== null")
    (made,) = re.findall(r"round-(\S+)", page.run("return document.querySelector('.recent li').id"))
    command = page.run("return document.querySelector('#unheard pre').innerText")
    _type(command.replace("/ID/", f"/{made}/").replace("OUTPUT", "ill"))
    wait_for(page, "document.querySelector('#unheard pre') === null")
    assert "1 learned from" in page.run("return document.getElementById('tiles').innerText")
    assert page.logs("browser") == []


def _type(command: str) -> None:
    """Run a command that a page shows, in a shell."""
    assert command.startswith("curl ")
    done = subprocess.run(
        ["sh", "-c", f"{command} --fail-with-body -s -S"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("width", WIDTHS)
def test_a_key_that_may_only_look_changes_nothing(page: Any, locked: Served, width: int) -> None:
    page.open(Address(f"{locked.url}/cascades/triage"), width=width)
    assert page.chromium.current_url.startswith(f"{locked.url}/signin")
    shown = [i for i in page.chromium.find_elements(By.TAG_NAME, "input") if i.is_displayed()]
    assert [one.get_attribute("id") for one in shown] == ["key"]
    sign_in(page, locked.keys["decide"])
    assert page.chromium.current_url == f"{locked.url}/cascades/triage"
    assert page.run("return document.querySelector('.who').innerText") == "decide"
    assert page.run("return document.cookie") == ""  # scripts do not see it
    assert page.run("return document.documentElement.scrollWidth") <= width
    secret = locked.keys["decide"].split("_", 2)[2]
    assert secret not in page.chromium.page_source
    assert not any(secret in url for url in asked(page))
    assert page.logs("browser") == []
    follow(page, "form[action='/signout'] button")
    assert page.chromium.current_url == f"{locked.url}/signin"
