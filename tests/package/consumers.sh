# Functions that build and start programs with an installed plinth; for scripts that set `work`, a folder for what they build.
# shellcheck shell=bash
: "${work:?}"

# Runs a command, and shows its output only if it fails. (set -e has no effect in a function that is called in a condition.)
step() {
    local what=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok    $what"
    else
        cat "$work/log"
        echo "FAIL  $what: $*"
        exit 1
    fi
}

# Configures, builds and runs a consumer. Arguments: its description, its folder, arguments of cmake.
cmake_consumer() {
    local what=$1 folder=$2 build
    build=$work/build-${what//[^a-zA-Z_+]/-}
    shift 2
    step "$what: configure" cmake -S "tests/package/$folder" -B "$build" "$@"
    step "$what: build" cmake --build "$build"
    step "$what: run" env -C "$build" ctest --output-on-failure
}

# Compiles and runs a consumer with pkg-config's flags. Arguments: language, folder of plinth.pc or nothing if pkg-config
# and the loader find the installation, static or shared.
pkg_config_consumer() {
    local language=$1 tree=$2 kind=$3 source compiler program
    program=$work/pc-$language-$kind
    source=tests/package/c/main.c compiler=(gcc -std=c99)
    if [ "$language" = cpp ]; then
        source=tests/package/cpp/main.cpp compiler=(g++ -std=c++17)
    fi
    local flags
    if [ "$kind" = static ]; then
        # The linker prefers a shared library in the same folder, so the archive is specified by its file name.
        flags=$(PKG_CONFIG_PATH=$tree pkg-config --static --cflags --libs plinth)
        flags=${flags/-lplinth/-l:libplinth.a}
    else
        flags=$(PKG_CONFIG_PATH=$tree pkg-config --cflags --libs plinth)
    fi
    # shellcheck disable=SC2086 # flags are words
    "${compiler[@]}" -Wall -Wextra -Werror "$source" -o "$program" $flags &&
        LD_LIBRARY_PATH=${tree:+$tree/..} "$program" || return 1
    # The program must depend on the shared library exactly if it was linked as shared.
    local linked=static
    if readelf -d "$program" | grep 'NEEDED.*libplinth' >/dev/null; then
        linked=shared
    fi
    [ "$linked" = "$kind" ]
}

# Builds and starts programs in C and C++, shared and static, with CMake and pkg-config: `consumers PREFIX VERSION`. An
# empty PREFIX means that all tools find the installation.
consumers() {
    local prefix=$1 wanted=$2 language kind
    for language in c cpp; do
        cmake_consumer "find_package, $language" $language -DCMAKE_PREFIX_PATH="$prefix" -DPLINTH_WANTED="$wanted"
        for kind in shared static; do
            step "pkg-config, $language, $kind" pkg_config_consumer $language "${prefix:+$prefix/lib/pkgconfig}" $kind
        done
    done
}
