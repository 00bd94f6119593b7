#!/usr/bin/env bash
# Checks the crates that plinth uses with cargo-deny and deny.toml. `make deny` calls it. Advisories need RustSec's
# database, which is fetched with git; where that fails, the script says so and does not check them.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export PATH=$PATH:$target/tools/cargo-deny/bin

cargo deny --locked --workspace check licenses sources
# The library alone.
cargo deny --locked check bans

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if timeout 120 cargo deny fetch db >"$log" 2>&1; then
    cargo deny --locked --workspace check --disable-fetch advisories
else
    grep . "$log" | tail -n 1
    echo "advisories NOT CHECKED: RustSec's database could not be fetched"
fi
