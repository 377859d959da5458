#!/bin/sh
# Tests of the sink into databases need Debian's PostgreSQL. Install it where that is allowed; end with 1 if it is
# not there, so that these tests are skipped. A server that the package starts is not used.
set -eu

is_there() {
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1
}

is_there && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "No PostgreSQL found: installing it"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null; } ||
        echo "It could not be installed." >&2
fi

is_there && exit 0
echo "Without PostgreSQL the tests of the sink into it are skipped." >&2
exit 1
