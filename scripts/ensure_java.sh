#!/bin/sh
# Spark needs Java 17 or newer. Find one, install one where that is allowed, or say what to type.
set -eu

package=openjdk-17-jre-headless

java_major() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    major=$(java_major "$candidate")
    [ -n "$major" ] && [ "$major" -ge 17 ] && exit 0
done

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "No Java 17 or newer found: installing $package"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null
    exit 0
fi

echo "Spark needs Java 17 or newer, and none was found (JAVA_HOME, PATH). Install one, for example:" >&2
echo "    sudo apt-get install $package" >&2
exit 1
