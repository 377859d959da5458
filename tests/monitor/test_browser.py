"""The page in a real Chromium: what a viewer sees and does, with a mouse, a keyboard or a narrow screen."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from chromium_support import headless_chromium, needs_chromium
from support_job import JobRun
from support_runtime import PATIENCE_S
from support_web import EVIL, events, monitor_with, stories_at, story

from pyflinkstate.errors import JobCancelledError, UserFunctionError
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.monitor.jobs import Recorder
from pyflinkstate.monitor.story import JobStory
from pyflinkstate.runtime.master.monitoring import WebPageSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart

pytest.importorskip("selenium.webdriver", reason="the page is looked at with selenium")
exceptions = pytest.importorskip("selenium.common.exceptions")
pytestmark = [
    pytest.mark.timeout(120),
    needs_chromium,
]

TABS = (
    "overview",
    "graph",
    "epochs",
    "checkpoints",
    "state",
    "data",
    "logs",
    "failures",
    "configuration",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with headless_chromium(PATIENCE_S) as browser:
        yield browser


def wait(chromium: Any, condition: str) -> None:
    """Return when a JavaScript expression has become true."""
    script = (
        "const done = arguments[0];"
        f"const look = () => {{ try {{ if ({condition}) return done(true); }} catch (e) {{}} "
        "requestAnimationFrame(look); }; look();"
    )
    assert chromium.execute_async_script(script)


def enter(chromium: Any, monitor: Monitor) -> None:
    chromium.get(monitor.address)
    for _ in range(3):  # the first page leads to the second, and a script ends with its page
        with suppress(exceptions.JavascriptException, exceptions.TimeoutException):
            return wait(chromium, "document.body.dataset.loaded === 'yes'")
    raise AssertionError("the page has not been loaded")


def go_to(chromium: Any, tab: str) -> None:
    """Open a tab, and wait until it is drawn."""
    chromium.execute_script(f"delete document.body.dataset.tab; location.hash = '#/{tab}';")
    wait(chromium, f"document.body.dataset.tab === '{tab.partition('/')[0]}'")


@pytest.fixture
def show(chromium: Any) -> Iterator[Callable[..., Monitor]]:
    """Open the page of some jobs, which leaves nothing in the console."""
    monitors: list[Monitor] = []

    def show(*jobs: JobStory, **options: Any) -> Monitor:
        monitors.append(monitor_with(*jobs, **options))
        enter(chromium, monitors[-1])
        return monitors[-1]

    yield show
    assert errors(chromium) == []
    for monitor in monitors:
        monitor.close()


def text(chromium: Any, selector: str = "body") -> str:
    return str(chromium.find_element("css selector", selector).text)


def errors(chromium: Any) -> list[str]:
    """Return what the console says of this page: violations of the policy, failed requests, exceptions."""
    origin = chromium.execute_script("return location.origin")
    return [entry["message"] for entry in chromium.get_log("browser") if origin in entry["message"]]


def test_data_is_text_and_never_markup(chromium: Any, show: Callable[..., Monitor]) -> None:
    show(story())
    assert EVIL in text(chromium, "h1")
    node = f"graph/{quote(EVIL, safe='')}"
    for tab in (*TABS, node):
        go_to(chromium, tab)
        section = chromium.find_element("id", tab.partition("/")[0]).get_attribute("textContent")
        assert (EVIL in section) or tab == "epochs", tab
    assert chromium.find_element("css selector", "#node h3").text.startswith(EVIL)
    assert "owned" not in (chromium.title.replace(EVIL, ""))
    assert len(chromium.find_elements("css selector", "script")) == 1


@pytest.mark.parametrize(("busy_ms", "marked"), [(450.0, ["", "marked"]), (395.0, ["", ""])])
def test_a_subtask_is_marked_when_it_is_slow(
    chromium: Any, show: Callable[..., Monitor], busy_ms: float, marked: list[str]
) -> None:
    """The slowest one of those that have much time left is nothing to see to."""
    show(running(busy_ms), is_live=True)
    go_to(chromium, "graph")
    found = "return [...document.querySelectorAll('.busy .bars i')].map((one) => one.className)"
    assert chromium.execute_script(found) == marked
    rows = [row.text for row in chromium.find_elements("css selector", "tr.slow")]
    assert [row.split("\n")[-1] for row in rows] == [
        f"{EVIL} 1 (slow) 90 % 5 % 5 % 2 90 MiB of 100 MiB 0" for mark in marked if mark
    ]
    assert len(chromium.find_elements("css selector", "svg.graph a.slow")) == len(rows)
    assert chromium.find_element("css selector", "meter").accessible_name == "of its limit"
    for said in ("Latency from sources", "late, dropped 4", "In/s"):
        assert said in text(chromium, "#graph")


def running(busy_ms: float = 450.0) -> JobStory:
    """Return a job that was heard of just now; subtask 1 was busy for so long of half a second."""
    shown, now_ms = JobStory(), int(time.time() * 1000)
    for event in events():
        late_ms = now_ms - events()[-1]["at"]
        if event["event"] == "epoch":
            event["slots"][EVIL].update(busy_ms=[90.0, busy_ms], idle_ms=[405.0, 475.0 - busy_ms])
        if event["event"] != "restarted":
            shown.take({**event, "at": event["at"] + late_ms})
    return shown


@pytest.mark.full
def test_a_chart_shows_the_values_of_the_moment_that_is_pointed_at(
    chromium: Any, show: Callable[..., Monitor]
) -> None:
    shown = running()
    epoch = {**events()[1], "records": 80, "duration_ms": 1_000, "at": (shown.heard_ms or 0) + 3_000}
    shown.take(epoch)
    show(shown, is_live=True)
    throughput = "[data-chart=throughput]"
    assert "in" in text(chromium, f"{throughput} figcaption")
    assert "Epoch time" not in text(chromium, "#overview")  # there are latencies of markers
    chart = chromium.find_element("css selector", f"{throughput} svg")
    chart.send_keys("\ue012" * 2)  # the left arrow, from the end of the chart
    value = f"document.querySelector('{throughput} figcaption b').textContent"
    before = chromium.execute_script(f"return {value}")
    assert chromium.find_elements("css selector", ".chart .cursor")
    chart.send_keys("\ue012" * 3)
    wait(chromium, f"{value} !== '{before}'")
    chromium.find_element("css selector", "[data-span='60000']").send_keys("\ue007")
    wait(chromium, "document.querySelector('[data-span=\"60000\"]').getAttribute('aria-pressed') === 'true'")
    assert chromium.find_elements("css selector", ".chart .cursor") == []


@pytest.mark.full
def test_a_table_is_sorted_by_a_click_and_has_pages(chromium: Any, show: Callable[..., Monitor]) -> None:
    shown = JobStory()
    for event in large_events(operators=60, subtasks=1):
        shown.take(event)
    show(shown)
    go_to(chromium, "graph")
    first = "document.querySelector('#graph table tbody th').textContent"
    assert chromium.execute_script(f"return {first}") == "operator 0"
    for expected in ("operator 0", "operator 59", "operator 0"):
        chromium.find_element("css selector", "#graph table .sort").send_keys("\ue007")
        wait(chromium, f"{first} === '{expected}'")
    chromium.find_element("css selector", "[aria-label='Next page']").send_keys("\ue007")
    wait(chromium, f"{first} === 'operator 25'")
    assert "26–50 of 60" in text(chromium, ".pager")


@pytest.mark.full
def test_the_largest_keys_are_found_when_somebody_asks(
    chromium: Any, show: Callable[..., Monitor], run: JobRun
) -> None:
    recorder = Recorder(run.clock, run.storage.uri if run.storage else None)
    run.listeners = (recorder,)
    job = run.run()
    assert run.storage is not None
    folder = f"{run.storage.uri}/{job.job_id}"
    show(*stories_at(folder), folder=folder)
    go_to(chromium, "state")
    assert "A restore of the last" in text(chromium, "#state figcaption")
    button = chromium.find_element("css selector", "[data-largest=counts]")
    button.send_keys("\ue007")
    wait(chromium, "document.querySelector('.largest tbody tr')")
    assert "Largest keys of count in checkpoint" in text(chromium, ".largest caption")
    rows = chromium.find_elements("css selector", ".largest tbody tr")
    assert sorted(row.text.split()[0] for row in rows) == ["0", "1"]


@pytest.mark.full
def test_logs_are_read_when_they_are_opened_and_can_be_searched(
    chromium: Any, show: Callable[..., Monitor]
) -> None:
    show(story())
    rows = "[...document.querySelectorAll('#logs td.line')].map((one) => one.textContent)"
    assert chromium.execute_script(f"return {rows}") == []
    go_to(chromium, "logs")
    wait(chromium, f"{rows}.length === 2")
    chromium.find_element("id", "logs-contains").send_keys("WELL")
    wait(chromium, f"{rows}.length === 1")
    assert chromium.execute_script(f"return {rows}") == ["all is well"]
    chromium.find_element("id", "logs-level").send_keys("ERROR")
    wait(chromium, "document.querySelector('#logs').textContent.includes('No line is like that')")


@pytest.mark.full
def test_a_stream_and_the_threads_of_a_slot_are_looked_at_when_somebody_asks(
    chromium: Any, run: JobRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: queue.SimpleQueue[None] = queue.SimpleQueue()
    sampled: list[frozenset[str]] = []

    def hook(request: Any) -> None:
        if request.link.epoch > 1:
            steps.get(timeout=PATIENCE_S)
        sampled.append(request.link.sampled)

    run.runner.before = hook
    monitor, job = live(run)
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    sample = job.sample
    monkeypatch.setattr(job, "sample", lambda *given: (sample(*given), told.put(given[0])))
    thread = in_background(job)
    enter(chromium, monitor)
    go_to(chromium, "data")
    wait(chromium, "document.querySelector('[data-stream=counts]')")
    button = chromium.find_element("css selector", "[data-stream=counts]")
    assert button.get_attribute("aria-pressed") == "false"
    button.send_keys("\ue007")
    wait(chromium, "document.querySelector('[data-stream=counts]').getAttribute('aria-pressed') === 'true'")
    assert told.get(timeout=PATIENCE_S) == "counts"
    go_to(chromium, "graph/counts")
    wait(chromium, "document.querySelector('[data-threads=counts][data-subtask=\"1\"]').click() || true")
    wait(chromium, "document.querySelector('#logs tbody').textContent.includes('MainThread')")
    assert chromium.find_element("id", "logs-slot").get_attribute("value") == "counts[1]"
    go_to(chromium, "data")
    for _ in range(3):
        steps.put(None)
    wait(chromium, "document.querySelectorAll('#data tbody tr').length")
    thread.join(PATIENCE_S)
    assert sampled[0] == frozenset()
    assert sampled[-1] == frozenset({"counts"})
    assert "Records of counts in epoch" in text(chromium, "#data caption")
    assert errors(chromium) == []
    monitor.close()


def test_the_token_does_not_stay_in_the_address(chromium: Any, show: Callable[..., Monitor]) -> None:
    show(story())
    assert "token" not in chromium.current_url
    assert chromium.execute_script("return document.cookie") == ""


def test_nothing_is_loaded_from_elsewhere_and_all_addresses_are_relative(
    chromium: Any, show: Callable[..., Monitor]
) -> None:
    show(story())
    script = "return performance.getEntriesByType('resource').map((one) => one.name)"
    loaded = chromium.execute_script(script)
    assert len(loaded) >= 4
    origin = chromium.execute_script("return location.origin")
    assert all(address.startswith(f"{origin}/") for address in loaded)
    page = Path(__file__).parents[2] / "pyflinkstate" / "monitor" / "web" / "page"
    for file in page.iterdir():
        for marker in ('src="/', 'href="/', 'fetch("/', 'EventSource("/', "http://", "url("):
            found = [line for line in file.read_text().splitlines() if marker in line]
            assert [line for line in found if "w3.org" not in line] == [], file


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_can_be_read(
    chromium: Any, show: Callable[..., Monitor], width: int, scheme: str
) -> None:
    """Only tables, tabs and graphs scroll, each in its own frame; texts stand out from their ground."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    show(story(), story("b" * 32, "orders with a rather long name " * 4))
    for tab in TABS:
        go_to(chromium, tab)
        assert chromium.execute_script("return document.documentElement.scrollWidth") <= width, tab
        assert chromium.execute_script(CONTRAST) == [], tab
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


#: Returns the texts whose contrast is below 4.5 to 1 (WCAG 2, AA).
CONTRAST = """
const light = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (one) => {
  while (one) {
    const color = getComputedStyle(one).backgroundColor;
    if (color !== "rgba(0, 0, 0, 0)") return color;
    one = one.parentElement;
  }
  return "rgb(255, 255, 255)";
};
const bad = [];
for (const one of document.querySelectorAll("h1,h2,p,a,td,th,dt,dd,summary,pre,button,caption,.badge,li")) {
  if (!one.offsetParent || !one.textContent.trim()) continue;
  const [a, b] = [light(getComputedStyle(one).color), light(ground(one))];
  if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5) bad.push(one.tagName + ": " + one.textContent);
}
return bad;
"""


@pytest.mark.full
@pytest.mark.parametrize("tab", TABS)
def test_a_screen_reader_has_names_for_everything(
    chromium: Any, show: Callable[..., Monitor], tab: str
) -> None:
    show(story())
    go_to(chromium, tab)
    tree = chromium.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = {"button", "link", "image", "table", "region", "navigation", "main", "columnheader", "combobox"}
    nameless = [
        node["role"]["value"]
        for node in tree
        if not node.get("ignored")
        and node["role"]["value"] in named - {"main"}
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    assert text(chromium, "nav [aria-current]").lower() == tab
    assert [
        one.get_attribute("id")
        for one in chromium.find_elements("css selector", "section")
        if one.is_displayed()
    ] == [tab]


def live(run: JobRun, savepoints: str | None = None) -> tuple[Monitor, Any]:
    monitor = Monitor(WebPageSettings(), run.clock)
    assert run.storage is not None
    observer = monitor.observe(run.storage.uri)
    run.listeners = (observer,)
    job = run.job()
    monitor.attach(observer, job, savepoints)
    return monitor, job


def in_background(job: Any) -> threading.Thread:
    def go() -> None:
        try:
            for _ in job.run():
                pass
        except JobCancelledError:
            pass

    thread = threading.Thread(target=go)
    thread.start()
    return thread


def test_a_job_is_watched_while_it_fails_restarts_and_finishes(chromium: Any, run: JobRun) -> None:
    run.restart = FixedDelayRestart(1, 0)
    may_go_on = threading.Event()
    failures = iter([UserFunctionError("ValueError: poison", operator="tens", record=EVIL, key="k")])

    def hook(request: Any) -> None:
        if request.link.epoch == 3:
            assert may_go_on.wait(PATIENCE_S)
            for error in failures:
                raise error

    run.runner.before = hook
    monitor, job = live(run)
    thread = in_background(job)
    enter(chromium, monitor)
    wait(chromium, "document.getElementById('status').textContent === 'RUNNING'")
    go_to(chromium, "epochs")
    wait(chromium, "document.querySelectorAll('#epochs tbody tr').length === 2")
    may_go_on.set()
    wait(chromium, "document.getElementById('status').textContent === 'FINISHED'")
    thread.join(PATIENCE_S)
    go_to(chromium, "failures")
    assert f"operator tens, key k, record {EVIL}" in text(chromium, "#failures")
    assert "ValueError: poison" in text(chromium, "#failures pre")
    go_to(chromium, "overview")
    assert "Restarts\n1" in text(chromium, "#overview")
    assert "This job has ended (FINISHED)" in text(chromium, "#notice")
    assert errors(chromium) == []
    monitor.close()


@pytest.mark.full
def test_an_action_asks_again_and_takes_no_for_an_answer(chromium: Any, run: JobRun) -> None:
    may_go_on = threading.Event()

    def hook(request: Any) -> None:
        if request.link.epoch == 2:
            may_go_on.wait(PATIENCE_S)

    run.runner.before = hook
    monitor, job = live(run)
    thread = in_background(job)
    enter(chromium, monitor)
    wait(chromium, "!document.getElementById('actions').hidden")
    cancel = chromium.find_element("css selector", "[data-action=cancel]")
    for answer in ("no", "yes"):
        cancel.send_keys("\ue007")  # Enter, as with a keyboard
        wait(chromium, "document.getElementById('ask').open")
        assert "Cancel the job?" in text(chromium, "#ask")
        assert chromium.switch_to.active_element.get_attribute("value") == "no"
        chromium.find_element("css selector", f"#ask [value={answer}]").send_keys("\ue007")
        wait(chromium, "!document.getElementById('ask').open")
        assert (text(chromium, "#message") == "") or answer == "yes"
    wait(chromium, "document.getElementById('message').textContent === 'The job is being cancelled.'")
    may_go_on.set()
    wait(chromium, "document.getElementById('status').textContent === 'CANCELED'")
    thread.join(PATIENCE_S)
    assert not chromium.find_element("id", "actions").is_displayed()
    monitor.close()


@pytest.mark.full
def test_a_table_keeps_its_place_when_news_come(chromium: Any) -> None:
    """Elements stay the same ones, so that focus, open parts and a scrolled table are not lost."""
    shown = story()
    monitor = monitor_with(shown)
    enter(chromium, monitor)
    go_to(chromium, "checkpoints")
    chromium.execute_script("document.querySelector('#checkpoints .wide').focus();")
    chromium.execute_script("window.kept = document.activeElement;")
    shown.checkpoints.recent.append({**shown.checkpoints.recent[0], "checkpoint_id": 41})
    monitor._jobs.changed()
    wait(chromium, "document.querySelector('#checkpoints tbody').textContent.includes('41')")
    assert chromium.execute_script("return document.activeElement === window.kept")
    monitor.close()


@pytest.mark.parametrize("is_over", [False, True])
def test_the_overview_is_one_screen(chromium: Any, show: Callable[..., Monitor], is_over: bool) -> None:
    size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    shown = running()
    if is_over:
        shown.take({"event": "ended", "at": shown.heard_ms, "status": "FAILED"})
    show(shown, is_live=True)
    go_to(chromium, "overview")
    assert len(chromium.find_elements("css selector", ".chart")) == 8
    assert chromium.execute_script("return document.documentElement.scrollHeight") <= 800
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.full
def test_the_end_of_the_program_is_said(chromium: Any) -> None:
    monitor = monitor_with(story())
    enter(chromium, monitor)
    monitor.close()
    wait(chromium, "document.getElementById('message').textContent.includes('connection')")
    assert EVIL in text(chromium, "h1")
    chromium.get("about:blank")
    errors(chromium)


@pytest.mark.full
def test_a_dead_job_is_shown_from_its_folder(
    chromium: Any, show: Callable[..., Monitor], run: JobRun
) -> None:
    """Its journal is cut off, as it is if the program is killed."""
    assert run.storage is not None
    recorder = Recorder(run.clock, run.storage.uri)
    run.listeners = (recorder,)
    job = run.run()
    (journal,) = Path(run.storage.uri, job.job_id, "journal").iterdir()
    journal.write_bytes(journal.read_bytes()[:-30])
    show(*stories_at(run.storage.uri))
    assert text(chromium, "#status") == "NO END KNOWN"
    assert text(chromium, "h1") == "orders"
    assert "Committed epoch\n4" in text(chromium, "#overview")
    assert "Last heard of" in text(chromium, "#overview")
    assert "This job does not run: nothing has been heard of it since" in text(chromium, "#notice")
    assert "Its last checkpoint is" in text(chromium, "#notice")
    go_to(chromium, "graph")
    assert "In/s" not in text(chromium, "#graph")
    assert "Busy" not in text(chromium, "#graph")
    go_to(chromium, "state")
    assert "counts" in text(chromium, "#state")
    assert not chromium.find_element("id", "actions").is_displayed()


@pytest.mark.full
def test_200_operators_and_1000_subtasks_are_shown(chromium: Any, show: Callable[..., Monitor]) -> None:
    shown = JobStory()
    for event in large_events(operators=200, subtasks=5):
        shown.take(event)
    show(shown)
    width = chromium.execute_script("return document.documentElement.clientWidth")
    go_to(chromium, "checkpoints")
    assert "1–25 of 1000" in text(chromium, ".pager")
    go_to(chromium, "graph")
    assert len(chromium.find_elements("css selector", "svg.graph rect")) == 200
    assert "1–25 of 200" in text(chromium, ".pager")
    assert chromium.execute_script("return document.documentElement.scrollWidth") <= width


def large_events(operators: int, subtasks: int) -> list[dict[str, Any]]:
    """Return what a job of many operators tells, each of which reads the one before it."""
    started, epoch, checkpoint, *_ = events(name="large")
    names = [f"operator {number}" for number in range(operators)]
    vertices = [
        {"id": name, "name": name, "kind": "keyed", "parallelism": subtasks, "max_parallelism": 128}
        for name in names
    ]
    edges = [{"source": a, "target": b, "chain": [], "side_output": None} for a, b in pairwise(names)]
    parts = [[name, number, 1.0, 2.0, 100, 10] for name in names for number in range(subtasks)]
    return [
        {**started, "job": {**started["job"], "vertices": vertices, "edges": edges}},
        {**epoch, "subtasks": {name: [10] * subtasks for name in names}},
        {**checkpoint, "subtasks": parts},
    ]
