//! Runs one target: with libFuzzer (see `fuzz/run`), or once for each file that is named.
#![cfg_attr(feature = "libfuzzer", no_main)]

/// With libFuzzer, which reads the arguments itself: the variable names the target.
#[cfg(feature = "libfuzzer")]
mod with_libfuzzer {
    use std::sync::OnceLock;

    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

    libfuzzer_sys::fuzz_target!(
        init: {
            let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
            let Some(run) = fdguard_fuzz::find(&name) else {
                panic!("FUZZ_TARGET names no target: {name:?}");
            };
            let _first = TARGET.set(run);
        },
        |bytes: &[u8]| {
            if let Some(run) = TARGET.get() {
                run(bytes);
            }
        }
    );
}

/// `fuzz TARGET FILE…` runs each file once; `fuzz` alone lists the targets.
#[cfg(not(feature = "libfuzzer"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write as _;

    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        let mut out = std::io::stdout().lock();
        for (name, _) in fdguard_fuzz::TARGETS {
            writeln!(out, "{name}")?;
        }
        return Ok(());
    };
    let Some(run) = fdguard_fuzz::find(&name) else {
        return Err(format!("unknown target {name:?}").into());
    };
    for file in arguments {
        run(&std::fs::read(file)?);
    }
    Ok(())
}
