"""What a terminal shows besides: tables with borders, and how much long work has read."""

import io
import json

import pytest
from read_support import JOB_ID, write

from pyflinkstate.state_access.command_line import main, progress as progress_module
from pyflinkstate.state_access.command_line.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Make a stream a terminal; within the test, as pytest sets its own before."""

    def terminal(stream):
        made = Terminal()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(stream, made)
        return made

    return terminal


@pytest.fixture
def job(tmp_path):
    write(tmp_path, {"a": 1, "b": 2}, 1)
    write(tmp_path, {"a": 1, "b": 3}, 2)
    return str(tmp_path / JOB_ID)


class TestProgress:
    def test_it_is_shown_after_a_second(self, terminal):
        stderr = terminal("sys.stderr")
        now = [5.0]
        progress = Progress(clock=lambda: now[0])
        progress.expect(100)
        now[0] = 5.9
        progress.advance(10)
        assert stderr.getvalue() == ""
        now[0] = 6.0
        progress.advance(20)
        progress.hide()
        assert "30/100 bytes" in stderr.getvalue()

    def test_it_goes_away_while_lines_are_printed(self, terminal):
        stderr = terminal("sys.stderr")
        now = [0.0]
        progress = Progress(clock=lambda: now[0])
        now[0] = 2.0
        progress.advance(10)
        progress.hide()
        shown = stderr.getvalue()
        progress.hide()
        assert stderr.getvalue() == shown
        progress.advance(5)
        progress.hide()
        assert "15/?" in stderr.getvalue()[len(shown) :]

    def test_there_is_none_without_a_terminal(self, monkeypatch):
        plain = io.StringIO()
        monkeypatch.setattr("sys.stderr", plain)
        monkeypatch.setattr(progress_module, "_PATIENCE_S", 0.0)
        progress = Progress()
        progress.advance(10)
        progress.hide()
        assert plain.getvalue() == ""

    @pytest.mark.parametrize(
        "words", [["verify", "JOB"], ["diff", "JOB/chk-1", "JOB/chk-2"], ["export", "JOB"]]
    )
    def test_of_commands(self, job, terminal, monkeypatch, tmp_path, capsys, words):
        stderr = terminal("sys.stderr")
        monkeypatch.setattr(progress_module, "_PATIENCE_S", 0.0)
        words = [word.replace("JOB", job) for word in words]
        words += ["--to", str(tmp_path)] if words[0] == "export" else []
        assert main([*words, "--json"]) in (0, 1)
        assert stderr.getvalue() == ""
        assert all(json.loads(line) for line in capsys.readouterr().out.splitlines())
        for file in tmp_path.glob("*.parquet"):
            file.unlink()
        assert main(words) in (0, 1)
        assert "read" in stderr.getvalue()

    def test_an_error_is_on_a_line_of_its_own(self, job, terminal, monkeypatch):
        stderr = terminal("sys.stderr")
        monkeypatch.setattr(progress_module, "_PATIENCE_S", 0.0)
        assert main(["show", job, "other"]) == 3
        assert stderr.getvalue().splitlines()[-1].startswith("pyflinkstate: ")


def test_tables_have_borders(job, terminal):
    stdout = terminal("sys.stdout")
    assert main(["show", job, "op", "--state", "count"]) == 0
    text = stdout.getvalue()
    assert "┏━" in text
    assert "│ b " in text
