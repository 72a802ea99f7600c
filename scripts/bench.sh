#!/bin/bash
# Measures the figures this project promises, with a real docker daemon and the real claude. Words name parts.
#
# usage: scripts/bench.sh [job|ready|crowd|admission|command|channel|files|output|verbs|settings|idle|scale|held|plan]...
set -Eeuo pipefail
cd "$(dirname "$0")/.."
tests/testbed/up
HMZ_TEST_DOCKER_HOST=${DOCKER_HOST:-$(docker context inspect -f '{{.Endpoints.docker.Host}}')}
export HMZ_TEST_DOCKER_HOST
HMZ_TEST_CLAUDE=${HMZ_TEST_CLAUDE:-$(tests/testbed/claude)}
export HMZ_TEST_CLAUDE
. scripts/build.sh
guest guest
exec "$CARGO" bench --quiet --bench figures -- "$@"
