# Common parts of the testbed; sourced by bash scripts, never run.
#
# State is in ${HMZ_TESTBED_STATE}; by default /var/tmp/hmz-tests for root and a cache folder for anybody else:
#   docker/      data, sockets and log of the daemon that `up` started, `dockerd` with its pid and start time
#   far/         those of `far`: daemons that are as good as another machine's, their certificates and keys, and what leads to
#                engines as if they were another machine's
#   engines/     those of `engines`: the programs, data, socket and log of each
#   swarm/       those of `swarm`: three nodes, each with its daemon, and the keys of their sshds
#   cache/       root file systems of the images made here
#   claude/      the agent CLI, and a node new enough to install it
#   made-images  images made here and loaded into the daemon that answers
# Nothing here relies on an earlier script having ended well: everything may have been killed at any moment.

set -Eeuo pipefail
umask 022
trap 'printf "%s: failed in line %s of %s: %s\n" "${0##*/}" "$LINENO" "${BASH_SOURCE[0]##*/}" "$BASH_COMMAND" >&2' ERR

TB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "$(id -u)" = 0 ]; then TB_STATE=/var/tmp/hmz-tests; else TB_STATE=${XDG_CACHE_HOME:-$HOME/.cache}/hmz-tests; fi
TB_STATE=${HMZ_TESTBED_STATE:-$TB_STATE}
TB_SOCKET=/var/run/docker.sock
export LC_ALL=C.UTF-8
case :$PATH: in *:/usr/sbin:*) ;; *) PATH=$PATH:/usr/sbin:/sbin ;; esac

log() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { log "error: $*"; exit 1; }
usage() { # prints the header comment of the calling script
  sed -n '2,/^[^#]/{/^#/{s/^# \{0,1\}//;p}}' "$0"
  exit "${1:-0}"
}
is_root() { [ "$(id -u)" = 0 ]; }

# One testbed script at a time for a state folder; one that another one calls is let in.
tb_begin() {
  mkdir -p "$TB_STATE"/{docker,cache,claude,log}
  if [ "${HMZ_TESTBED_LOCKED:-}" != "$TB_STATE" ]; then
    exec 9>"$TB_STATE/lock"
    flock -w 1800 9 || die "another testbed script has held $TB_STATE/lock for half an hour"
    export HMZ_TESTBED_LOCKED=$TB_STATE
  fi
}

# ---- a process is its pid and its start time, since pids come round again ------------------------------------------

start_time() { # PID: field 22 of its stat; a program's name may hold spaces and brackets
  local stat; stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  case $1 in Z | X) return 1 ;; esac
  printf '%s\n' "${20}"
}
recorded() { # FILE: the pid in it, while that is still that very process
  local pid start
  read -r pid start 2>/dev/null <"$1" || return 1
  [ "$(start_time "$pid")" = "$start" ] || return 1
  printf '%s\n' "$pid"
}
stop_recorded() { # FILE SECONDS: TERM, wait, KILL, forget
  local pid left=$(($2 * 10))
  if pid=$(recorded "$1"); then
    kill -TERM "$pid" 2>/dev/null || true
    while recorded "$1" >/dev/null && [ $((left--)) -gt 0 ]; do sleep 0.1; done
    if recorded "$1" >/dev/null; then kill -KILL "$pid" 2>/dev/null || true; fi
  fi
  rm -f "$1"
}
stop_node() { # FILE SECONDS: the same for a process whose child is the first of a pid namespace, and hears for both
  local pid; if pid=$(recorded "$1"); then kill -TERM $(cat "/proc/$pid/task/$pid/children" 2>/dev/null) 2>/dev/null || true; fi
  local left=$(($2 * 10))
  while recorded "$1" >/dev/null && [ $((left--)) -gt 0 ]; do sleep 0.1; done
  stop_recorded "$1" 1
}
spawn() { # FILE LOG CMD...: starts a daemon that holds nothing of ours, and records it
  local file=$1 out=$2; shift 2
  (
    for fd in /proc/"$BASHPID"/fd/*; do
      fd=${fd##*/}
      if [ "$fd" -gt 2 ] && [ "$fd" != 255 ]; then eval "exec $fd>&-"; fi
    done
    unset HMZ_TESTBED_LOCKED MAKEFLAGS MFLAGS MAKELEVEL
    cd / # it outlives the clone it was started from
    exec setsid "$@"
  ) </dev/null >>"$out" 2>&1 &
  printf '%s %s\n' "$!" "$(start_time "$!")" >"$file"
}

# ---- packages --------------------------------------------------------------------------------------------------------

have_packages() { # PACKAGE...: whether every one is installed
  local have
  have=$(dpkg-query -W -f '${db:Status-Status}\n' "$@" 2>/dev/null | grep -cx installed) || true
  [ "$have" -ge $# ]
}
apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 -qq "$@" </dev/null >>"$TB_STATE/log/apt.log" 2>&1 9>&-; }
apt_install() { # PACKAGE...: no service starts by itself
  have_packages "$@" && return 0
  is_root || die "needs $* and cannot install them: run this as root, or install them"
  log "installing $*"
  local made='' ok=1
  : >"$TB_STATE/log/apt.log"
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    made=1
  fi
  apt_get install -y --no-install-recommends "$@" || { apt_get update && apt_get install -y --no-install-recommends "$@"; } || ok=
  [ -z "$made" ] || rm -f /usr/sbin/policy-rc.d
  [ -n "$ok" ] || { tail -20 "$TB_STATE/log/apt.log" >&2; die "cannot install $*"; }
}

debian_mirror() { # the address this machine's own apt uses
  local found=${HMZ_TESTBED_MIRROR:-} again
  for again in '' 1; do
    [ -z "$found" ] || break
    [ -z "$again" ] || apt_get update || true
    # (awk reads to the end: leaving early would break the pipe)
    found=$(apt-get indextargets --format "\$(REPO_URI) \$(CODENAME)" 'Created-By: Packages' 2>/dev/null |
      awk '!found && ($2 == "bookworm" || $2 == "trixie") { found = $1 } END { print found }')
  done
  [ -n "$found" ] || die "cannot tell this machine's Debian mirror; name it in HMZ_TESTBED_MIRROR"
  printf '%s\n' "$found"
}

# ---- docker ----------------------------------------------------------------------------------------------------------

docker_answers() { command -v docker >/dev/null && timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
docker_endpoint() { # where the docker CLI finds its daemon
  if [ -n "${DOCKER_HOST:-}" ]; then printf '%s\n' "$DOCKER_HOST"; else docker context inspect -f '{{.Endpoints.docker.Host}}'; fi
}
