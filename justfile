# The few commands that people type; CI runs .ci/run, which needs no just.

# list the verbs
default:
    @just --list --unsorted

# form, lints, borders, fresh pages
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo run -q -p xtask -- borders
    cargo run -q -p xtask -- gen --check

# every test; arguments go to the runner
test *args:
    ./test {{args}}

# the wheels in a fresh environment, and the tests of the pytest plugin
test-python *args:
    python/test {{args}}

# write the man pages and the index of rules
gen:
    cargo run -q -p xtask -- gen

# the figures of docs/performance.md
bench *args:
    bench/run {{args}}

# every fuzz target for some seconds, on stable; needs a C++ compiler
fuzz-smoke *args:
    fuzz/run {{args}}

# licences, advisories and bans; needs cargo-deny
deny:
    cargo deny check

# an archive with the program, its man pages and its completions under target/dist
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
