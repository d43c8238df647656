"""Progress in plain lines: now and then, and an honest time left."""

from stopwise.cli.progress import Lines


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_for_every_tenth_or_every_ten_seconds() -> None:
    said: list[str] = []
    clock = Clock()
    lines = Lines(said.append, clock)
    for done in range(1001):
        lines.report("running", done, 1000)
        clock.now += 0.01
    assert 10 <= len(said) <= 12
    assert said[0] == "running 0/1000, 0:00"
    assert said[-1] == "running 1000/1000, 0:10"

    said.clear()
    clock.now = 100.0
    lines.report("drawing", 0, 10_000)
    for done in range(1, 4):
        clock.now += 12.0
        lines.report("drawing", done, 10_000)
        lines.report("drawing", done, 10_000)  # too soon
    assert len(said) == 4
    assert said[1] == "drawing 1/10000, 0:12, about 33:19:48 left"


def test_what_was_stored_before_does_not_count_as_fast_work() -> None:
    said: list[str] = []
    clock = Clock()
    lines = Lines(said.append, clock)
    lines.report("running", 900, 1000)
    clock.now = 10.0
    lines.report("running", 910, 1000)
    assert said == ["running 900/1000, 0:00", "running 910/1000, 0:10, about 1:30 left"]


def test_nothing_to_do_is_not_worth_a_line() -> None:
    said: list[str] = []
    Lines(said.append).report("running", 0, 0)
    assert said == []


def test_the_end_is_said_once() -> None:
    said: list[str] = []
    lines = Lines(said.append, Clock())
    for _ in range(3):
        lines.report("running", 5, 5)
    assert said == ["running 5/5, 0:00"]
