"""The dashboard of a proxy in a real browser: shadow mode, and a stage that fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.proxy_upstreams import Upstream
from stopwise.proxy.report import MIN_ROUNDS
from tests.browser.conftest import Page
from tests.browser.screens import INSIDE, check_layout
from tests.proxy.proxy_harness import FaultyUpstream, RunningProxy, running_proxy, stage

TEXT = "the invoice is wrong"


@pytest.fixture(scope="module")
def shadow(tmp_path_factory: Any) -> Iterator[RunningProxy]:
    """A proxy with a cascade that has an estimate, one whose stage fails, and a new one."""
    small, large, faulty = (
        Upstream(wrong_at_times),
        Upstream(lambda _: ("billing", -0.1)),
        FaultyUpstream(),
    )
    folder: Path = tmp_path_factory.mktemp("shadow")
    works = [stage("small", small, 0.01), stage("large", large, 0.3)]
    cascades = {"works": works, "fails": [stage("500", faulty, 0.01), works[1]], "new": works}
    policy = {"kind": "uss-laplace", "labels": 100}
    with running_proxy(folder, cascades, sample=1.0, policy=policy) as running:
        for k in range(MIN_ROUNDS):
            message = [{"role": "user", "content": f"{TEXT} {k}"}]
            running.chat({"model": "works", "messages": message})
        for _ in range(5):
            running.chat({"model": "fails"})
        running.wait_for("shadowed", MIN_ROUNDS)
        running.wait_for("shadow failed", 5)
        rounds = running.get("/v1/cascades/works/label-requests").json()["rounds"]
        for round_ in rounds[:10]:
            place = f"/v1/cascades/works/rounds/{round_['id']}/label"
            running.post(place, {"label": "of another world"})
        assert running.get("/cascades/works/shadow").status_code == 200  # a report is made for it
        yield running
    for server in (small, large, faulty):
        server.close()


def wrong_at_times(text: str) -> tuple[str, float]:
    return ("account" if int(text.rsplit(maxsplit=1)[-1]) % 3 == 0 else "billing"), -0.2


def text_of(page: Page, selector: str) -> str:
    return page.run(f"return document.querySelector('{selector}').innerText")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_shadow_mode_can_be_read(page: Page, shadow: RunningProxy, width: int, scheme: str) -> None:
    page.open(f"{shadow.url}/cascades/works", width=width, scheme=scheme)
    assert text_of(page, ".badge") == "shadow"
    tiles = text_of(page, "#tiles").replace("\xa0", " ")
    for words in (
        "Rounds in shadow mode",
        "Switching on would save",
        "Requests would end at",
        "(90 %)",
    ):
        assert words in tiles
    assert "Labels match no arm" in text_of(page, "#banner")
    page.open(f"{shadow.url}/cascades/fails", width=width, scheme=scheme)
    assert "5 rounds began, but the first stage has not answered in any" in text_of(page, "#blank")
    for path in (
        "/",
        "/cascades/works",
        "/cascades/fails",
        "/cascades/new",
        "/cascades/works/labels",
    ):
        page.open(shadow.url + path, width=width, scheme=scheme)
        check_layout(page, width, INSIDE, texts=10)
