//! Names and types of BPF objects.

use std::os::fd::AsFd as _;

use fdguard_core::detail::OtherDetail;
use fdguard_core::{Class, Detail, Text};
use fdguard_proc::ascii::decimal;

use super::Context;
use crate::linux::borrow::Borrower;
use crate::linux::table::TableDraft;
use fdguard_kernel::call;

/// Offset of the name in `struct bpf_map_info` and `struct bpf_prog_info`.
const MAP_NAME: std::ops::Range<usize> = 24..40;
const PROGRAM_NAME: std::ops::Range<usize> = 64..80;

/// Adds `type` to maps and programs, and `name` if the kernel provides it.
pub(super) fn describe(context: &Context<'_>, table: &mut TableDraft) {
    let mut borrower = None;
    for entry in &mut table.entries {
        let (key, names, place) = match entry.class {
            Class::BpfMap => ("map_type", MAPS, MAP_NAME),
            Class::BpfProg => ("prog_type", PROGRAMS, PROGRAM_NAME),
            _ => continue,
        };
        let Detail::Fields(OtherDetail { fields }) = &mut entry.detail else {
            continue;
        };
        let id_key = key.replace("type", "id");
        let object_id = fields
            .get(&id_key)
            .and_then(|text| decimal(text.as_bytes()));
        let number = fields.get(key).and_then(|text| decimal(text.as_bytes()));
        let number = number.and_then(|number| usize::try_from(number).ok());
        if let Some(name) = number.and_then(|number| names.split(' ').nth(number)) {
            fields.insert("type".to_owned(), Text::from(name));
        }
        let Some(id) = entry.id.filter(|_| context.probe.real) else {
            continue;
        };
        let borrower = borrower.get_or_insert_with(|| Borrower::new(table.pid));
        let object = borrower.as_ref().map(|it| it.borrow(entry.fd, id.ino));
        let info = object.and_then(|object| call::object_info(object.ok()?.as_fd()).ok());
        // They all share one inode: the object id shows whether it is the same.
        let info = info.filter(|info| object_id == Some(id_in(info)));
        if let Some(name) = info.and_then(|info| name_in(&info, place)) {
            fields.insert("name".to_owned(), Text::from(&*name));
        }
    }
}

/// The id of the object: both structures begin with type and id.
fn id_in(info: &[u8; 128]) -> u64 {
    u64::from(u32::from_ne_bytes([info[4], info[5], info[6], info[7]]))
}

fn name_in(info: &[u8], place: std::ops::Range<usize>) -> Option<Vec<u8>> {
    let name = info.get(place)?;
    let name: Vec<u8> = name.iter().copied().take_while(|byte| *byte != 0).collect();
    (!name.is_empty()).then_some(name)
}

/// `enum bpf_map_type`, in order.
const MAPS: &str = "\
    unspec hash array prog-array perf-event-array percpu-hash percpu-array stack-trace \
    cgroup-array lru-hash lru-percpu-hash lpm-trie array-of-maps hash-of-maps devmap sockmap \
    cpumap xskmap sockhash cgroup-storage reuseport-sockarray percpu-cgroup-storage queue \
    stack sk-storage devmap-hash struct-ops ringbuf inode-storage task-storage bloom-filter \
    user-ringbuf cgrp-storage arena";

/// `enum bpf_prog_type`, in order.
const PROGRAMS: &str = "\
    unspec socket-filter kprobe sched-cls sched-act tracepoint xdp perf-event cgroup-skb \
    cgroup-sock lwt-in lwt-out lwt-xmit sock-ops sk-skb cgroup-device sk-msg raw-tracepoint \
    cgroup-sock-addr lwt-seg6local lirc-mode2 sk-reuseport flow-dissector cgroup-sysctl \
    raw-tracepoint-writable cgroup-sockopt tracing struct-ops ext lsm sk-lookup syscall \
    netfilter";
