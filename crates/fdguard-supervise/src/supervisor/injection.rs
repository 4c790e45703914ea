//! The injector's part in the loop.

use std::time::Instant;

use super::Supervisor;

impl Supervisor<'_> {
    pub(super) fn turn_injector(&mut self) {
        if let Some(injector) = &mut self.injector {
            for event in injector.poll(Instant::now()) {
                self.sink.emit(&event);
            }
        }
    }

    /// Releases its descriptors before fdguard's own are counted.
    pub(super) fn end_injector(&mut self) {
        if let Some(mut injector) = self.injector.take() {
            for event in injector.finish() {
                self.sink.emit(&event);
            }
        }
    }
}
