from __future__ import annotations

import time

from durable_adk.engine.ports import Clock
from durable_adk.store import clock as module
from durable_adk.store.clock import Elapsed, LocalClock, ManualClock, ServerClock


def test_every_clock_has_the_shape_of_the_port() -> None:
    clocks: list[Clock] = [ServerClock(), ManualClock(), LocalClock()]
    assert all(clock.elapsed() >= 0 for clock in clocks)


def test_the_server_clock_asks_the_server_and_sends_the_offset() -> None:
    clock = ServerClock()
    assert clock.now() == {"$toLong": "$$NOW"}
    clock.advance(5_000)
    assert clock.now() == {"$add": [{"$toLong": "$$NOW"}, 5_000]}
    assert clock.estimate() >= time.time() * 1000 + 4_000


def test_moving_a_clock_moves_what_deadlines_are_measured_with() -> None:
    for clock in (ServerClock(), ManualClock(), LocalClock()):
        before = clock.elapsed()
        clock.advance(30_000)
        assert clock.elapsed() - before >= 30


def test_a_manual_clock_stands_still() -> None:
    clock = ManualClock(7)
    assert (clock.now(), clock.estimate(), clock.elapsed()) == (7, 7, 0.007)


def test_elapsed_takes_the_largest_advance_and_never_runs_back(monkeypatch) -> None:
    readings = {"monotonic": 0.0, "wall": 1000.0}
    sources = (lambda: readings["monotonic"], lambda: readings["wall"])
    monkeypatch.setattr(module, "_time_sources", lambda: sources)
    elapsed = Elapsed()
    readings.update(monotonic=1.0, wall=1001.0)
    assert elapsed() == 1.0
    readings.update(monotonic=2.0, wall=4601.0)  # set forward by an hour
    assert elapsed() == 3601.0
    readings.update(monotonic=3.0, wall=1003.0)  # and back
    assert elapsed() == 3602.0
    readings.update(monotonic=3.0, wall=1000.0)
    assert elapsed() == 3602.0


def test_a_system_without_a_boot_clock_has_two_sources(monkeypatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert len(module._time_sources()) == 2
