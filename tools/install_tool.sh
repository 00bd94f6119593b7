#!/usr/bin/env bash
# Installs the built command-line tool with its manual pages and the completions of bash, zsh and fish. `make install-tool`
# calls it, also as root, which builds nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

from=target/tool/release/plinth prefix=/usr/local destdir=
while [ $# -gt 0 ]; do
    case $1 in
    --from) from=$2 ;;
    --prefix) prefix=$2 ;;
    --destdir) destdir=$2 ;;
    *)
        echo "usage: install_tool.sh [--from FILE] [--prefix FOLDER] [--destdir FOLDER]" >&2
        exit 2
        ;;
    esac
    shift 2
done
if [ ! -x "$from" ]; then
    echo "install_tool.sh: $from was not built; run make tool first" >&2
    exit 1
fi

pages=$(mktemp -d)
trap 'rm -r "$pages"' EXIT
"$from" man-pages "$pages"
for shell in bash zsh fish; do
    "$from" completions $shell >"$pages/$shell"
done

share=$destdir$prefix/share
install -D -m 755 "$from" "$destdir$prefix/bin/plinth"
install -d "$share/man/man1"
install -m 644 "$pages"/*.1 "$share/man/man1/"
install -D -m 644 "$pages/bash" "$share/bash-completion/completions/plinth"
install -D -m 644 "$pages/zsh" "$share/zsh/site-functions/_plinth"
install -D -m 644 "$pages/fish" "$share/fish/vendor_completions.d/plinth.fish"
echo "installed plinth's tool under $destdir$prefix"
