#!/bin/bash
# Shows the main job on this machine, in one minute and with no model and no sign-in: a scripted agent that runs here,
# its commands in a container, its edits in a project of yours. Everything it makes is in a temporary directory.
#
# YES=1 (or CI=true) installs and starts what is missing without asking; PROFILE=dev builds faster.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
PROFILE=${PROFILE:-release} CARGO=${CARGO:-cargo} whole=''

say() { printf '\n=== %s\n' "$*"; }
die() { printf 'make demo: error: %s\n' "$*" >&2; exit 1; }
ask() { # QUESTION
  [ "${YES:-}" != 1 ] && [ -z "${CI:-}" ] || return 0
  [ -t 0 ] || die "$1 Nobody is here to ask: run \`make demo YES=1\`"
  local answer
  read -r -p "$1 [y/N] " answer
  [[ $answer == [yY]* ]] || die "it cannot go on without that"
}
answers() { command -v docker >/dev/null && timeout 20 docker version >/dev/null 2>&1; }
show() { # CMD...: prints a command as one would type it, and runs it
  printf '\n$ %s\n' "$*"
  timeout 180 "$@" || die "\`$*\` ended with $?"
}

cat <<'TEXT'
This will
  1. see that a docker daemon answers (asking before it installs or starts one), and that it has a busybox image
  2. build hmz
  3. apply examples/first-run.yaml to a little project with a bug: the agent runs here, its commands in a container
  4. show what came of it, delete it, and show that nothing is left
TEXT

say 'docker'
if ! answers; then
  [ "$(id -u)" = 0 ] || die 'no docker daemon answers for this user; start one, or install and start one as root: sudo tests/testbed/up busybox'
  command -v dockerd >/dev/null || ask 'There is no docker engine. Install one by apt-get?'
  ask 'No docker daemon answers. Start one? (make testbed-down stops it.)'
  tests/testbed/up busybox
else
  tests/testbed/images busybox
fi

say "build (profile $PROFILE)"
command -v "$CARGO" >/dev/null || die 'there is no cargo; see https://rustup.rs'
if ! command -v cc >/dev/null; then
  [ "$(id -u)" = 0 ] || die 'there is no C compiler; install gcc'
  ask 'There is no C compiler. Install gcc by apt-get?'
  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends gcc libc6-dev </dev/null
fi
scripts/build.sh "$PROFILE"
built=${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/${PROFILE/#dev/debug}
PATH=$(cd "$built" && pwd):$PATH
hmz --version

say 'a project with a bug'
# Not in /tmp, which is the home of what runs in a container.
demo=$(mktemp -d /var/tmp/hmz-demo.XXXXXX)
export HMZ_HOME=$demo/hmz XDG_RUNTIME_DIR=$demo/run
mkdir -m 700 "$HMZ_HOME" "$XDG_RUNTIME_DIR" "$demo/project"
own_processes() { # the processes of hmz in this demo's home
  local pid
  grep -lzx "HMZ_HOME=$HMZ_HOME" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | while read -r pid; do
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != hmz ] || echo "$pid"
  done || true
}
end_of_demo() {
  local rc=$? signal id left tries
  trap - EXIT
  # A shell that is killed by a signal comes here with the status of what it ran before.
  if [ $rc = 0 ] && [ -z "$whole" ]; then rc=1; fi
  cd /
  if [ $rc != 0 ]; then timeout 20 hmz describe run/first-run >&2 || true; fi
  # A daemon ends by itself once it has nothing to do; this one's home goes now.
  for signal in TERM KILL; do
    for pid in $(own_processes); do kill "-$signal" "$pid" 2>/dev/null || true; done
    tries=100
    while [ -n "$(own_processes)" ] && [ $((tries--)) -gt 0 ]; do sleep 0.1; done
  done
  if [ $rc != 0 ]; then
    sed 's/^/daemon: /' "$HMZ_HOME/state/daemon.log" 2>/dev/null >&2 || true
    id=$(cat "$HMZ_HOME/state/instance" 2>/dev/null || true)
    for left in ${id:+$(docker ps -aq --filter "label=hmz.instance=$id")}; do docker rm -f "$left" >/dev/null || true; done
  fi
  rm -rf "$demo"
  if [ $rc = 0 ]; then printf '\nmake demo: all of it worked\n'; else printf '\nmake demo: FAILED\n' >&2; fi
  exit $rc
}
trap end_of_demo EXIT

cat >"$HMZ_HOME/settings.yaml" <<'YAML'
runtimes:
  docker:
    here:
      endpoint: local
      harness: local
YAML
printf 'def add(a, b):\n    return a - b\n' >"$demo/project/calc.py"
cp examples/first-run.yaml examples/first-run.steps.yaml "$demo/project/"
cd "$demo/project"
printf 'in %s\n' "$PWD"
show cat calc.py

say 'the run'
show hmz apply -f first-run.yaml
show hmz logs -f run/first-run
show hmz wait --for=condition=Complete run/first-run --timeout 3m
show hmz get runs

say 'what came of it'
show cat calc.py
grep -q 'return a + b' calc.py || die 'calc.py is not fixed'
show cat done.txt
printf '(this machine is %s)\n' "$(hostname)"
! grep -q "mended on $(hostname)," done.txt || die 'the commands ran here and not in the container'
[ "$(stat -c %u calc.py)" = "$(id -u)" ] || die 'calc.py is not this user'"'"'s any more'

say 'taking it away'
show hmz delete run/first-run
id=$(cat "$HMZ_HOME/state/instance")
show docker ps -aq --filter "label=humanize=$(id -u)" --filter "label=hmz.instance=$id"
[ -z "$(docker ps -aq --filter "label=hmz.instance=$id")" ] || die 'a container is left'
echo '(nothing)'
whole=1
