#!/bin/sh
# Spark needs Java 17 or newer. See that it would take one, install one where that is allowed, or say what to type.
set -eu

package=openjdk-17-jre-headless
# Spark takes the one of JAVA_HOME, and looks at the PATH only where that is not set.
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

is_new_enough() {
    major=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${major:-0}" -ge 17 ]
}

is_new_enough && exit 0

if [ -n "${JAVA_HOME:-}" ]; then
    echo "Spark needs Java 17 or newer. It uses JAVA_HOME ($JAVA_HOME), which has none." >&2
    echo "Set JAVA_HOME to the folder of a newer one, or unset it and install one on the PATH, for example:" >&2
    echo "    sudo apt-get install $package" >&2
    exit 1
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "No Java 17 or newer found: installing $package"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null
    is_new_enough && exit 0
fi

echo "Spark needs Java 17 or newer, and the first java on the PATH is not one. Install one, for example:" >&2
echo "    sudo apt-get install $package" >&2
echo "and see that it comes first on the PATH, or set JAVA_HOME to its folder." >&2
exit 1
