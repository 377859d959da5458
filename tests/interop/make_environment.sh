#!/bin/sh
# Make a folder with all that running Flink needs: "make_environment.sh FOLDER [PYTHON]".
#   pyflink/        a virtual environment with PyFlink, whose wheel has Flink's jars
#   interop.jar     the classes of tests/interop/flink
#   clock.so        moves the clock of Flink's processes
set -eu

folder=$1
python=${2:-python3}
here=$(cd "$(dirname "$0")" && pwd)

# PyFlink 2.3 runs on Python 3.9 to 3.12.
for candidate in "$python" python3.12 python3.11 python3.10 python3.9; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
        found=$candidate
        break
    fi
done
if [ -z "${found:-}" ]; then
    echo "PyFlink 2.3 needs Python 3.9 to 3.12, and there is none on the PATH. Install one, and name it: make interop PYTHON=python3.12" >&2
    exit 1
fi

if ! command -v javac >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jdk-headless >/dev/null
    else
        echo "Flink's side of the tests is compiled, and there is no javac on the PATH. Install a JDK 17, for example:" >&2
        echo "    sudo apt-get install openjdk-17-jdk-headless" >&2
        exit 1
    fi
fi

mkdir -p "$folder"
if [ ! -e "$folder/pyflink/.has-pyflink" ]; then
    "$found" -m venv "$folder/pyflink"
    "$folder/pyflink/bin/python" -m pip install --quiet --disable-pip-version-check "apache-flink==2.3.0"
    touch "$folder/pyflink/.has-pyflink"
fi
jars=$("$folder/pyflink/bin/python" -c 'import pathlib, pyflink; print(pathlib.Path(pyflink.__file__).parent / "lib")')

rm -rf "$folder/classes"
javac -cp "$jars/*" -d "$folder/classes" "$here"/flink/*.java
jar cf "$folder/interop.jar" -C "$folder/classes" .
${CC:-cc} -O2 -Wall -shared -fPIC -o "$folder/clock.so" "$here/flink/clock.c"
