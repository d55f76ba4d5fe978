"""Plain ADK as it is, and with the wrappers in place but no attempt."""

from __future__ import annotations

import pytest

from durable_adk.adk import _seam, install
from durable_adk.adk.runner import AttemptRunner
from tests.adapter import stock


@pytest.fixture(params=["as it is", "with the wrappers"])
def inert(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on ADK as it is, and again with every wrapper and the attempt's runner in place:
    outside an attempt a remedy changes nothing."""
    install.install()
    if request.param == "with the wrappers":
        monkeypatch.setattr(stock, "Runner", AttemptRunner)
        return
    for owner, name in _seam.INTERCEPTED:
        monkeypatch.setattr(owner, name, getattr(getattr(owner, name), install._MARK))
