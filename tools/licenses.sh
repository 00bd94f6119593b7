#!/usr/bin/env bash
# Writes licenses/ from Cargo.lock: the licences of the crates that binaries contain, with cargo-about, and a bill of
# materials in CycloneDX's format for the library and for the tool, with cargo-cyclonedx. `make licenses` calls it.
# tests/licenses.rs checks that the files are current.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export PATH=$target/tools/cargo/bin:$PATH

# Nothing that differs between two runs: no time, no serial number (the variable removes it), no path of this machine.
export SOURCE_DATE_EPOCH=0
name=licenses.cdx
cargo cyclonedx --quiet --format json --spec-version 1.5 --target x86_64-unknown-linux-gnu --override-filename $name
for package in plinth:. plinth-tool:crates/tool; do
    sed -e '/"timestamp"/d' -e "s|file://$PWD|file:///plinth|g" "${package#*:}/$name.json" \
        >"licenses/${package%:*}.cdx.json"
done
find . -path ./target -prune -o -name $name.json -exec rm {} +

# From the tool: it contains the library.
cargo about generate --frozen --fail --manifest-path crates/tool/Cargo.toml --config tools/about.toml \
    --output-file licenses/THIRD-PARTY.txt tools/third-party.hbs
