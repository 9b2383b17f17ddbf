//! A set of series numbers that takes little memory while it has few members.
//!
//! Most tag pairs of a large metric, such as host names, have few series. A bitmap for each would
//! take some 250 bytes, ten times as much as the numbers.

use roaring::RoaringBitmap;

/// Most members of a set that is not a bitmap.
const MAX_FEW: usize = 32;

/// Fixed memory of a bitmap, without its members, in bytes.
const BITMAP_BYTES: usize = 128;

/// Series numbers, ascending.
#[derive(Clone, Debug)]
pub(crate) enum Posting {
    One(u32),
    Few(Box<[u32]>),
    Many(Box<RoaringBitmap>),
}

impl Posting {
    /// Adds a number above all members. Returns the approximate growth in bytes.
    pub(crate) fn push(&mut self, id: u32) -> usize {
        match self {
            Self::One(first) => {
                *self = Self::Few(Box::new([*first, id]));
                2 * size_of::<u32>()
            }
            Self::Few(few) if few.len() < MAX_FEW => {
                let more = few.iter().copied().chain([id]);
                *few = more.collect();
                size_of::<u32>()
            }
            Self::Few(few) => {
                let many = few.iter().copied().chain([id]).collect();
                *self = Self::Many(Box::new(many));
                BITMAP_BYTES
            }
            Self::Many(many) => {
                many.insert(id);
                size_of::<u16>()
            }
        }
    }

    /// Number of members.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Few(few) => few.len() as u64,
            Self::Many(many) => many.len(),
        }
    }

    /// True if the number is a member.
    pub(crate) fn contains(&self, id: u32) -> bool {
        match self {
            Self::One(one) => *one == id,
            Self::Few(few) => few.contains(&id),
            Self::Many(many) => many.contains(id),
        }
    }

    /// True if a member is in `set`.
    pub(crate) fn intersects(&self, set: &RoaringBitmap) -> bool {
        match self {
            Self::One(id) => set.contains(*id),
            Self::Few(few) => few.iter().any(|id| set.contains(*id)),
            Self::Many(many) => !many.is_disjoint(set),
        }
    }

    /// Adds the members to `set`.
    pub(crate) fn add_to(&self, set: &mut RoaringBitmap) {
        match self {
            Self::One(id) => {
                set.insert(*id);
            }
            Self::Few(few) => set.extend(few.iter().copied()),
            Self::Many(many) => *set |= &**many,
        }
    }
}
