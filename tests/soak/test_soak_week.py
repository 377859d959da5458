"""The week in small: some epochs, restarts and returns, and the same bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from soak_week import Driver, check


def test_files_and_bytes_of_many_epochs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # most of the time
    driver = Driver(tmp_path, joined=20)
    for number in range(600):
        if number % 150 == 0:
            driver.restart(max(0, driver.epoch - 30 * (number == 300)))
        driver.run_epoch()
    check(driver, tmp_path, joined=20)
    driver.release()
    assert driver.shown() == list(range(1, driver.epoch + 1))
