mod coverage;
mod life;
mod model;
mod permission;
mod stacks;

use fdguard_kernel::{KernelTracer, LoadRefusal, TracerOptions};

/// The tracer, where the kernel lets this user have it.
fn load(options: &TracerOptions) -> Option<KernelTracer> {
    match KernelTracer::load_with(options) {
        Ok(tracer) => Some(tracer),
        Err(refusal @ (LoadRefusal::NotPermitted | LoadRefusal::NoTypes)) => {
            testkit::skip(&refusal.to_string());
            None
        }
        Err(refusal) => panic!("{refusal}"),
    }
}
