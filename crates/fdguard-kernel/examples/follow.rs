//! Prints what a command opens and closes: `follow COMMAND [ARGUMENT…]`.
#![expect(clippy::print_stdout, reason = "this is what it is for")]

use std::process::Command;
use std::time::{Duration, Instant};

use fdguard_kernel::{KernelTracer, StackMode, TracerOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let mut tracer = KernelTracer::load_with(&TracerOptions {
        mode: StackMode::FramePointers,
        ..TracerOptions::default()
    })?;
    println!("loaded in {:?}", begun.elapsed());
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        return Ok(());
    };
    tracer.follow(std::process::id(), StackMode::FramePointers)?;
    let mut child = Command::new(program).args(arguments).spawn()?;
    loop {
        let ended = child.try_wait()?.is_some();
        tracer.drain(&mut |event| println!("{event:?}"))?;
        if ended {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{:?}", tracer.lost());
    Ok(())
}
