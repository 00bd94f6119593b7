#!/usr/bin/env bash
# Prints plinth's version. It stands in Cargo.toml and nowhere else; the rest is made from it or tested against it.
set -euo pipefail
sed -nE 's/^version = "(.*)"$/\1/p;T;q' "$(dirname "$0")/../Cargo.toml"
