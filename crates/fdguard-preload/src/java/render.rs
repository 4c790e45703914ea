//! The text of Java frames.

use super::call::RawFrame;
use super::machine::JavaWalk;

/// Classes that the JVM generates for lambdas.
const LAMBDA: &[u8] = b"$$Lambda";

/// The most bytes of one text; the rest is cut.
const MOST: usize = 512;

struct Text {
    bytes: [u8; MOST],
    used: usize,
}

impl Text {
    const fn new() -> Self {
        Self {
            bytes: [0; MOST],
            used: 0,
        }
    }

    fn push(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            let Some(place) = self.bytes.get_mut(self.used) else {
                return;
            };
            *place = byte;
            self.used += 1;
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

/// Passes on file, function and line of each frame, innermost first. The thread must not have moved
/// since it was walked.
pub(crate) fn render(
    frames: &[RawFrame],
    walked: &JavaWalk,
    mut give: impl FnMut(&[u8], &[u8], u32),
) {
    for frame in frames.iter().take(walked.used) {
        let mut file = Text::new();
        let mut function = Text::new();
        if texts(frame, walked, &mut file, &mut function).is_some() {
            give(file.bytes(), function.bytes(), walked.jvmti.line(frame));
        }
    }
}

/// `com/example/Main.java` and `com.example.Main.run`.
fn texts(frame: &RawFrame, walked: &JavaWalk, file: &mut Text, function: &mut Text) -> Option<()> {
    let jvmti = walked.jvmti;
    let class = jvmti.class(walked.jni, frame.method)?;
    let signature = jvmti.signature(&class)?;
    let name = jvmti.name(frame.method)?;
    let bytes = signature.bytes();
    let bytes = bytes.strip_prefix(b"L").unwrap_or(bytes);
    let path = bytes.strip_suffix(b";").unwrap_or(bytes);
    if path.windows(LAMBDA.len()).any(|part| part == LAMBDA) {
        return None;
    }
    let dotted = path.iter().map(|byte| match byte {
        b'/' => b'.',
        other => *other,
    });
    function.push(dotted);
    function.push([b'.']);
    function.push(name.bytes().iter().copied());
    if let Some(source) = jvmti.file(&class) {
        let package = path.iter().rposition(|byte| *byte == b'/');
        let package = package.map_or(0, |at| at + 1);
        file.push(path.iter().take(package).copied());
        file.push(source.bytes().iter().copied());
    }
    Some(())
}
