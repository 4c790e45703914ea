//! The names of classes, fields, threads and methods, as bytes. `fdguard-why` reads them.

use fdguard_wire::JavaRoot;

use super::super::call::{Jni, Jvmti, Local, RawFrame};
use super::jvm::Items;
use super::record::Records;

const CLASS: u8 = b'C';
const THREAD: u8 = b'T';
const METHOD: u8 = b'M';
const STATIC: u8 = 1;
const REFERENCE: u8 = 2;
/// More frames than this are not named.
const MOST_METHODS: usize = 4096;
const STACK_LOCAL: u64 = 24;

impl Records {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.is_partial |= !self.text.push(*byte);
        }
    }

    /// A length in two bytes, and the text.
    fn name(&mut self, bytes: &[u8]) {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.bytes(&length.to_le_bytes());
        self.bytes(bytes.get(..usize::from(length)).unwrap_or_default());
    }

    fn number(&mut self, tag: i64) {
        self.bytes(&u32::try_from(tag).unwrap_or(0).to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.bytes(&u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
    }

    /// Every class: its tag, its superclass, its interfaces, its name, its own fields in order.
    pub(super) fn name_classes(&mut self, jvmti: Jvmti, jni: Jni, classes: &Items) {
        for index in 0..classes.len() {
            let Some(class) = classes.borrow(jni, index) else {
                continue;
            };
            let Some(signature) = jvmti.signature(&class) else {
                continue;
            };
            self.bytes(&[CLASS]);
            self.number(jvmti.tag(&class));
            let above = jni.superclass(&class);
            self.number(above.map_or(0, |above| jvmti.tag(&above)));
            self.name_interfaces(jvmti, jni, &class);
            self.name(signature.bytes());
            self.name_fields(jvmti, &class);
        }
    }

    fn name_interfaces(&mut self, jvmti: Jvmti, jni: Jni, class: &Local) {
        let interfaces = jvmti.interfaces(class);
        let count = interfaces.as_ref().map_or(0, Items::len);
        let count = count.min(usize::from(u16::MAX));
        self.count(count);
        for index in 0..count {
            let one = interfaces.as_ref().and_then(|all| all.take(jni, index));
            self.number(one.map_or(0, |one| jvmti.tag(&one)));
        }
    }

    fn name_fields(&mut self, jvmti: Jvmti, class: &Local) {
        let fields = jvmti.fields(class);
        let count = fields.as_ref().map_or(0, Items::len);
        let count = count.min(usize::from(u16::MAX));
        self.count(count);
        for index in 0..count {
            let field = fields.as_ref();
            let field = field.and_then(|fields| jvmti.field(class, fields, index));
            let Some((name, kind, is_static)) = field else {
                self.bytes(&[0]);
                self.count(0);
                continue;
            };
            let is_reference = matches!(kind.bytes().first(), Some(b'L' | b'['));
            let flags = [(is_static, STATIC), (is_reference, REFERENCE)];
            let flags = flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag);
            self.bytes(&[flags.fold(0, |all, flag| all | flag)]);
            self.name(name.bytes());
        }
    }

    /// Every thread: its tag and its name.
    pub(super) fn name_threads(&mut self, jvmti: Jvmti, jni: Jni, threads: &Items) {
        for index in 0..threads.len() {
            let Some(thread) = threads.borrow(jni, index) else {
                continue;
            };
            let Some(name) = jvmti.thread_name(jni, &thread) else {
                continue;
            };
            self.bytes(&[THREAD]);
            self.number(jvmti.tag(&thread));
            self.name(name.bytes());
        }
    }

    /// The method of each local variable: its place, its class, its name, its file and its line.
    pub(super) fn name_methods(&mut self, jvmti: Jvmti, jni: Jni) {
        let mut last = (0, 0);
        let mut named = 0;
        for index in 0..self.roots.count() {
            let root = self.roots.get(index).unwrap_or_default();
            let place = (root.method, root.location);
            if root.kind != STACK_LOCAL || root.method == 0 || place == last {
                continue;
            }
            last = place;
            named += 1;
            if named > MOST_METHODS {
                return;
            }
            let _ = self.name_method(jvmti, jni, &root);
        }
    }

    fn name_method(&mut self, jvmti: Jvmti, jni: Jni, root: &JavaRoot) -> Option<()> {
        let frame = RawFrame::new(root.method, root.location);
        let class = jvmti.class(jni, frame.method)?;
        let signature = jvmti.signature(&class)?;
        let name = jvmti.name(frame.method)?;
        self.bytes(&[METHOD]);
        self.bytes(&root.method.to_le_bytes());
        self.bytes(&root.location.to_le_bytes());
        self.name(signature.bytes());
        self.name(name.bytes());
        match jvmti.file(&class) {
            Some(file) => self.name(file.bytes()),
            None => self.name(&[]),
        }
        self.bytes(&jvmti.line(&frame).to_le_bytes());
        Some(())
    }
}
