//! The footer of a part file, and its copy.

use std::sync::Arc;

use tsd_files::{ReadVia, StoreDir};
use tsd_storage::UnknownVersion;

use crate::{
    error::{Malformed, PartError},
    layout::PartLayout,
    manifest::FileRecord,
    section::BlockRef,
    wire::Cursor,
    writer::{COPY_REF, END_MAGIC, MAGIC, SectionRef, TAIL, VERSION_COPIES, VERSIONS},
};

/// Offset of the first block in a file with copies.
pub(super) const FIRST_BLOCK: u64 = (MAGIC.len() + COPY_REF) as u64;

/// The footer of a file and the length of the file.
pub(super) struct OpenedFooter {
    pub(super) len: u64,
    pub(super) crc: u32,
    pub(super) footer: Footer,
    /// Damage outside the footer that was used, and its offset.
    pub(super) damaged: Option<(u64, &'static str)>,
}

/// An undecoded footer.
struct FoundFooter {
    at: u64,
    bytes: Vec<u8>,
    crc: u32,
}

impl OpenedFooter {
    /// Reads and verifies the footer, and that the manifest lists this very file.
    pub(super) fn read(
        dir: &dyn StoreDir,
        file_name: &str,
        name: &Arc<str>,
        listed: Option<&FileRecord>,
        via: ReadVia,
    ) -> Result<Self, PartError> {
        let path = dir.path().join(file_name);
        let file = dir.open_reader(file_name).map_err(PartError::io("open", &path))?;
        let read_at = |at, bytes: &mut [u8]| {
            file.read_exact_via(via, at, bytes).map_err(PartError::io("read", &path))
        };
        let len = file.size().map_err(PartError::io("open", &path))?;
        let damaged = |offset, what| PartError::Damaged { file: Arc::clone(name), offset, what };
        if listed.is_some_and(|listed| listed.bytes != len) {
            return Err(damaged(len, "size of the file"));
        }
        if len < (MAGIC.len() + TAIL) as u64 {
            return Err(damaged(0, "too short for a part"));
        }
        let last = Self::last(len, &read_at)
            .and_then(|found| found.map_err(|(at, what)| damaged(at, what)));
        let copy = || Self::copy(len, &read_at);
        let (found, mut wrong) = match last {
            Ok(found) => (found, None),
            Err(error) => match copy() {
                Ok(Some(found)) => (found, Some((len - TAIL as u64, "the footer"))),
                _ => return Err(error),
            },
        };
        let FoundFooter { at, bytes, crc } = found;
        let version = bytes.first().copied().unwrap_or_default();
        if !VERSIONS.contains(&version) {
            let supported = "1 to 3";
            return Err(
                UnknownVersion::new("store file", Arc::clone(name), version, supported).into()
            );
        }
        if listed.is_some_and(|listed| listed.footer_crc != crc) {
            return Err(damaged(at, "footer of another part"));
        }
        // Offset of the footer at the end, even if its copy was read.
        let footer_at = len - (TAIL + bytes.len()) as u64;
        let footer = Footer::decode(&bytes, footer_at)
            .map_err(|Malformed(what)| damaged(footer_at, what))?;
        let mut magic = [0; 8];
        let begins = read_at(0, &mut magic).is_ok() && magic == *MAGIC;
        if !begins && footer.version < VERSION_COPIES {
            return Err(damaged(0, "does not begin as a part"));
        }
        if footer.version >= VERSION_COPIES {
            let is_copied = copy().is_ok_and(|copy| copy.is_some_and(|copy| copy.crc == crc));
            if !begins {
                wrong = wrong.or(Some((0, "does not begin as a part")));
            } else if !is_copied {
                wrong = wrong.or(Some((MAGIC.len() as u64, "the copy of the footer")));
            }
        }
        match wrong {
            // The page cache may be damaged where the disk is intact.
            Some((at, what)) if via == ReadVia::PageCache => Err(damaged(at, what)),
            damaged => Ok(Self { len, crc, footer, damaged }),
        }
    }

    /// Reads the footer at the end of the file.
    fn last(
        len: u64,
        read_at: &impl Fn(u64, &mut [u8]) -> Result<(), PartError>,
    ) -> Result<Result<FoundFooter, (u64, &'static str)>, PartError> {
        let mut tail = [0; TAIL];
        let tail_at = len - TAIL as u64;
        read_at(tail_at, &mut tail)?;
        if !tail.ends_with(END_MAGIC) {
            return Ok(Err((tail_at, "does not end as a part")));
        }
        let mut cursor = Cursor::new(&tail);
        let (Ok(footer_len), Ok(crc)) = (cursor.u32(), cursor.u32()) else {
            return Ok(Err((tail_at, "length of the footer")));
        };
        // Zeros would be the length and the checksum of an empty footer.
        let is_footer = |at: &u64| *at >= MAGIC.len() as u64 && footer_len > 0;
        let Some(at) = tail_at.checked_sub(u64::from(footer_len)).filter(is_footer) else {
            return Ok(Err((tail_at, "length of the footer")));
        };
        let mut bytes = vec![0; footer_len as usize];
        read_at(at, &mut bytes)?;
        if crc32c::crc32c(&bytes) != crc {
            return Ok(Err((at, "checksum of the footer")));
        }
        Ok(Ok(FoundFooter { at, bytes, crc }))
    }

    /// Reads the copy of the footer, if the file has an intact one.
    fn copy(
        len: u64,
        read_at: &impl Fn(u64, &mut [u8]) -> Result<(), PartError>,
    ) -> Result<Option<FoundFooter>, PartError> {
        if len < FIRST_BLOCK + TAIL as u64 {
            return Ok(None);
        }
        let mut place = [0; COPY_REF];
        read_at(MAGIC.len() as u64, &mut place)?;
        let (at, rest) = place.split_at(8);
        let (footer_len, crc) = rest.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).unwrap_or_default();
        let at = at.try_into().map(u64::from_le_bytes).unwrap_or_default();
        let (footer_len, crc) = (number(footer_len), number(crc));
        let end = at.saturating_add(u64::from(footer_len));
        if at < FIRST_BLOCK || end > len - TAIL as u64 || footer_len == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; footer_len as usize];
        read_at(at, &mut bytes)?;
        let is_copy = crc32c::crc32c(&bytes) == crc && bytes.first() == Some(&VERSION_COPIES);
        Ok(is_copy.then_some(FoundFooter { at, bytes, crc }))
    }
}

/// A decoded footer.
pub(super) struct Footer {
    version: u8,
    /// Offset of the footer in the file.
    at: u64,
    pub(super) layout: PartLayout,
    pub(super) sequences: (u64, u64),
    pub(super) sections: Vec<SectionRef>,
}

impl Footer {
    fn decode(bytes: &[u8], end: u64) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let version = cursor.byte()?;
        let base_time_at = cursor.byte()?;
        let layout = PartLayout::from_stored(base_time_at, cursor.varint_u32()?)
            .ok_or(Malformed("seconds of a span"))?;
        let sequences = (cursor.varint()?, cursor.varint()?);
        let mut sections: Vec<SectionRef> = Vec::new();
        for _ in 0..cursor.varint()? {
            let section = SectionRef {
                span: cursor.varint_u32()?,
                chunks: cursor.varint()?,
                points: cursor.varint()?,
                bytes: cursor.varint()?,
                head: BlockRef::read(&mut cursor)?,
            };
            let ascends = sections.last().is_none_or(|last| last.span < section.span);
            let is_span = section.span.is_multiple_of(layout.span_secs());
            if !ascends || !is_span || section.head.end() > end {
                return Err(Malformed("section of the footer"));
            }
            sections.push(section);
        }
        if cursor.remaining() > 0 || sequences.0 > sequences.1 {
            return Err(Malformed("footer"));
        }
        Ok(Self { version, at: end, layout, sequences, sections })
    }

    /// Offsets of the copies of the heads and of the footer after them.
    pub(super) fn copies(&self) -> Option<(u64, u64)> {
        let heads: u64 = self.sections.iter().map(|place| u64::from(place.head.len)).sum();
        let at = self.at.checked_sub(heads)?;
        (self.version >= VERSION_COPIES).then_some((at, self.at))
    }
}
