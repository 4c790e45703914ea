//! The kernel's walk in real interpreters: the victim prints what it opened, and where.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use fdguard_kernel::{
    CapturedStack, KernelTracer, LoadRefusal, Occurrence, StackMode, TracerScope,
};

use super::tests::interpreter;
use super::{PythonProcesses, find_in_program};
use crate::table::RawFrame;

/// The most frames that the kernel sends.
const MOST: usize = 64;

/// Opens from every kind of code, prints the process, the number and the frames of each, and ends
/// at once.
const VICTIM: &str = r#"
import asyncio, concurrent.futures, contextlib, functools, os, sys, threading
lines = []
def frames(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        file = code.co_filename.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        found.append(f"{file}:{name}:{frame.f_lineno or 0}")
        frame = frame.f_back
    return found
def look(*_):
    fd, want = os.open("/dev/null", os.O_RDONLY), frames(sys._getframe())
    lines.append("\t".join([str(os.getpid()), str(fd), *want]))
    return 1
look()
def deep(n):
    return deep(n - 1) if n else look()
class Größe:
    def naïve(self):
        (lambda: look())()
        return [look() for _ in range(2)], {look() for _ in range(2)}, sum(look() for _ in range(2))
    @functools.lru_cache(maxsize=0)
    def 測量(self):
        def inner():
            yield look()
            yield from (
                look(),
                look(
                    1,
                ),
            )
        return list(inner())
    @property
    def there(self):
        try:
            raise ValueError
        except ValueError:
            look()
        finally:
            look()
def callbacks():
    sorted([2, 1], key=look), list(map(look, [1])), max([1], key=lambda x: look(x))
    class Meta(type):
        def __call__(cls): look(); return super().__call__()
    class Made(metaclass=Meta):
        look()
        def __init__(self): look()
        def __del__(self): look()
    Made()
async def numbers():
    for i in range(2):
        look()
        yield i
        await asyncio.sleep(0)
@contextlib.asynccontextmanager
async def context():
    look()
    yield
async def main():
    await asyncio.sleep(0)
    look()
    async with context():
        assert [i async for i in numbers() if look()] == [0, 1]
    await asyncio.gather(child(2), child(3))
    await asyncio.get_running_loop().run_in_executor(None, look)
async def child(n):
    if n: await child(n - 1)
    await asyncio.sleep(0)
    look()
deep(3), deep(62), deep(100)
Größe().naïve(), Größe().測量(), Größe().there, callbacks()
threads = [threading.Thread(target=deep, args=(n,)) for n in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
with concurrent.futures.ThreadPoolExecutor(2) as pool: list(pool.map(look, range(4)))
asyncio.run(main())
for name in ["/made/up.py", "/größe/測.py", "/odd/\udcff.py", "/" + "long" * 400 + ".py"]:
    text = "\n" * 700 + "def f():\n" + "    x = 1\n" * 400 + "    look()\nf()\n"
    exec(compile(text, name, "exec"), {"look": look})
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    lines.clear()
    look(), deep(2)
else:
    os.waitpid(pid, 0)
os.write(1, ("\n".join(lines) + "\n").encode())
os._exit(0)
"#;

/// What the kernel reported.
#[derive(Default)]
struct Report {
    pythons: PythonProcesses,
    stacks: HashMap<u32, Box<CapturedStack>>,
    /// The stack of the last open of a number.
    opens: HashMap<(u32, u32), u32>,
}

impl Report {
    fn take(&mut self, pid: u32, stack: u32, what: Occurrence) {
        match what {
            Occurrence::PythonCode(code) => self.pythons.add_code(&code),
            Occurrence::Stack(found) => drop(self.stacks.insert(found.number, found)),
            Occurrence::Opened { fd, .. } => _ = self.opens.insert((pid, fd), stack),
            _ => {}
        }
    }

    fn frames(&mut self, pid: u32, fd: u32) -> Vec<String> {
        let stack = self.opens.get(&(pid, fd)).copied().unwrap_or(0);
        let Some(stack) = self.stacks.get(&stack) else {
            return Vec::new();
        };
        let named = self.pythons.name(pid, &stack.language);
        let text = named.iter().map(|frame| match frame {
            RawFrame::Language {
                file,
                function,
                line,
                ..
            } => format!("{file}:{function}:{line}"),
            other => format!("{other:?}"),
        });
        text.collect()
    }
}

fn compare(python: &Path) {
    let mut tracer = match KernelTracer::load(TracerScope::Followed) {
        Ok(tracer) => tracer,
        Err(LoadRefusal::Refused { program, reason }) => panic!("{program}: {reason}"),
        Err(refusal) => return testkit::skip(&refusal.to_string()),
    };
    let file = find_in_program(python).unwrap();
    tracer
        .add_python_file(file.device, file.inode, &file.layout)
        .unwrap();
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    let child = Command::new(python)
        .args(["-c", VICTIM])
        .stdout(Stdio::piped())
        .spawn();
    tracer.unfollow(std::process::id()).unwrap();
    let mut child = child.unwrap();
    let mut text = String::new();
    let output = child.stdout.as_mut().unwrap();
    output.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    let mut report = Report::default();
    tracer
        .drain(&mut |event| report.take(event.pid, event.stack, event.what))
        .unwrap();
    assert_eq!(tracer.lost().events + tracer.lost().stacks, 0);
    let mut compared = 0;
    for line in text.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        let [pid, fd, want @ ..] = parts.as_slice() else {
            continue;
        };
        let found = report.frames(pid.parse().unwrap(), fd.parse().unwrap());
        let want = &want[..want.len().min(MOST)];
        assert_eq!(found, want, "{line}");
        compared += 1;
    }
    assert!(compared > 40, "{compared} opens");
}

fn compare_version(minor: &str) {
    match interpreter(minor) {
        Some(python) => compare(&python),
        None => testkit::skip(&format!("no Python {minor} in pyenv")),
    }
}

#[test]
fn the_kernel_walks_python_3_9() {
    compare_version("3.9");
}

#[test]
fn the_kernel_walks_python_3_10() {
    compare_version("3.10");
}

#[test]
fn the_kernel_walks_python_3_11() {
    compare_version("3.11");
}

#[test]
fn the_kernel_walks_python_3_12() {
    compare_version("3.12");
}

#[test]
fn the_kernel_walks_python_3_13() {
    compare_version("3.13");
}

#[test]
fn the_kernel_walks_an_interpreter_without_a_library() {
    let python = Path::new("/usr/bin/python3");
    match python.exists() {
        true => compare(python),
        false => testkit::skip("no /usr/bin/python3"),
    }
}
