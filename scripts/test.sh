#!/bin/bash
# Runs everything there is to test, against a real docker daemon and the real claude, and says at the end how it went.
# Nothing is left out quietly: a part that cannot be had fails the run.
#
# usage: scripts/test.sh [ARGUMENT...]      arguments go to the test runner, such as a test's name
set -Eeuo pipefail
cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
begin=$SECONDS part_begin=$SECONDS part='' log_dir='' counted='' whole=''

took() { printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); }
section() {
  [ -z "$part" ] || printf -- '--- %s: %s\n' "$part" "$(took $((SECONDS - part_begin)))"
  part=$1 part_begin=$SECONDS
  printf '\n=== %s\n' "$part"
}
ended() {
  local rc=$?
  # A shell that is killed by a signal comes here with the status of what it ran before.
  if [ $rc = 0 ] && [ -z "$whole" ]; then rc=1; fi
  if [ $rc = 0 ]; then
    printf '\nmake test: PASSED in %s%s\n' "$(took $((SECONDS - begin)))" "${counted:+ ($counted)}"
  else
    printf '\nmake test: FAILED in "%s" after %s\n' "$part" "$(took $((SECONDS - begin)))" >&2
  fi
  [ -z "$log_dir" ] || rm -rf "$log_dir"
  exit $rc
}
trap ended EXIT
log_dir=$(mktemp -d)

# images are made here unless told otherwise: tests ask nothing of a registry
export HMZ_TESTBED_PULL=${HMZ_TESTBED_PULL:-0}

section 'docker daemon and images'
tests/testbed/up
HMZ_TEST_DOCKER_HOST=${DOCKER_HOST:-$(docker context inspect -f '{{.Endpoints.docker.Host}}')}
export HMZ_TEST_DOCKER_HOST

section 'daemons elsewhere'
tests/testbed/far >/dev/null

section 'other engines'
tests/testbed/engines --version
for engine in docker26 docker28 podman; do tests/testbed/far "$engine" >/dev/null; done

section 'a swarm of three nodes'
tests/testbed/swarm >/dev/null

section 'shells'
tests/testbed/shells

section 'agent CLI'
HMZ_TEST_CLAUDE=$(tests/testbed/claude)
export HMZ_TEST_CLAUDE
tests/testbed/claude-image >/dev/null

if [ $# = 0 ]; then
  for component in rustfmt clippy; do # a minimal toolchain lacks them
    "$CARGO" "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component"
  done
  section 'formatting'
  "$CARGO" fmt --all --check
  section 'lints'
  "$CARGO" clippy --workspace --all-targets --quiet -- -D warnings
  "$CARGO" clippy -p hmz-telemetry --features otel --quiet -- -D warnings
  "$CARGO" clippy -p hmz --features otel --test spans --quiet -- -D warnings
fi

section 'build of the tests'
# boxes are given what a released hmz gives them; without these lines, as in a plain `cargo test`, they are given hmz itself
. scripts/build.sh
guest dev
export HMZ_TEST_GUEST=embedded
if "$CARGO" nextest --version >/dev/null 2>&1; then
  "$CARGO" nextest run --workspace --no-run
  section 'tests'
  "$CARGO" nextest run --workspace --no-tests=fail "$@" 2>&1 | tee "$log_dir/tests"
  counted=$(sed 's/\x1b\[[0-9;]*m//g' "$log_dir/tests" | grep -E '^ *Summary' | tail -1 | sed -E 's/.*\] *//') || true
else
  "$CARGO" test --workspace --all-targets --no-run
  section 'tests'
  "$CARGO" test --workspace --all-targets "$@" -- --test-threads=2 2>&1 | tee "$log_dir/tests"
  counted="$(grep -E '^test result: ok' "$log_dir/tests" | awk '{ n += $4 } END { print n + 0 }') tests passed"
fi

if [ $# = 0 ]; then
  section 'spans to a collector' # a build with the feature, of which the others have nothing
  "$CARGO" test -p hmz --features otel --test spans --quiet >"$log_dir/spans" 2>&1 || { cat "$log_dir/spans"; exit 1; }
  printf '%s passed\n' "$(grep -E '^test result: ok' "$log_dir/spans" | awk '{ n += $4 } END { print n + 0 }')"
  section 'examples in the documentation comments'
  "$CARGO" test --workspace --doc --quiet >"$log_dir/doc" 2>&1 || { cat "$log_dir/doc"; exit 1; }
  printf '%d passed\n' "$(grep -E '^test result: ok' "$log_dir/doc" | awk '{ n += $4 } END { print n + 0 }')"
fi
whole=1
