# Short names for common commands. CI runs .ci/run, which does not need just.

# list the commands
default:
    @just --list --unsorted

# check formatting, lints, borders and generated pages
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo run -q -p xtask -- borders
    cargo run -q -p xtask -- gen --check

# run every test; --no-install installs nothing, other arguments go to the test runner
test *args:
    ./test {{args}}

# build the wheels and test the pytest plugin in a fresh environment
test-python *args:
    python/test {{args}}

# generate the man pages and the index of rules
gen:
    cargo run -q -p xtask -- gen

# build the documentation as a web site in target/site; installs mdbook if it is missing
docs:
    docs/site

# measure the figures of docs/performance.md
bench *args:
    bench/run {{args}}

# score a release build on LeakBench: watch, trace, check, attach, hazards or protect; needs
# leakbench/setup
leakbench mode="check" *args:
    cargo build --release --locked -p fdguard
    leakbench/score --bin target/release/fdguard {{mode}} open incidents {{args}}

# run every fuzz target for some seconds, on stable; needs a C++ compiler
fuzz-smoke *args:
    fuzz/run {{args}}

# make the pictures of the README; needs tmux
pictures:
    docs/pictures/make

# check licences, advisories and bans; needs cargo-deny
deny:
    cargo deny check

# build an archive with the program, man pages and completions in target/dist
dist:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --release --locked -p fdguard
    host=$(rustc -vV | sed -n 's/^host: //p')
    version=$(target/release/fdguard --version | cut -d' ' -f2)
    name=fdguard-$version-$host
    out=target/dist/$name
    rm -rf "$out" && mkdir -p "$out/completions"
    cp target/release/fdguard README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$out"
    cp -r docs/generated/man "$out/man"
    for shell in bash zsh fish; do "$out/fdguard" completions "$shell" > "$out/completions/fdguard.$shell"; done
    tar -C target/dist --sort=name --owner=0 --group=0 --numeric-owner -czf "target/dist/$name.tar.gz" "$name"
    ls -l "target/dist/$name.tar.gz"
