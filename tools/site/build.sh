#!/usr/bin/env bash
# Builds the documentation site in target/site, with Doxygen's reference under reference/, and checks its links.
# `make site` calls it.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export PYTHONPATH=$target/tools/site PYTHONDONTWRITEBYTECODE=1 NO_MKDOCS_2_WARNING=1

tools/doxygen.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Strict: a warning, such as a link to a page or a heading that does not exist, is an error. With --quiet, warnings would
# not count.
if ! CARGO_TARGET_DIR=$target python3 -m mkdocs build --strict --site-dir "$target/site" >"$log" 2>&1; then
    cat "$log"
    exit 1
fi
# The page for a server's answer 404, whose links only work on one.
rm "$target/site/404.html"
python3 tools/site/check_links.py "$target/site"
echo "the site is $target/site/index.html"
