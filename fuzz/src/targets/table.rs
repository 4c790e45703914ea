//! The table that a traced program writes and may damage. Most of a table is empty, so the input is
//! a list of changes to one: where, and which bytes.

use std::cell::RefCell;

use fdguard_wire::{FRAMES, MAGIC, NUMBERS, PreventedHarm, TableImage, TableMapping, VERSION};

thread_local! {
    /// A table without content, except that it is one.
    static TABLE: RefCell<Vec<u8>> = RefCell::new(empty());
}

/// The most stacks, modules and texts that are looked at in one run.
const LOOKED_AT: u16 = 64;

fn empty() -> Vec<u8> {
    let mut table = vec![0; TableMapping::size()];
    table[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    table[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    table
}

pub(crate) fn run(bytes: &[u8]) {
    TABLE.with_borrow_mut(|table| {
        let mut changed = Vec::new();
        let mut rest = bytes;
        while let Some((change, after)) = take_change(rest) {
            let (at, new) = change;
            let at = at.min(table.len() - new.len());
            let place = &mut table[at..at + new.len()];
            changed.push((at, place.to_vec()));
            place.copy_from_slice(new);
            rest = after;
        }
        read(table);
        read(&table[..bytes.len() * 64 % table.len()]);
        for (at, old) in changed.into_iter().rev() {
            table[at..at + old.len()].copy_from_slice(&old);
        }
    });
}

/// A place in the table and its new bytes.
type TableChange<'a> = (usize, &'a [u8]);

/// Four bytes say where, one how many follow. Also returns the rest.
fn take_change(bytes: &[u8]) -> Option<(TableChange<'_>, &[u8])> {
    let (at, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first()?;
    let (new, rest) = rest.split_at_checked(usize::from(*length))?;
    Some(((u32::from_le_bytes(*at) as usize, new), rest))
}

fn read(bytes: &[u8]) {
    let Some(image) = TableImage::new(bytes) else {
        return;
    };
    let (hole, words) = image.hole();
    assert!(hole <= words && words <= image.needed() && image.needed() <= TableMapping::size());
    let _header = (image.pid(), image.parent(), image.comm(), image.omissions());
    let _prevented = image.prevented(PreventedHarm::Use);
    assert!(image.open().count() + image.closed().count() <= NUMBERS);
    let _inherited = image.inherited().count();
    for site in image.sites().take(LOOKED_AT.into()) {
        assert!(image.frames(site.stack).count() <= FRAMES);
    }
    for number in 0..LOOKED_AT {
        let _module = image.module(number).map(|module| module.path.len());
        let _text = image.text(number.into());
        let ticket = image.tickets().wrapping_sub(number.into());
        let at = TableImage::event_at(ticket);
        let _event = TableImage::event(bytes.get(at..).unwrap_or_default(), ticket);
    }
}
