"""Dashboard pages of a proxy: shadow mode, failed rounds, and context columns."""

import re
from pathlib import Path
from typing import Any

import pytest

from examples.proxy_upstreams import Upstream
from examples.text_cascade import tickets
from stopwise.proxy import shadow_page
from stopwise.proxy.report import MIN_ROUNDS, Report
from tests.proxy.proxy_harness import FaultyUpstream, RunningProxy, running_proxy, stage, stages
from tests.service.dashboard.sample import ParsedPage

ROUNDS = MIN_ROUNDS + 20


def text_of(proxy: RunningProxy, path: str) -> str:
    page = proxy.get(path)
    assert page.status_code == 200, page.text
    return ParsedPage(page.text).text


def wait_for_text(proxy: RunningProxy, path: str, text: str) -> str:
    """Wait until a page contains a text; reports run in the background."""
    while text not in (shown := text_of(proxy, path)):
        pass
    return shown


def test_pages_show_shadow_mode_and_its_savings(
    models: list[Upstream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_page, "MAX_AGE", 0.0)  # a first report may run too early
    compare = "choice:account|billing|outage"
    with running_proxy(tmp_path, stages(models), sample=1.0, compare=compare) as proxy:
        shown = text_of(proxy, "/cascades/tickets")
        assert "chat/completions" in shown  # not how to open a round
        for ticket in tickets(ROUNDS, seed=3):
            proxy.chat({"messages": [{"role": "user", "content": ticket.text}]})
        proxy.wait_for("shadowed", ROUNDS)
        report = text_of(proxy, "/cascades/tickets/shadow")
        (saved,) = re.findall(r"Saved (\S+ %)", report)
        # The other pages show the report of the shadow page.
        shown = wait_for_text(proxy, "/cascades/tickets", f"Switching on would save {saved}")
        assert re.search(r"tickets (active )?shadow", shown)
        assert "Shadow mode: phrases answers every request." in shown
        assert "Cost of a request 0.25 now, with every request answered by phrases" in shown
        assert f"Rounds in shadow mode {ROUNDS}" in shown
        assert "Requests would end at keywords" in shown
        assert "of the cost of always running the last arm" not in shown
        overview = text_of(proxy, "/")
        assert "tickets shadow" in overview
        assert f"switching on would save {saved}" in overview
        assert "nothing saved" not in overview
    on = tmp_path / "on"
    on.mkdir()
    with running_proxy(on, stages(models), mode="on", sample=1.0) as proxy:
        proxy.chat()
        assert "hadow" not in text_of(proxy, "/cascades/tickets")
        assert "hadow" not in text_of(proxy, "/")


@pytest.mark.parametrize("mode", ["shadow", "on"])
def test_failed_rounds_do_not_count_as_savings(
    models: list[Upstream], faulty: FaultyUpstream, tmp_path: Path, mode: str
) -> None:
    cascade = [stage("keywords", models[0], 0.01), stage("500", faulty, 0.1), stages(models)[2]]
    policy = {"kind": "uss-anchor", "forced_rounds": 1000}
    with running_proxy(tmp_path, cascade, mode=mode, sample=1.0, policy=policy) as proxy:
        for _ in range(5):
            proxy.chat()
        proxy.wait_for("shadow failed" if mode == "shadow" else "stage failed", 5)
        counts = proxy.service.state.cascades["tickets"].counts
        while sum(counts.early_total) < 5:
            text_of(proxy, "/")  # rounds end in the background
        for path in ("/", "/cascades/tickets"):
            shown = text_of(proxy, path)
            assert "% saved" not in shown
            assert not re.search(r"Saved \d", shown)
        shown = text_of(proxy, "/cascades/tickets")
        assert "5 ended early" in shown
        assert "Where rounds stop keywords 100 %" not in shown


def test_label_requests_show_the_names_of_all_columns(
    models: list[Upstream], tmp_path: Path
) -> None:
    more: Any = {"labels": 50, "compare": "choice:account|billing|outage"}
    (tmp_path / "embed_dashboard.py").write_text("def embed(text):\n    return [0.5, 0.25]\n")
    more |= {"embedding": {"python": "embed_dashboard:embed", "size": 2}}
    with running_proxy(tmp_path, stages(models), mode="on", **more) as proxy:
        ticket = "hey this is not about invoice but about login thanks"  # the stages disagree
        proxy.chat({"messages": [{"role": "user", "content": ticket}]})
        page = proxy.get("/cascades/tickets/labels").text
        named = re.findall(r'<span class="soft">([^<]+)</span> <b>', page)
        first = ["length", "turns", "tools", "schema"]
        first += ["embedding 0 (seed 0)", "embedding 1 (seed 0)", "embedded"]
        revealed = ["mean log-probability", "minimum log-probability", "has log-probabilities"]
        revealed += ["length", "refusal"]
        of_arms = [f"{arm}: {name}" for arm in ("keywords", "words") for name in revealed]
        assert named == [*first, *of_arms]


def test_a_report_expires_although_the_clock_was_set_back(
    models: list[Upstream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[float] = []
    clocks = {"time": 2_000_000_000.0, "monotonic": 1000.0}

    async def reported(page: shadow_page.ShadowPage) -> list[Report]:
        made.append(clocks["time"])
        return []

    class Time:
        time = staticmethod(lambda: clocks["time"])
        monotonic = staticmethod(lambda: clocks["monotonic"])

    monkeypatch.setattr(shadow_page.ShadowPage, "_run_report", reported)
    monkeypatch.setattr(shadow_page, "time", Time)
    with running_proxy(tmp_path, stages(models)) as proxy:
        for back in (0.0, 0.0, 864_000.0):
            clocks["time"] -= back
            clocks["monotonic"] += shadow_page.MAX_AGE if back else 0.0
            assert proxy.get("/cascades/tickets/shadow").status_code == 200
        assert made == [2_000_000_000.0, 2_000_000_000.0 - 864_000.0]
