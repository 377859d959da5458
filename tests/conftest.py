"""What every test may use: the fixtures of both houses, which lie with what the tests share."""

pytest_plugins = ["backend_fixtures", "runtime_fixtures"]
