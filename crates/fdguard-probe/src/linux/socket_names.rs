//! The names of socket types and protocols, by the kernel's numbers.

use std::borrow::Cow;

/// `SOCK_STREAM` and so on.
pub(super) fn kind_name(number: u32) -> Option<Cow<'static, str>> {
    Some(Cow::Borrowed(match number {
        1 => "stream",
        2 => "dgram",
        3 => "raw",
        4 => "rdm",
        5 => "seqpacket",
        6 => "dccp",
        10 => "packet",
        _ => return None,
    }))
}

/// `IPPROTO_ICMP` and so on.
pub(super) fn ip_protocol(number: u16) -> String {
    let name = match number {
        1 => "ICMP",
        2 => "IGMP",
        4 => "IPIP",
        6 => "TCP",
        17 => "UDP",
        41 => "IPv6",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        58 => "ICMPv6",
        89 => "OSPF",
        103 => "PIM",
        112 => "VRRP",
        132 => "SCTP",
        136 => "UDP-Lite",
        255 => "RAW",
        other => return format!("protocol {other}"),
    };
    name.to_owned()
}

/// `NETLINK_ROUTE` and so on.
pub(super) fn netlink_family(number: u32) -> String {
    let name = match number {
        0 => "ROUTE",
        2 => "USERSOCK",
        4 => "SOCK_DIAG",
        5 => "NFLOG",
        6 => "XFRM",
        7 => "SELINUX",
        8 => "ISCSI",
        9 => "AUDIT",
        10 => "FIB_LOOKUP",
        11 => "CONNECTOR",
        12 => "NETFILTER",
        14 => "DNRTMSG",
        15 => "KOBJECT_UEVENT",
        16 => "GENERIC",
        18 => "SCSITRANSPORT",
        19 => "ECRYPTFS",
        20 => "RDMA",
        21 => "CRYPTO",
        22 => "SMC",
        other => return format!("family {other}"),
    };
    name.to_owned()
}
