//! The names of a point, in one allocation.

use smallvec::SmallVec;

/// Names of one point as they are stored: metric, then key and value of each tag. OpenTSDB assigns their UIDs in this
/// order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NameList {
    bytes: Vec<u8>,
    ends: SmallVec<[u32; 9]>,
}

impl NameList {
    /// Appends a name, byte by byte.
    pub(crate) fn push(&mut self, name: impl IntoIterator<Item = u8>) {
        self.bytes.extend(name);
        self.ends.push(self.bytes.len() as u32);
    }

    /// The `i`-th name.
    pub(crate) fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = match i.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        self.bytes.get(start..end)
    }

    /// Bytes of memory.
    pub(crate) fn byte_len(&self) -> usize {
        self.bytes.len() + size_of::<u32>() * self.ends.len()
    }

    /// Number of names.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The names, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_order() {
        let mut names = NameList::default();
        for name in ["m", "", "host", "web01"] {
            names.push(name.bytes());
        }
        assert_eq!(names.len(), 4);
        assert_eq!(names.iter().collect::<Vec<_>>(), [&b"m"[..], b"", b"host", b"web01"]);
        assert_eq!(names.get(4), None);
    }
}
