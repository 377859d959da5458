"""Draws the pictures of the web page in docs/monitoring.md: jobs on Spark, in Chromium, light and dark.

    python scripts/draw_page.py

Needs Debian's chromium and chromium-driver, selenium, and Pillow; it takes about three minutes. A job
restarts after a bad record and then runs; another one fails; a copy of the folder of the first is what a
killed program leaves.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver

from pyflinkstate import (
    Duration,
    JobClient,
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
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.runtime.master import WebPageSettings

IMAGES = Path(__file__).parents[1] / "docs" / "images"
ORDERS_PER_S = 2_000
#: How long the job has run when it is drawn, and the failing one when it fails.
LIVE_S, FAILS_AFTER_S = 100, 30
#: How long a job must have been silent to count as dead.
SILENT_S = 62
WIDE, PHONE = (1280, 800), (390, 844)
LARGE = OutputTag("large", Types.PICKLED_BYTE_ARRAY())


class Spend(KeyedProcessFunction):
    """Adds up the amounts of each customer."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))
        self.large = runtime_context.get_metrics_group().counter("large orders")

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0.0) + value[1])
        if value[1] > 95:
            self.large.inc()
            yield LARGE, value
        yield value


class Convert:
    """Raises at one order: once, or always."""

    def __init__(self, bad: int, note: str | None) -> None:
        self.bad, self.note = bad, note

    def __call__(self, order: Any) -> Any:
        if order[3] == self.bad and not (self.note and os.path.exists(self.note)):
            if self.note:
                open(self.note, "w").close()
            raise ValueError("the exchange rate of this order is missing")
        return order


class Timed(TimestampAssigner):
    """The time of an order."""

    def extract_timestamp(self, value: Any, record_timestamp: int | None) -> int:
        return int(value[2])


def order(tick: Any) -> tuple[str, float, int, int]:
    """Return customer, amount, time in ms and number; few customers have many orders."""
    number = tick["value"]
    customer = int((number * 7919 % 10_007) ** 2 / 10_007)
    return f"customer-{customer}", number * 31 % 100 + 0.5, int(time.time() * 1000), number


def start(env: StreamExecutionEnvironment, name: str, bad: int, note: str | None) -> JobClient:
    """Start the job; it fails at an order, once if there is a file to note that."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    orders = env.from_rate(ORDERS_PER_S).map(order).name("parse").map(Convert(bad, note)).name("convert")
    timed = orders.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Timed()))
    spend = timed.key_by(lambda one: one[0], key_type=Types.STRING()).process(Spend()).uid("spend")
    keyed = spend.key_by(lambda one: one[0], key_type=Types.STRING())
    sums = keyed.window(TumblingEventTimeWindows.of(Time.seconds(10))).reduce(
        lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]), b[3])
    )
    schema = "customer string, amount double, at long, number long"
    spend.get_side_output(LARGE).foreach_epoch(lambda rows, epoch: None, schema)
    sums.name("sums of 10 s").uid("sums").foreach_epoch(lambda rows, epoch: None, schema)
    return env.execute_async(name)


def browser() -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    return webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))


#: Returns when the overview is drawn, with the pointer on a chart.
SHOWN = """
const done = arguments[0];
const look = () => {
  if (document.body.dataset.tab === undefined) { requestAnimationFrame(look); return; }
  const chart = document.querySelector(".chart svg");
  const box = chart && chart.getBoundingClientRect();
  if (box && box.width) chart.dispatchEvent(new PointerEvent("pointermove", { bubbles: true,
    clientX: box.left + 0.7 * box.width, clientY: box.top + 40, pointerType: "mouse" }));
  requestAnimationFrame(() => requestAnimationFrame(done));
};
look();
"""


def draw(chromium: Any, address: str, name: str, size: tuple[int, int]) -> None:
    """Write two pictures, light and dark."""
    width, height = size
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
        chromium.get(address)
        chromium.execute_async_script(SHOWN)
        picture = Image.open(io.BytesIO(chromium.get_screenshot_as_png())).convert("RGB")
        picture.quantize(256).save(IMAGES / f"page-{name}-{scheme}.png", optimize=True)
        shown = chromium.execute_script("return document.body.innerText")
        assert str(Path(__file__).parent) not in shown


def environment(folder: str) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(2_000, f"{folder}/checkpoints", incremental=True).enable_web_page()
    return env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 100))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        chromium = browser()
        env = environment(folder)
        client = start(env, "orders by customer", ORDERS_PER_S * LIVE_S // 2, f"{folder}/failed")
        time.sleep(LIVE_S)
        address = env.get_web_page_address() or ""
        draw(chromium, address, "live", WIDE)
        draw(chromium, address, "phone", PHONE)
        shutil.copytree(f"{folder}/checkpoints", f"{folder}/killed")
        client.cancel().result()
        failing = environment(f"{folder}/other")
        ends = start(failing, "orders with a bad record", ORDERS_PER_S * FAILS_AFTER_S, None)
        time.sleep(SILENT_S)
        ends.get_job_status().result()
        draw(chromium, failing.get_web_page_address() or "", "failed", WIDE)
        monitor = Monitor(WebPageSettings(has_actions=False), is_told=False)
        monitor.follow(f"{folder}/killed")
        draw(chromium, monitor.address or "", "dead", WIDE)
        chromium.quit()
        monitor.close()
        failing.close()
        env.close()


if __name__ == "__main__":
    main()
