#!/usr/bin/env bash
# Installs the built command-line tool with its manual pages and the completions of bash, zsh and fish. `make install-tool`
# calls it, also as root, which builds nothing. Without --destdir, `make uninstall` removes what it installed.
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

case $prefix in
/*) ;;
*)
    echo "install_tool.sh: the prefix $prefix is not an absolute path" >&2
    exit 2
    ;;
esac

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
tree=$work/tree share=$work/tree/share
install -D -m 755 "$from" "$tree/bin/plinth"
install -d "$share/man/man1"
"$from" man-pages "$share/man/man1"
for shell in bash zsh fish; do
    "$from" completions $shell >"$work/$shell"
done
chmod 644 "$share/man/man1"/*
install -D -m 644 "$work/bash" "$share/bash-completion/completions/plinth"
install -D -m 644 "$work/zsh" "$share/zsh/site-functions/_plinth"
install -D -m 644 "$work/fish" "$share/fish/vendor_completions.d/plinth.fish"
list=()
[ -n "$destdir" ] || list=(--list)
tools/install_tree.sh "$tree" "$destdir$prefix" "${list[@]}"
echo "installed plinth's tool under $destdir$prefix"
