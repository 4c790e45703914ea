//! BTF, the description of types that the kernel has of its own (`/sys/kernel/btf/vmlinux`), and a
//! compiled program of those it uses: as far as needed to find the fields of structures.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A structure.
    Struct,
    /// A function.
    Function,
    /// Another name for a type.
    Typedef,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Self::Struct => 4,
            Self::Typedef => 8,
            Self::Function => 12,
        }
    }

    fn of_number(number: u32) -> Option<Self> {
        match number {
            4 => Some(Self::Struct),
            8 => Some(Self::Typedef),
            12 => Some(Self::Function),
            _ => None,
        }
    }
}

/// Offset of a member in its structure, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtfMember {
    /// Bytes from the start of the structure.
    pub offset: u32,
    /// Its size in bytes; 0 for an array without a fixed length.
    pub size: u32,
    /// Its type.
    pub of: u32,
}

/// What a type is, for one step into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BtfShape {
    /// A structure or union with so many members.
    Members(usize),
    /// An array of this type.
    Array(u32),
    /// Anything else.
    Other,
}

/// Names that are looked for while the types are read.
#[derive(Debug)]
struct NameIndex<'a> {
    names: Vec<(Kind, &'a [u8])>,
    /// Which kinds any of them has, as bits.
    kinds: u32,
    /// Which hashes of the first eight bytes: few other names have one of those.
    starts: Vec<u64>,
}

/// A parsed description; types are numbered from 1.
#[derive(Debug)]
pub struct Btf<'a> {
    /// The bytes of all types.
    types: &'a [u8],
    /// Where in them each type begins.
    starts: Vec<u32>,
    strings: &'a [u8],
    /// Types that were looked for while it was parsed.
    index: Vec<(Kind, Vec<u8>, Vec<u32>)>,
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
        Self::parse_for(bytes, &[])
    }

    /// The same, and finds the types of these names in the same pass: a kernel has more than a
    /// hundred thousand types.
    #[must_use]
    pub fn parse_for(bytes: &'a [u8], wanted: &[(Kind, &str)]) -> Option<Self> {
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let field = |index: usize| usize::try_from(word(bytes, 4 + index * 4)?).ok();
        let body = bytes.get(field(0)?..)?;
        let part = |offset: usize, length: usize| body.get(offset..)?.get(..length);
        let types = part(field(1)?, field(2)?)?;
        let strings = part(field(3)?, field(4)?)?;
        let wanted = NameIndex::new(wanted);
        let mut found = vec![Vec::new(); wanted.names.len()];
        let mut starts = Vec::with_capacity(types.len() / 20);
        let mut at = 0;
        while at < types.len() {
            let head = Head::at(types, at)?;
            starts.push(u32::try_from(at).ok()?);
            if let Some(index) = wanted.find(&head, strings) {
                found
                    .get_mut(index)?
                    .push(u32::try_from(starts.len()).ok()?);
            }
            at = at.checked_add(HEAD)?.checked_add(head.tail()?)?;
        }
        let index = wanted.names.iter().zip(found);
        let index = index.map(|((kind, name), ids)| (*kind, name.to_vec(), ids));
        Some(Self {
            types,
            starts,
            strings,
            index: index.collect(),
        })
    }

    /// The ids of all types of this kind and name: a kernel may have two structures with one name.
    #[must_use]
    pub fn named(&self, kind: Kind, name: &str) -> Vec<u32> {
        let known = self
            .index
            .iter()
            .find(|(of, known, _)| *of == kind && known == name.as_bytes());
        if let Some((_, _, ids)) = known {
            return ids.clone();
        }
        let types = self.starts.iter().zip(1..);
        let named = types.filter_map(|(start, id)| {
            let head = Head::at(self.types, *start as usize)?;
            (head.kind == kind.number() && self.is_named(head.name, name)).then_some(id)
        });
        named.collect()
    }

    /// How many types there are: their ids are from 1 to this.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The name of a type; empty if it has none.
    #[must_use]
    pub fn name(&self, id: u32) -> Option<&'a str> {
        let (head, _) = self.head(id)?;
        self.string(head.name)
    }

    /// A string, by its offset.
    #[must_use]
    pub fn string(&self, at: u32) -> Option<&'a str> {
        let rest = self.strings.get(at as usize..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(rest.get(..end)?).ok()
    }

    /// What a type is behind its other names and qualifiers, and the id of that.
    #[must_use]
    pub fn shape(&self, mut id: u32) -> Option<(u32, BtfShape)> {
        for _ in 0..DEPTH {
            let (head, start) = self.head(id)?;
            let shape = match head.kind {
                8..=11 | 18 => {
                    id = head.word;
                    continue;
                }
                4 | 5 => BtfShape::Members(head.length),
                3 => BtfShape::Array(word(self.types, start + HEAD)?),
                _ => BtfShape::Other,
            };
            return Some((id, shape));
        }
        None
    }

    /// The member of a structure at this place of its list: name, offset in bytes, and type.
    #[must_use]
    pub fn member_at(&self, structure: u32, index: usize) -> Option<(&'a str, u32, u32)> {
        let (head, start) = self.head(structure)?;
        if !matches!(head.kind, 4 | 5) || index >= head.length {
            return None;
        }
        let at = start + HEAD + index * 12;
        let mut bits = word(self.types, at + 8)?;
        if head.packed {
            bits &= 0xff_ffff;
        }
        let name = self.string(word(self.types, at)?)?;
        Some((name, bits / 8, word(self.types, at + 4)?))
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

    /// The same description with variables and their sections changed to plain types of the same
    /// length, which need no addresses.
    #[must_use]
    pub fn without_variables(&self, bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        let Some(header) = word(bytes, 4).zip(word(bytes, 8)) else {
            return changed;
        };
        let base = header.0 as usize + header.1 as usize;
        for start in &self.starts {
            let start = *start as usize;
            let Some(head) = Head::at(self.types, start) else {
                continue;
            };
            let at = base + start;
            let mut set = |offset: usize, value: u32| {
                if let Some(slot) = changed
                    .get_mut(at + offset..)
                    .and_then(<[u8]>::first_chunk_mut)
                {
                    *slot = value.to_ne_bytes();
                }
            };
            match head.kind {
                // A variable: an integer of 32 bits.
                14 => {
                    set(4, 1 << 24);
                    set(8, 4);
                    set(12, 32);
                }
                // A section: a structure of such integers.
                15 => {
                    let members = u32::try_from(head.length).unwrap_or(0);
                    set(0, 0);
                    set(4, 4 << 24 | members);
                    set(8, members * 4);
                    for index in 0..members {
                        let member = HEAD + index as usize * 12;
                        let of = word(self.types, start + member).unwrap_or(0);
                        set(member, 0);
                        set(member + 4, of);
                        set(member + 8, index * 32);
                    }
                }
                _ => {}
            }
        }
        changed
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
                return Some(BtfMember { offset, size, of });
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

impl<'a> NameIndex<'a> {
    fn new(names: &[(Kind, &'a str)]) -> Self {
        let mut index = Self {
            names: Vec::with_capacity(names.len()),
            kinds: 0,
            starts: vec![0; 1 << 10],
        };
        for (kind, name) in names {
            let start = start_hash(name.as_bytes());
            index.starts[start / 64] |= 1 << (start % 64);
            index.kinds |= 1 << kind.number();
            index.names.push((*kind, name.as_bytes()));
        }
        index
    }

    /// Which of the names the type has.
    fn find(&self, head: &Head, strings: &[u8]) -> Option<usize> {
        if self.kinds >> head.kind & 1 == 0 {
            return None;
        }
        let kind = Kind::of_number(head.kind)?;
        let rest = strings.get(head.name as usize..)?;
        let start = start_hash(rest);
        if self.starts[start / 64] >> (start % 64) & 1 == 0 {
            return None;
        }
        self.names.iter().position(|(of, name)| {
            let tail = rest.strip_prefix(*name);
            *of == kind && tail.is_some_and(|rest| rest.first() == Some(&0))
        })
    }
}

/// Sixteen bits that depend on the first eight bytes of a name, up to the zero that ends it.
fn start_hash(bytes: &[u8]) -> usize {
    const LOWEST: u64 = 0x0101_0101_0101_0101;
    let mut word = bytes.first_chunk().map_or_else(
        || {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(padded)
        },
        |first| u64::from_le_bytes(*first),
    );
    // The highest bit of each byte that is zero; those above the lowest such byte may be wrong.
    let zeros = word.wrapping_sub(LOWEST) & !word & LOWEST << 7;
    if zeros != 0 {
        let end = zeros.trailing_zeros() - 7;
        word &= (1 << end) - 1;
    }
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
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
