#!/bin/sh
# Print the folder with Apache Kafka's jars, which tests of the Kafka connector start a broker from; fetch them with
# Maven if they are not there. With KAFKA_HOME, say where they are: it has a folder libs, as Kafka's own archive has.
set -eu

version=4.2.0 # 4.3 may lose the end of a transaction at a restart: KAFKA-20734
home=${KAFKA_HOME:-$HOME/.cache/pyflinkstate/kafka-$version}

has_kafka() {
    ls "$1"/libs/kafka_2.13-*.jar >/dev/null 2>&1
}

if has_kafka "$home"; then
    echo "$home"
    exit 0
fi

if [ -n "${KAFKA_HOME:-}" ]; then
    echo "KAFKA_HOME ($KAFKA_HOME) has no libs/kafka_2.13-*.jar. Set it to the folder of Kafka 4, or unset it." >&2
    exit 1
fi

if ! command -v mvn >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "No mvn found: installing maven" >&2
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq maven; } >/dev/null 2>&1 || true
fi
if ! command -v mvn >/dev/null 2>&1; then
    echo "Kafka is fetched with Maven, and there is no mvn. Install it, for example:" >&2
    echo "    sudo apt-get install maven" >&2
    exit 1
fi

# Only a folder that is complete gets its name, so a run that is killed leaves nothing that looks like Kafka.
mkdir -p "$(dirname "$home")"
work=$(mktemp -d "$home.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pyflinkstate</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$version</version>
    </dependency>
  </dependencies>
</project>
POM
if ! mvn -B -q -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="$work/libs" >"$work/log" 2>&1; then
    echo "Maven cannot fetch Kafka $version:" >&2
    tail -n 5 "$work/log" >&2
    exit 1
fi
mv -T "$work" "$home" 2>/dev/null || has_kafka "$home" # another run was faster
has_kafka "$home"
trap - EXIT
echo "$home"
