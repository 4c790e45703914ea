//! Reports what a command opens and closes:
//! `follow [--stacks none|frames|copied] [--beside] [--quiet] COMMAND [ARGUMENT…]`.
//!
//! With `--beside` the command itself is not followed, to measure what it costs a bystander.
#![expect(clippy::print_stdout, reason = "this is what it is for")]

use std::process::Command;
use std::time::{Duration, Instant};

use fdguard_kernel::{KernelTracer, Occurrence, StackMode, TracerOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = TracerOptions::default();
    let (mut beside, mut quiet) = (false, false);
    let mut arguments = std::env::args().skip(1).peekable();
    while let Some(option) = arguments.next_if(|argument| argument.starts_with("--")) {
        match &*option {
            "--beside" => beside = true,
            "--quiet" => quiet = true,
            "--stacks" => options.mode = mode(arguments.next().as_deref())?,
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    let begun = Instant::now();
    let mut tracer = KernelTracer::load_with(&options)?;
    if !quiet {
        println!("loaded in {:?}", begun.elapsed());
    }
    let Some(program) = arguments.next() else {
        return Ok(());
    };
    if !beside {
        tracer.follow(std::process::id(), options.mode)?;
    }
    let mut child = Command::new(program).args(arguments).spawn()?;
    let mut events = 0_u64;
    loop {
        let ended = child.try_wait()?;
        tracer.drain(&mut |event| {
            events += 1;
            match &event.what {
                _ if quiet => {}
                Occurrence::Stack(stack) => {
                    let (frames, bytes) = (&stack.frames, stack.memory.len());
                    println!("stack {}: {frames:x?}, {bytes} bytes", stack.number);
                }
                _ => println!("{event:?}"),
            }
        })?;
        if let Some(status) = ended {
            println!("{events} events, {:?}, {status}", tracer.lost());
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn mode(name: Option<&str>) -> Result<StackMode, String> {
    match name {
        Some("none") => Ok(StackMode::None),
        Some("frames") => Ok(StackMode::FramePointers),
        Some("copied") => Ok(StackMode::Copied),
        other => Err(format!("unknown kind of stacks: {other:?}")),
    }
}
