#!/usr/bin/env bash
# Prints plinth's version from Cargo.toml. All other files derive it from there, or are tested against it.
set -euo pipefail
sed -nE 's/^version = "(.*)"$/\1/p;T;q' "$(dirname "$0")/../Cargo.toml"
