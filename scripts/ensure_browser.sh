#!/bin/sh
# Tests of the web page need Debian's chromium and its driver. Install them where that is allowed; end with 1 if
# they are not there, so that these tests are skipped.
set -eu

is_there() {
    command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1
}

is_there && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "No chromium found: installing chromium and chromium-driver"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver >/dev/null; } ||
        echo "They could not be installed." >&2
fi

is_there && exit 0
echo "Without chromium and chromedriver the tests of the web page in a browser are skipped." >&2
exit 1
