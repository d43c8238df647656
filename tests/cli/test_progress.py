"""Progress in plain lines: from time to time, and an honest time left."""

from stopwise.cli.progress import Lines


def test_a_line_for_every_tenth_or_every_ten_seconds_and_one_for_the_end() -> None:
    now, written = 0.0, list[str]()
    lines = Lines(written.append, lambda: now)
    lines.report("running", 0, 0)  # nothing to do
    for done in (*range(1001), 1000):
        lines.report("running", done, 1000)
        now += 0.01
    assert 10 <= len(written) <= 12
    assert written[0] == "running 0/1000, 0.0 s"
    assert written[-1] == "running 1000/1000, 10.0 s"

    written.clear()
    now = 100.0
    lines.report("drawing", 0, 10_000)
    for done in range(1, 4):
        now += 12.0
        lines.report("drawing", done, 10_000)
        lines.report("drawing", done, 10_000)  # too soon
    assert len(written) == 4
    assert written[1] == "drawing 1/10000, 12.0 s, about 1 d 9 h left"


def test_what_was_stored_before_does_not_count_as_fast_work() -> None:
    now, written = 0.0, list[str]()
    lines = Lines(written.append, lambda: now)
    lines.report("running", 900, 1000)
    now = 10.0
    lines.report("running", 910, 1000)
    assert written == ["running 900/1000, 0.0 s", "running 910/1000, 10.0 s, about 1 min 30 s left"]
