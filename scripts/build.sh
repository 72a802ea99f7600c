#!/bin/bash
# Builds hmz with the guest's own small program embedded. Whoever sources it gets HMZ_GUEST, for a cargo of their own.
#
# usage: scripts/build.sh [PROFILE]      release otherwise; dev embeds nothing, and its boxes are given hmz itself
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
CARGO=${CARGO:-cargo}

guest() { # [PROFILE]: builds the guest's program and says where it is
  "$CARGO" build --quiet --profile "$1" --package hmz-guest --bin hmz-guest
  local target=${CARGO_TARGET_DIR:-$PWD/target}
  [[ $target == /* ]] || target=$PWD/$target
  export HMZ_GUEST=$target/x86_64-unknown-linux-gnu/${1/#dev/debug}/hmz-guest
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
profile=${1:-release}
if [ "$profile" != dev ]; then guest guest; fi
exec "$CARGO" build --profile "$profile" --bin hmz
