//! Fuzz targets of fdguard's parsers: one per kind of input that another process, a file or the
//! network can make up. Each one also asserts what holds for any input.

#![expect(clippy::expect_used, reason = "a target fails by panicking")]

mod targets {
    pub(crate) mod auxv;
    pub(crate) mod baseline;
    pub(crate) mod boot_id;
    pub(crate) mod bpf_object;
    pub(crate) mod btf;
    pub(crate) mod cgroup;
    pub(crate) mod children;
    pub(crate) mod cmdline;
    pub(crate) mod collapse;
    pub(crate) mod comm;
    pub(crate) mod config;
    pub(crate) mod diag;
    pub(crate) mod document;
    pub(crate) mod elf;
    pub(crate) mod exit_report;
    pub(crate) mod explain;
    pub(crate) mod fdinfo;
    pub(crate) mod foreign;
    pub(crate) mod go_lines;
    pub(crate) mod go_owners;
    pub(crate) mod host;
    pub(crate) mod host_body;
    pub(crate) mod host_guard;
    pub(crate) mod http_request;
    pub(crate) mod http_response;
    pub(crate) mod image;
    pub(crate) mod inspector;
    pub(crate) mod java_heap;
    pub(crate) mod jsonl_tail;
    pub(crate) mod keeper_message;
    pub(crate) mod kernel_record;
    pub(crate) mod kernel_walk;
    pub(crate) mod last_entry;
    pub(crate) mod limits;
    pub(crate) mod link;
    pub(crate) mod locks;
    pub(crate) mod lsof;
    pub(crate) mod machine_code;
    pub(crate) mod maps;
    pub(crate) mod mcp_message;
    pub(crate) mod mountinfo;
    pub(crate) mod net;
    pub(crate) mod node_heap;
    pub(crate) mod notify;
    pub(crate) mod playbook;
    pub(crate) mod program;
    pub(crate) mod python_code;
    pub(crate) mod recording;
    pub(crate) mod redact;
    pub(crate) mod sched;
    pub(crate) mod scope_journal;
    pub(crate) mod service_output;
    pub(crate) mod services;
    pub(crate) mod session_message;
    pub(crate) mod smaps;
    pub(crate) mod sockaddr;
    pub(crate) mod sqlite;
    pub(crate) mod sse;
    pub(crate) mod stat;
    pub(crate) mod status;
    pub(crate) mod syscall;
    pub(crate) mod table;
    pub(crate) mod unit_file;
    pub(crate) mod units;
    pub(crate) mod why;
}

use targets::{
    auxv, baseline, boot_id, bpf_object, btf, cgroup, children, cmdline, collapse, comm, config,
    diag, document, elf, exit_report, explain, fdinfo, foreign, go_lines, go_owners, host,
    host_body, host_guard, http_request, http_response, image, inspector, java_heap, jsonl_tail,
    keeper_message, kernel_record, kernel_walk, last_entry, limits, link, locks, lsof,
    machine_code, maps, mcp_message, mountinfo, net, node_heap, notify, playbook, program,
    python_code, recording, redact, sched, scope_journal, service_output, services,
    session_message, smaps, sockaddr, sqlite, sse, stat, status, syscall, table, unit_file, units,
    why,
};

/// A target: its name, and the function that gets the bytes.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// Every target, by name.
pub const TARGETS: &[FuzzTarget] = &[
    ("auxv", auxv::run),
    ("baseline", baseline::run),
    ("boot_id", boot_id::run),
    ("bpf_object", bpf_object::run),
    ("btf", btf::run),
    ("cgroup", cgroup::run),
    ("children", children::run),
    ("cmdline", cmdline::run),
    ("collapse", collapse::run),
    ("comm", comm::run),
    ("config", config::run),
    ("diag", diag::run),
    ("document", document::run),
    ("elf", elf::run),
    ("exit_report", exit_report::run),
    ("explain", explain::run),
    ("fdinfo", fdinfo::run),
    ("foreign", foreign::run),
    ("go_lines", go_lines::run),
    ("go_owners", go_owners::run),
    ("host", host::run),
    ("host_body", host_body::run),
    ("host_guard", host_guard::run),
    ("http_request", http_request::run),
    ("http_response", http_response::run),
    ("image", image::run),
    ("inspector", inspector::run),
    ("java_heap", java_heap::run),
    ("jsonl_tail", jsonl_tail::run),
    ("keeper_message", keeper_message::run),
    ("kernel_record", kernel_record::run),
    ("kernel_walk", kernel_walk::run),
    ("last_entry", last_entry::run),
    ("limits", limits::run),
    ("link", link::run),
    ("locks", locks::run),
    ("lsof", lsof::run),
    ("machine_code", machine_code::run),
    ("maps", maps::run),
    ("mcp_message", mcp_message::run),
    ("mountinfo", mountinfo::run),
    ("net", net::run),
    ("node_heap", node_heap::run),
    ("notify", notify::run),
    ("playbook", playbook::run),
    ("program", program::run),
    ("python_code", python_code::run),
    ("recording", recording::run),
    ("redact", redact::run),
    ("sched", sched::run),
    ("scope_journal", scope_journal::run),
    ("service_output", service_output::run),
    ("services", services::run),
    ("session_message", session_message::run),
    ("smaps", smaps::run),
    ("sockaddr", sockaddr::run),
    ("sqlite", sqlite::run),
    ("sse", sse::run),
    ("stat", stat::run),
    ("status", status::run),
    ("syscall", syscall::run),
    ("table", table::run),
    ("unit_file", unit_file::run),
    ("units", units::run),
    ("why", why::run),
];

/// The target with this name.
#[must_use]
pub fn find(name: &str) -> Option<fn(&[u8])> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, run)| *run)
}
