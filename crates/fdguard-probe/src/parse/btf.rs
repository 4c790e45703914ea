//! BTF, the kernel's description of its own types (`/sys/kernel/btf/vmlinux`), as far as needed to
//! find fields: the offset and the size of a member of a structure.

/// The magic number at the start, in the machine's own byte order.
const MAGIC: u16 = 0xeb9f;
/// Size of the part that every type has.
const HEAD: usize = 12;
/// Anonymous structures and chains of type names nest this deep at most.
const DEPTH: usize = 16;
/// The most members that are searched for one: nested structures may form a maze.
const MEMBERS: usize = 1 << 16;
const POINTER: u32 = 8;

/// The kinds of types that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A structure.
    Struct,
    /// A function.
    Function,
}

/// Offset of a member in its structure, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtfMember {
    /// Bytes from the start of the structure.
    pub offset: u32,
    /// Its size in bytes; 0 for an array without a fixed length.
    pub size: u32,
}

/// A parsed description; types are numbered from 1.
#[derive(Debug)]
pub struct Btf<'a> {
    /// The bytes of all types.
    types: &'a [u8],
    /// Where in them each type begins.
    starts: Vec<u32>,
    strings: &'a [u8],
}

/// The part that every type has.
#[derive(Clone, Copy)]
struct Head {
    name: u32,
    kind: u32,
    length: usize,
    /// Whether the members' offsets share their word with the width of a bit field.
    packed: bool,
    /// Its size, or the type that it refers to.
    word: u32,
}

impl<'a> Btf<'a> {
    /// Finds the types; `None` if it is not BTF, or has an unknown kind of type.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let field = |index: usize| usize::try_from(word(bytes, 4 + index * 4)?).ok();
        let body = bytes.get(field(0)?..)?;
        let part = |offset: usize, length: usize| body.get(offset..)?.get(..length);
        let types = part(field(1)?, field(2)?)?;
        let strings = part(field(3)?, field(4)?)?;
        let mut starts = Vec::with_capacity(types.len() / 32);
        let mut at = 0;
        while at < types.len() {
            let head = Head::at(types, at)?;
            starts.push(u32::try_from(at).ok()?);
            at = at.checked_add(HEAD)?.checked_add(head.tail()?)?;
        }
        Some(Self {
            types,
            starts,
            strings,
        })
    }

    /// The ids of all types of this kind and name: a kernel may have two structures with one name.
    pub fn named(&self, kind: Kind, name: &str) -> impl Iterator<Item = u32> {
        let wanted = match kind {
            Kind::Struct => 4,
            Kind::Function => 12,
        };
        let types = self.starts.iter().zip(1..);
        types.filter_map(move |(start, id)| {
            let head = Head::at(self.types, *start as usize)?;
            (head.kind == wanted && self.is_named(head.name, name)).then_some(id)
        })
    }

    /// A member of a structure, also one of an anonymous structure or union inside.
    #[must_use]
    pub fn member(&self, structure: u32, name: &str) -> Option<BtfMember> {
        let mut budget = MEMBERS;
        self.member_within(structure, name, DEPTH, &mut budget)
    }

    /// The size of a type.
    #[must_use]
    pub fn size(&self, id: u32) -> Option<u32> {
        self.size_within(id, DEPTH)
    }

    fn member_within(
        &self,
        structure: u32,
        name: &str,
        depth: usize,
        budget: &mut usize,
    ) -> Option<BtfMember> {
        let (head, start) = self.head(structure)?;
        if !matches!(head.kind, 4 | 5) || depth == 0 {
            return None;
        }
        let mut at = start + HEAD;
        for _ in 0..head.length {
            *budget = budget.checked_sub(1)?;
            let label = word(self.types, at)?;
            let of = word(self.types, at + 4)?;
            let mut bits = word(self.types, at + 8)?;
            at += 12;
            if head.packed {
                if bits >> 24 != 0 {
                    continue;
                }
                bits &= 0xff_ffff;
            }
            let offset = bits / 8;
            if self.is_named(label, name) {
                let size = self.size(of)?;
                return Some(BtfMember { offset, size });
            }
            if label == 0
                && let Some(inner) = self.member_within(of, name, depth - 1, budget)
            {
                let offset = offset.checked_add(inner.offset)?;
                return Some(BtfMember { offset, ..inner });
            }
        }
        None
    }

    fn size_within(&self, id: u32, depth: usize) -> Option<u32> {
        let (head, start) = self.head(id)?;
        match head.kind {
            1 | 4 | 5 | 6 | 16 | 19 => Some(head.word),
            2 => Some(POINTER),
            3 => {
                let each = word(self.types, start + HEAD)?;
                let count = word(self.types, start + HEAD + 8)?;
                let each = self.size_within(each, depth.checked_sub(1)?)?;
                each.checked_mul(count)
            }
            8..=11 | 18 => self.size_within(head.word, depth.checked_sub(1)?),
            _ => None,
        }
    }

    fn head(&self, id: u32) -> Option<(Head, usize)> {
        let index = usize::try_from(id.checked_sub(1)?).ok()?;
        let start = *self.starts.get(index)? as usize;
        Some((Head::at(self.types, start)?, start))
    }

    fn is_named(&self, at: u32, name: &str) -> bool {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&0))
    }
}

impl Head {
    fn at(types: &[u8], at: usize) -> Option<Self> {
        let bytes: &[u8; HEAD] = types.get(at..)?.first_chunk()?;
        let info = word(bytes, 4)?;
        Some(Self {
            name: word(bytes, 0)?,
            kind: info >> 24 & 0x1f,
            length: (info & 0xffff) as usize,
            packed: info >> 31 == 1,
            word: word(bytes, 8)?,
        })
    }

    /// How many bytes follow the head; `None` for an unknown kind.
    fn tail(self) -> Option<usize> {
        Some(match self.kind {
            1 | 14 | 17 => 4,
            2 | 7..=12 | 16 | 18 => 0,
            3 => 12,
            4 | 5 | 15 | 19 => self.length * 12,
            6 | 13 => self.length * 8,
            _ => return None,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
