//! JavaScript lines of a Node program that already runs: fdguard has Node open its inspector on the
//! loopback, gives it the agent there, and has the inspector closed again. See decision 089.

mod options;
mod port;
mod session;
mod websocket;

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fdguard_core::Gap;
use fdguard_core::units::exact_seconds;
use fdguard_proc::maps::mappings;
use fdguard_proc::{cmdline, environ, link};
use fdguard_wire::{InspectorAnswer, InspectorRequest};

use options::NodeOptions;
use port::PortHolder;
use session::Leaver;

/// The agent's text, which a launched Node loads as a module.
pub(crate) const AGENT: &str = include_str!("agent.js");
/// The name of the agent's script in a program that already runs.
const SCRIPT: &str = "fdguard-node-agent";
/// How long the inspector may take to appear, and to go.
const PATIENCE: Duration = Duration::from_secs(2);

/// A Node program, and what it takes to give it the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeProgram {
    pid: u32,
    /// Where its own code is.
    code: InspectorRequest,
    port: u16,
    /// The address of an inspector that was open before.
    open: Option<SocketAddr>,
}

/// Why there are no JavaScript lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentFailure {
    pid: u32,
    reason: String,
    way: String,
    /// Whether Node was asked to open its inspector, and may do so yet.
    may_open: bool,
}

impl NodeProgram {
    /// `None` for other programs; an error if this one cannot get the agent.
    pub(crate) fn examine(pid: u32) -> Option<Result<Self, AgentFailure>> {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let code = code(&maps)?;
        Some(Self::prepare(pid, code))
    }

    fn prepare(pid: u32, code: InspectorRequest) -> Result<Self, AgentFailure> {
        let fail = |reason: String| Err(AgentFailure::new(pid, reason));
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let variable = environ::values(&variables, "NODE_OPTIONS").next();
        let words = cmdline::arguments(&arguments);
        let options = NodeOptions::parse(words, variable.unwrap_or_default());
        if options.is_restricted {
            return fail("Node's --permission denies its inspector".to_owned());
        }
        if options.port == 0 {
            return fail("its options let the inspector choose any port".to_owned());
        }
        // Before the inspector opens: it could not be closed again.
        if let Err(error) = session::check_network(pid) {
            let reason = format!("it is in another network namespace: {error}");
            return Err(AgentFailure {
                way: "run fdguard with sudo".to_owned(),
                ..AgentFailure::new(pid, reason)
            });
        }
        let port = options.port;
        let open = match PortHolder::find(pid, port) {
            PortHolder::Own(address) => Some(address),
            PortHolder::Other => {
                return fail(format!(
                    "port {port}, on which Node would open its inspector, is in use by another process"
                ));
            }
            PortHolder::Free if options.is_disabled => {
                return fail("it was started with --disable-sigusr1".to_owned());
            }
            PortHolder::Free => None,
        };
        Ok(Self {
            pid,
            code,
            port,
            open,
        })
    }

    /// Where its inspector listens, for a moment.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Gives it the agent. The library records already; `wake` calls its function.
    pub(crate) fn install(
        &self,
        wake: impl FnOnce(&[u8]) -> Result<i32, String>,
    ) -> Result<(), AgentFailure> {
        let answer = self.evaluate(expression, wake)?;
        match answer.as_str() {
            "installed" => Ok(()),
            "unheard" => Err(AgentFailure::new(
                self.pid,
                "the program replaced fs.existsSync".to_owned(),
            )),
            _ => Err(AgentFailure::new(
                self.pid,
                "this version of Node is not known".to_owned(),
            )),
        }
    }

    /// Evaluates a text, which closes the inspector if it is to leave, and returns its string.
    fn evaluate(
        &self,
        text: impl FnOnce(Leaver) -> String,
        wake: impl FnOnce(&[u8]) -> Result<i32, String>,
    ) -> Result<String, AgentFailure> {
        let address = match self.open {
            Some(address) => address,
            None => self.open_inspector(wake)?,
        };
        let is_ours = self.open.is_none();
        let leaver = if is_ours {
            Leaver::Node
        } else {
            Leaver::Client
        };
        let answer = session::evaluate(self.pid, address, text(leaver), leaver);
        let is_closed = !is_ours || self.wait_until_closed();
        match answer {
            Err(error) => Err(AgentFailure {
                may_open: is_ours && !is_closed,
                ..AgentFailure::new(self.pid, format!("the inspector on {address}: {error}"))
            }),
            Ok(_) if !is_closed => Err(AgentFailure::still_open(self.pid, address)),
            Ok(answer) => Ok(answer),
        }
    }

    /// Evaluates an expression in the main thread, and returns its string.
    pub(crate) fn ask(
        &self,
        expression: &str,
        wake: impl FnOnce(&[u8]) -> Result<i32, String>,
    ) -> Result<String, AgentFailure> {
        let text = |leaver| {
            let close = closing(leaver);
            format!(
                "(() => {{ try {{ return (\n{expression}\n) }} finally {{ {close} }} }})()\n\
                 //# sourceURL={SCRIPT}\n"
            )
        };
        self.evaluate(text, wake)
    }

    /// Has Node open its inspector, and waits for it.
    fn open_inspector(
        &self,
        wake: impl FnOnce(&[u8]) -> Result<i32, String>,
    ) -> Result<SocketAddr, AgentFailure> {
        let fail = |reason: &str| Err(AgentFailure::new(self.pid, reason.to_owned()));
        let answer =
            wake(&self.code.to_bytes()).map_err(|reason| AgentFailure::new(self.pid, reason))?;
        match InspectorAnswer::of(answer) {
            Some(InspectorAnswer::Woken) => {}
            Some(InspectorAnswer::Handled) => {
                return fail("the program handles SIGUSR1 itself, which opens Node's inspector");
            }
            Some(InspectorAnswer::Unhandled) => {
                return fail("Node does not listen for SIGUSR1, which opens its inspector");
            }
            Some(InspectorAnswer::BadRequest) | None => {
                return fail("the injected library gave no valid answer");
            }
        }
        let found = wait_for(|| match PortHolder::find(self.pid, self.port) {
            PortHolder::Own(address) => Some(address),
            PortHolder::Free | PortHolder::Other => None,
        });
        found.ok_or_else(|| AgentFailure {
            may_open: true,
            ..AgentFailure::new(
                self.pid,
                format!(
                    "Node did not open its inspector on port {} within {}: its main thread was busy",
                    self.port,
                    exact_seconds(PATIENCE)
                ),
            )
        })
    }

    fn wait_until_closed(&self) -> bool {
        wait_for(|| match PortHolder::find(self.pid, self.port) {
            PortHolder::Own(_) => None,
            PortHolder::Free | PortHolder::Other => Some(()),
        })
        .is_some()
    }

    /// Closes an inspector that opened later than fdguard waited for it.
    pub(crate) fn close_late(&self) {
        if let PortHolder::Own(address) = PortHolder::find(self.pid, self.port) {
            // The report has a gap about it already.
            let text = format!("{CLOSE}; 'closed'");
            drop(session::evaluate(self.pid, address, text, Leaver::Node));
            self.wait_until_closed();
        }
    }
}

impl AgentFailure {
    fn new(pid: u32, reason: String) -> Self {
        Self {
            pid,
            reason,
            way: "start it with fdguard trace -- COMMAND".to_owned(),
            may_open: false,
        }
    }

    /// fdguard was told to leave the inspector alone.
    pub(crate) fn unwanted(pid: u32) -> Self {
        Self {
            way: "omit --no-inspector, or start it with fdguard trace -- COMMAND".to_owned(),
            ..Self::new(
                pid,
                "--no-inspector leaves Node's inspector closed".to_owned(),
            )
        }
    }

    fn still_open(pid: u32, address: SocketAddr) -> Self {
        Self {
            way: "run process._debugEnd() in it, or restart it".to_owned(),
            may_open: true,
            ..Self::new(pid, format!("its inspector is still open on {address}"))
        }
    }

    /// Whether the inspector may be open without anybody who uses it.
    pub(crate) fn may_open(&self) -> bool {
        self.may_open
    }

    pub(crate) fn gap(&self) -> Gap {
        let what = format!("the JavaScript lines of process {}", self.pid);
        Gap::new(what, &*self.reason, &*self.way)
    }

    /// The reason, without the process.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }
}

/// Where the code of Node is, if it is Node: in the program or in its library.
fn code(maps: &[u8]) -> Option<InspectorRequest> {
    let of_node = mappings(maps).filter(|mapping| is_node(mapping.path));
    let range = of_node.map(|mapping| (mapping.start, mapping.end));
    let (start, end) = range.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))?;
    Some(InspectorRequest { start, end })
}

fn is_node(path: &[u8]) -> bool {
    let name = link::file_name(path);
    name == b"node" || name == b"nodejs" || name.starts_with(b"libnode.so")
}

/// Waits until there is an answer, or the time is over.
fn wait_for<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Closes the inspector when this message has been answered. The timer does not keep the program.
const CLOSE: &str = "(process.getBuiltinModule || require)('timers')\
    .setTimeout(() => process._debugEnd(), 0).unref()";

/// What closes the inspector, if it is to be closed.
fn closing(leaver: Leaver) -> &'static str {
    match leaver {
        Leaver::Node => CLOSE,
        Leaver::Client => "",
    }
}

/// The agent, evaluated in the program. Its value is what became of it.
fn expression(leaver: Leaver) -> String {
    let close = closing(leaver);
    format!(
        "((fdguardRequire) => {{\n\
         try {{\n\
         ((require, module, __filename) => {{\n{AGENT}\n}})(fdguardRequire, undefined, '{SCRIPT}');\n\
         if (Symbol.for('fdguard.agent') in process) return 'installed';\n\
         return fdguardRequire('fs').existsSync('/\\u0001fdguard/node/here') ? 'unknown' : 'unheard';\n\
         }} finally {{ {close} }}\n\
         }})(process.getBuiltinModule || require)\n\
         //# sourceURL={SCRIPT}\n"
    )
}

/// Reads any bytes as answers of an inspector, for the fuzz target: what is whole is the same
/// without what follows it. The bytes are also read as Node's options.
#[cfg(feature = "fuzzing")]
pub fn fuzz_inspector(bytes: &[u8]) {
    let lengths = |bytes: &[u8]| {
        let answer = websocket::HttpAnswer::parse(bytes).ok().flatten();
        let frame = websocket::ServerFrame::parse(bytes).ok().flatten();
        [answer.map(|one| one.length), frame.map(|one| one.length)]
    };
    for length in lengths(bytes).into_iter().flatten() {
        assert!(length <= bytes.len());
        let whole = bytes.get(..length).unwrap_or_default();
        assert!(lengths(whole).contains(&Some(length)));
    }
    let _options = NodeOptions::parse(cmdline::arguments(bytes), bytes);
    let _code = code(bytes);
}

#[cfg(test)]
mod tests {
    use super::{Leaver, code, expression, is_node};

    #[test]
    fn node_is_known_by_its_file() {
        for name in [
            "/usr/bin/node",
            "/x/nodejs (deleted)",
            "/usr/lib/libnode.so.108",
        ] {
            assert!(is_node(name.as_bytes()), "{name}");
        }
        for name in ["/usr/bin/python3", "/x/node_modules/a.node", "/x/node-gyp"] {
            assert!(!is_node(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn its_code_is_all_that_is_mapped_of_it() {
        let maps = b"00400000-00500000 r--p 00000000 08:01 7 /usr/bin/node\n\
            00500000-00900000 r-xp 00100000 08:01 7 /usr/bin/node\n\
            7f0000000000-7f0000100000 r-xp 00000000 08:01 8 /usr/lib/libc.so.6\n";
        let code = code(maps).unwrap();
        assert_eq!((code.start, code.end), (0x40_0000, 0x90_0000));
        assert_eq!(super::code(b""), None);
    }

    #[test]
    fn only_an_inspector_of_fdguard_is_closed() {
        assert!(expression(Leaver::Node).contains("_debugEnd"));
        assert!(!expression(Leaver::Client).contains("_debugEnd"));
    }
}
