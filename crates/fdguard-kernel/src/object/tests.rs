//! The files that are part of this crate, whole and damaged.

use proptest::prelude::*;

use super::BpfObject;
use crate::loader::{EVENTS, PLACE};

#[test]
fn programs_maps_and_variables_are_found() {
    let object = BpfObject::parse(EVENTS).unwrap();
    let programs: Vec<_> = object.programs().collect();
    assert!(
        programs.contains(&("before_call", "tp_btf/sys_enter")),
        "{programs:?}"
    );
    assert!(object.maps.iter().any(|map| map.name == "events"));
    let (map, _, size) = object.variable("own_pid").unwrap();
    assert_eq!((object.maps[map].name, size), (".rodata", 4));
    let place = BpfObject::parse(PLACE).unwrap();
    assert_eq!(place.programs().count(), 1);
}

proptest! {
    #[test]
    fn any_damage_is_survived(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16)) {
        let mut bytes = PLACE.to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(object) = BpfObject::parse(&bytes) {
            for (_, section) in object.programs() {
                drop(object.link(section, &object.btf));
            }
        }
    }
}
