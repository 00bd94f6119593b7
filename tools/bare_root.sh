#!/usr/bin/env bash
# Runs commands on a minimal Debian, as a new user's machine has it: no recommended packages, and only what the README
# asks for (Rust, gcc, make, Python 3) with git and sudo.
#
#   bare_root.sh check                   Makes the base system in target/bare-root; exits with 77 and a reason if it cannot.
#   bare_root.sh with COMMAND [ARG...]   Makes a copy, runs a command of this machine beside it, and removes the copy. The
#                                        command finds the copy's folder in BARE_ROOT. If no copy can be made, exits with 77.
#   bare_root.sh as USER COMMANDS        Runs a shell's commands inside the copy, as one of its users: root, `admin`, who has
#                                        sudo without a password, or `user`, who has no rights.
#
# admin and user have rustup, the downloaded crates and a clone of the current commit, ~/plinth; commands run there. root
# has neither. The mounts are private to the command, so they end with it, even if it is killed.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$PWD/tools/bare_root.sh
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/bare-root
packages=ca-certificates,gcc,git,make,python3,sudo
PATH=$PATH:/usr/sbin:/sbin

skip() {
    echo "no bare Debian root can be made here: $*" >&2
    exit 77
}

# Makes the base system, which all copies start from. It is kept for a week.
make_base() {
    [ "$(id -u)" = 0 ] || skip "that needs root"
    command -v rustup >/dev/null || skip "its users need this machine's Rust, by rustup"
    tools/bootstrap.sh debootstrap >&2 || skip "debootstrap is missing"
    git rev-parse --verify --quiet HEAD >/dev/null || skip "this is no git checkout"
    mkdir -p "$folder"
    unshare -m mount --bind "$folder" "$folder" 2>/dev/null || skip "mounting is not permitted"
    local suite=bookworm mirror='' base=$folder/base log=$folder/log
    if grep -q '^ID=debian' /etc/os-release; then
        suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
        # shellcheck disable=SC2016 # apt-get expands it
        mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' | sed -n "s/ $suite\$//p;T;q")
    fi
    if [ "$(cat "$base/made-from" 2>/dev/null)" = "$suite $mirror $packages" ] &&
        [ -z "$(find "$base/made-from" -mtime +7)" ]; then
        return
    fi
    rm -rf --one-file-system "$base"
    mkdir -p "$base"
    echo "bare_root: making Debian $suite in $base" >&2
    # debootstrap mounts /proc and /sys.
    unshare -m debootstrap --variant=minbase "--include=$packages" "$suite" "$base" ${mirror:+"$mirror"} >"$log" 2>&1 || {
        cat "$log" >&2
        skip "debootstrap failed"
    }
    rm -f "$base"/var/cache/apt/archives/*.deb
    local user
    for user in admin user; do
        chroot "$base" useradd --create-home --shell /bin/bash "$user"
    done
    echo 'admin ALL=(ALL) NOPASSWD: ALL' >"$base/etc/sudoers.d/admin"
    echo "$suite $mirror $packages" >"$base/made-from"
}

# Gives the copy $1 this machine's network settings.
copy_network() {
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
    apt-config dump Acquire | grep -E '^Acquire::(https?|Check|Retries)' >"$1/etc/apt/apt.conf.d/90machine" || true
    if [ -f /etc/pip.conf ]; then
        cp -L /etc/pip.conf "$1/etc/"
    fi
    if [ -d /usr/local/share/ca-certificates ]; then
        cp -rL /usr/local/share/ca-certificates/. "$1/usr/local/share/ca-certificates/"
        chroot "$1" update-ca-certificates >/dev/null 2>&1
    fi
}

# Gives a user of the copy $1 Rust and a clone.
set_up_user() {
    local home=$1/home/$2 cargo=${CARGO_HOME:-$HOME/.cargo} rustup=${RUSTUP_HOME:-$HOME/.rustup} toolchain mine part
    mkdir -p "$home/.cargo/registry" "$home/.rustup/toolchains"
    for part in bin config.toml registry/index registry/cache; do
        [ ! -e "$cargo/$part" ] || cp -a "$cargo/$part" "$home/.cargo/$part"
    done
    cp "$rustup/settings.toml" "$home/.rustup/"
    git clone --quiet --depth 1 "file://$PWD" "$home/plinth"
    chroot "$1" chown -R "$2:" "/home/$2"
    for toolchain in "$rustup"/toolchains/*; do
        mine=$home/.rustup/toolchains/$(basename "$toolchain")
        mkdir "$mine"
        mount --bind -o ro "$(realpath "$toolchain")" "$mine"
    done
}

# Runs in a mount namespace of its own: mounts, and runs the command $2... beside the copy $1.
beside() {
    local root=$1 user system
    shift
    for system in proc sys dev; do
        mount --rbind "/$system" "$root/$system"
    done
    copy_network "$root"
    for user in admin user; do
        set_up_user "$root" "$user"
    done
    export BARE_ROOT=$root
    "$@"
}

as_user() {
    local user=$1 home=/home/$1 path=/usr/local/bin:/usr/bin:/bin environment name
    if [ "$user" = root ]; then
        home=/root path=/usr/local/sbin:/usr/sbin:/sbin:$path
    else
        path=$home/.cargo/bin:$path
    fi
    environment=("HOME=$home" "USER=$user" "PATH=$path" LANG=C.UTF-8)
    for name in http_proxy https_proxy no_proxy PIP_INDEX_URL; do
        [ -z "${!name:-}" ] || environment+=("$name=${!name}")
    done
    # shellcheck disable=SC2016 # the inner shell expands it
    # Without input, so that nothing waits for a password.
    chroot --userspec="$user:$user" "$BARE_ROOT" env -i "${environment[@]}" \
        bash -euo pipefail -c 'cd ~; [ ! -d plinth ] || cd plinth; eval "$1"' bash "$2" </dev/null
}

case ${1:-} in
check) make_base ;;
with)
    shift
    make_base
    # Removes the copies of commands that were killed.
    find "$folder" -maxdepth 1 -name 'copy.*' -mtime +0 -exec rm -rf --one-file-system {} +
    copy=$(mktemp -d "$folder/copy.XXXXXX")
    # The mounts are not visible here, so this removes only the copy.
    trap 'rm -rf --one-file-system "$copy"' EXIT
    cp -a --reflink=auto "$folder/base/." "$copy"
    touch "$copy"
    status=0
    unshare -m "$tool" beside "$copy" "$@" || status=$?
    exit "$status"
    ;;
beside)
    shift
    beside "$@"
    ;;
as) as_user "$2" "$3" ;;
*)
    sed -n '2,/^set/s/^# \?//p' "$tool" >&2
    exit 2
    ;;
esac
