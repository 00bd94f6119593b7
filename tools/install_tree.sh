#!/usr/bin/env bash
# Copies a tree of files under a prefix, and removes it.
#
#   install_tree.sh TREE PREFIX [--list]   Copies. --list adds the files, and the folders that did not exist before, to
#                                          share/plinth/manifest.txt below the prefix.
#   install_tree.sh --remove PREFIX        Removes what that file lists. The prefix may have been moved.
set -euo pipefail
tree=$1 prefix=$2 manifest=share/plinth/manifest.txt

if [ "$tree" = --remove ]; then
    if [ ! -f "$prefix/$manifest" ]; then
        echo "install_tree.sh: there is no $prefix/$manifest, so nothing is known to be installed there" >&2
        exit 1
    fi
    # Folders come after what is in them, and stay if something else is in them.
    LC_ALL=C sort -r "$prefix/$manifest" | while IFS= read -r path; do
        path=$prefix/${path#.}
        if [ -d "$path" ] && [ ! -L "$path" ]; then
            rmdir --ignore-fail-on-non-empty "$path"
        else
            rm -f "$path"
        fi
    done
    exit
fi

# The list is written first, so that an interrupted installation can be removed. Files of an older version that are still
# there stay in it.
if [ "${3:-}" = --list ]; then
    list=$({
        find "$tree" -printf '%y %P\n'
        printf 'd %s\nd %s\nf %s\n' share share/plinth "$manifest"
    } | while read -r type path; do
        [ "$type" = d ] && [ -d "$prefix/$path" ] || echo "${path:-.}"
    done)
    if ! install -d "$prefix/${manifest%/*}"; then
        echo "install_tree.sh: cannot write to $prefix: use \`sudo make install\`, or choose another PREFIX" >&2
        exit 1
    fi
    if [ -f "$prefix/$manifest" ]; then
        list+=$'\n'$(cat "$prefix/$manifest")
    fi
    LC_ALL=C sort -u <<<"$list" >"$prefix/$manifest"
    chmod 644 "$prefix/$manifest"
fi

# Folders that exist keep their mode and owner. Files are replaced, not rewritten: running programs may have them mapped.
find "$tree" -type d -printf '%P\n' | while IFS= read -r path; do
    [ -d "$prefix/$path" ] || install -d "$prefix/$path"
done
find "$tree" ! -type d -printf '%P\n' | while IFS= read -r path; do
    cp -P --preserve=mode --remove-destination "$tree/$path" "$prefix/$path"
done
