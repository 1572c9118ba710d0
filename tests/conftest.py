"""What a run leaves out is said before its summary; random tests are reproducible."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings

OPTIONAL = ("slow", "gpu", "bench")
LEFT_OUT: pytest.StashKey[Counter[str]] = pytest.StashKey()

settings.register_profile("einnet", deadline=None, derandomize=True)
settings.load_profile("einnet")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    """Count the optional tests that -m takes out."""
    collected = list(items)
    result = yield
    kept = set(items)
    config.stash[LEFT_OUT] = Counter(mark for item in collected if item not in kept for mark in OPTIONAL if item.get_closest_marker(mark))
    return result


@pytest.fixture(scope="session", autouse=True)
def _no_takeover():
    """ONNX Runtime takes no model over: what a test sees of a program does not depend on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("einnet.api.decide.behind", lambda times: False)
        yield


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """One line that names what does not run."""
    counts = config.stash.get(LEFT_OUT, Counter())
    return ["left out by markers: " + ", ".join(f"{n} {mark}" for mark, n in counts.items())] if counts else []
