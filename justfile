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

# check licences, sources and bans; with cargo-deny also advisories
deny:
    cargo run -q -p xtask -- dependencies
    if command -v cargo-deny >/dev/null; then cargo deny check; fi

# make what a release has, in target/dist: archive, .deb, wheels, npm packages, SBOM, checksums
dist *args:
    packaging/dist {{args}}

# install each artefact of target/dist in a clean place and use it there
verify *args:
    packaging/verify {{args}}

# build twice in two directories and compare the artefacts byte by byte
reproduce *args:
    packaging/reproduce {{args}}

# pack every published crate and build it from what was packed
crates *args:
    packaging/crates {{args}}
