"""Draws the pictures of the web page in docs/monitoring.md: a job on Spark, in Chromium, wide and narrow.

    python scripts/draw_page.py

Needs Debian's chromium and chromium-driver, and selenium. The job fails once on a record and restarts; the
pictures are taken when it has finished.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from selenium import webdriver

from pyflinkstate import (
    Duration,
    KeyedProcessFunction,
    OutputTag,
    RestartStrategies,
    StreamExecutionEnvironment,
    Time,
    TimestampAssigner,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
RECORDS, EPOCH = 144_000, 12_000
MOST_HEIGHT = 4_200
#: A customer with so many orders is told in the log.
MOST_ORDERS = 60
LARGE = OutputTag("large", Types.PICKLED_BYTE_ARRAY())
#: The first order; the last one is about now.
BEGAN_MS = int(time.time() * 1000) - RECORDS * 1_000


class Spend(KeyedProcessFunction):
    """Adds up the amounts of each customer."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))
        self.orders = runtime_context.get_state(ValueStateDescriptor("orders", Types.LONG()))
        self.large = runtime_context.get_metrics_group().counter("large orders")

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0.0) + value[1])
        self.orders.update((self.orders.value() or 0) + 1)
        if value[1] > 95:
            self.large.inc()
            yield LARGE, value
        if self.orders.value() == MOST_ORDERS:
            print(f"{value[0]} has {MOST_ORDERS} orders")
        yield value[0], value[1], value[2]


class FailOnce:
    """Raises once, on one record."""

    def __init__(self, note: str) -> None:
        self.note = note

    def __call__(self, value: Any) -> Any:
        if value[2] == BEGAN_MS + 80_000_000 and not os.path.exists(self.note):
            open(self.note, "w").close()
            raise ValueError("the exchange rate of this order is missing")
        return value


def order(number: int) -> tuple[str, float, int]:
    """Return customer, amount and time in ms; few customers have many orders."""
    customer = int((number * 7919 % 10_007) ** 2 / 10_007)
    return f"customer-{customer}", number * 31 % 100 + 0.5, BEGAN_MS + number * 1_000


def run(folder: str) -> StreamExecutionEnvironment:
    """Run the job; returns the environment, whose page is still there."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(4)
    env.enable_checkpointing(0, f"{folder}/checkpoints", incremental=True).enable_web_page()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    orders = env.from_collection(range(RECORDS), records_per_epoch=EPOCH).map(order).name("parse")
    checked = orders.map(FailOnce(f"{folder}/failed")).name("convert")
    timed = checked.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Timed()))
    spend = timed.key_by(lambda one: one[0], key_type=Types.STRING()).process(Spend()).uid("spend")
    windows = spend.key_by(lambda one: one[0], key_type=Types.STRING()).window(
        TumblingEventTimeWindows.of(Time.hours(1))
    )
    hourly = windows.reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))
    spend.get_side_output(LARGE).foreach_epoch(lambda rows, epoch: None, "c string, a double, t long")
    hourly.uid("hourly").foreach_epoch(lambda rows, epoch: None, "c string, a double, t long")
    client = env.execute_async("orders by customer and hour")
    look_at(env.get_web_page_address() or "", "spend")
    client.get_job_execution_result().result()
    return env


def look_at(address: str, stream: str) -> None:
    """Ask for a few records of a stream, as the page does."""
    target, _, token = address.partition("?token=")
    bearer = {"Authorization": f"Bearer {token}"}
    while not (jobs := json.load(urlopen(Request(f"{target}api/jobs", headers=bearer)))["jobs"]):
        time.sleep(0.1)
    path = f"{target}api/jobs/{jobs[0]['id']}/sample?stream={stream}"
    urlopen(Request(path, method="POST", headers=bearer)).close()


class Timed(TimestampAssigner):
    """The time of an order."""

    def extract_timestamp(self, value: Any, record_timestamp: int | None) -> int:
        return int(value[2])


def browser() -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    return webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))


def draw(chromium: Any, address: str, width: int, scheme: str) -> None:
    """Write one picture."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.get(address)
    chromium.execute_async_script(
        "const done = arguments[0]; const look = () => document.body.dataset.loaded === 'yes'"
        " ? requestAnimationFrame(() => done()) : requestAnimationFrame(look); look();"
    )
    chromium.execute_script(
        "document.querySelector('[data-largest=spend]').click();"
        "for (const one of document.querySelectorAll('#overview details, #logs-open')) one.open = true;"
    )
    chromium.execute_async_script(
        "const done = arguments[0]; const look = () => document.querySelector('#logs tbody tr') && "
        "document.querySelector('.largest tbody tr') ? requestAnimationFrame(() => done()) : "
        "requestAnimationFrame(look); look();"
    )
    # Of long tables the beginning says all.
    chromium.execute_script(
        "for (const one of document.querySelectorAll('.largest tbody tr:nth-child(n+6), "
        "#data tbody tr:nth-child(n+6), #logs tbody tr:nth-child(n+8)')) one.remove();"
    )
    # The picture ends with the page, and shows no path of this machine. No news comes any more.
    chromium.execute_script("fill = () => {};")
    chromium.execute_script(
        "for (const one of document.querySelectorAll('pre')) "
        'one.textContent = one.textContent.replace(/File "[^"]*\\//g, \'File "\');'
    )
    height = min(MOST_HEIGHT, chromium.execute_script("return document.documentElement.offsetHeight"))
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "height": height})
    chromium.save_screenshot(str(IMAGES / f"page-{width}-{scheme}.png"))
    shown = chromium.execute_script("return document.body.innerText")
    assert str(Path(__file__).parent) not in shown


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = run(folder)
        address = env.get_web_page_address()
        assert address is not None
        chromium = browser()
        for width, scheme in SIZES:
            draw(chromium, address, width, scheme)
        chromium.quit()
        env.close()


if __name__ == "__main__":
    main()
