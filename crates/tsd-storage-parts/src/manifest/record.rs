//! Encodes and decodes the records of the manifest.

use bytes::Bytes;

use super::{BlockRecord, FileRecord, ManifestEdit, QuarantineRecord, SectionRecord};
use crate::{
    error::Malformed,
    layout::PartLayout,
    wire::{Cursor, put_signed, put_varint},
};

const STATE: u8 = 1;
const EDIT: u8 = 2;
/// First manifest version with damaged blocks.
pub(super) const VERSION_BLOCKS: u8 = 2;
/// Length of a record's header: payload length and checksum.
pub(super) const HEAD: usize = 8;

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManifestRecord {
    pub(super) number: u64,
    /// Present in a state only.
    pub(super) layout: Option<PartLayout>,
    pub(super) edit: ManifestEdit,
}

/// Appends a record: a state with a layout, an edit without one.
pub(super) fn put(number: u64, layout: Option<PartLayout>, edit: &ManifestEdit, out: &mut Vec<u8>) {
    let mut payload = vec![if layout.is_some() { STATE } else { EDIT }];
    put_varint(&mut payload, number);
    if let Some(layout) = layout {
        payload.push(layout.base_time_at());
        put_varint(&mut payload, u64::from(layout.span_secs()));
    }
    put_edit(edit, &mut payload);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
    out.extend_from_slice(&payload);
}

/// The payload of the record at the start of `bytes`; `None` if the record is not intact.
pub(super) fn intact(bytes: &[u8]) -> Option<&[u8]> {
    let mut cursor = Cursor::new(bytes);
    let (len, crc) = (cursor.u32().ok()?, cursor.u32().ok()?);
    let payload = cursor.take(usize::try_from(len).ok()?).ok()?;
    (!payload.is_empty() && crc32c::crc32c(payload) == crc).then_some(payload)
}

/// The number of the possible record at the start of `bytes`, which are not verified.
pub(super) fn claimed_number(bytes: &[u8]) -> Option<u64> {
    let mut cursor = Cursor::new(bytes.get(HEAD..)?);
    let kind = cursor.byte().ok()?;
    if kind == STATE || kind == EDIT { cursor.varint().ok() } else { None }
}

/// Decodes a record of a manifest of this version.
pub(super) fn decode(payload: &[u8], version: u8) -> Result<ManifestRecord, Malformed> {
    let mut cursor = Cursor::new(payload);
    let kind = cursor.byte()?;
    let number = cursor.varint()?;
    let layout = match kind {
        STATE => {
            let base_time_at = cursor.byte()?;
            let layout = PartLayout::from_stored(base_time_at, cursor.varint_u32()?);
            Some(layout.ok_or(Malformed("seconds of a span"))?)
        }
        EDIT => None,
        _ => return Err(Malformed("kind of a record")),
    };
    let edit = read_edit(&mut cursor, version)?;
    if cursor.remaining() > 0 {
        return Err(Malformed("bytes after a record"));
    }
    Ok(ManifestRecord { number, layout, edit })
}

fn put_edit(edit: &ManifestEdit, out: &mut Vec<u8>) {
    put_varint(out, edit.next_sequence);
    put_varint(out, edit.files.len() as u64);
    for file in &edit.files {
        put_varint(out, file.number);
        put_varint(out, file.bytes);
        out.extend_from_slice(&file.footer_crc.to_le_bytes());
    }
    put_sections(&edit.sections, out);
    put_varint(out, edit.removed.len() as u64);
    for (file, index) in &edit.removed {
        put_varint(out, *file);
        put_varint(out, u64::from(*index));
    }
    put_varint(out, edit.quarantined.len() as u64);
    for record in &edit.quarantined {
        put_varint(out, record.file);
        put_varint(out, record.bytes);
        put_signed(out, record.since_ms);
        put_varint(out, record.what.len() as u64);
        out.extend_from_slice(record.what.as_bytes());
        put_sections(&record.sections, out);
        put_varint(out, record.blocks.len() as u64);
        for block in &record.blocks {
            put_varint(out, u64::from(block.section));
            put_varint(out, block.offset);
        }
    }
    put_varint(out, edit.accepted.len() as u64);
    for file in &edit.accepted {
        put_varint(out, *file);
    }
    out.push(u8::from(edit.log_mark.is_some()));
    if let Some(mark) = &edit.log_mark {
        put_varint(out, mark.len() as u64);
        out.extend_from_slice(mark);
    }
}

fn put_sections(sections: &[SectionRecord], out: &mut Vec<u8>) {
    put_varint(out, sections.len() as u64);
    for section in sections {
        put_varint(out, u64::from(section.span));
        put_varint(out, section.file);
        put_varint(out, u64::from(section.index));
        put_varint(out, section.sequences.0);
        put_varint(out, section.sequences.1);
        put_varint(out, section.compacted_before.map_or(0, |before| u64::from(before) + 1));
    }
}

/// Reads as many items as the preceding count says. A wrong count stops at the end of the bytes, since each item
/// has at least one byte.
fn list<T>(
    cursor: &mut Cursor<'_>,
    read: impl Fn(&mut Cursor<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = cursor.varint()?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(read(cursor)?);
    }
    Ok(items)
}

fn byte_string<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Malformed> {
    let len = usize::try_from(cursor.varint()?).map_err(|_| Malformed("a length"))?;
    cursor.take(len)
}

fn read_edit(cursor: &mut Cursor<'_>, version: u8) -> Result<ManifestEdit, Malformed> {
    Ok(ManifestEdit {
        next_sequence: cursor.varint()?,
        files: list(cursor, |c| {
            Ok(FileRecord { number: c.varint()?, bytes: c.varint()?, footer_crc: c.u32()? })
        })?,
        sections: list(cursor, read_section)?,
        removed: list(cursor, |c| Ok((c.varint()?, c.varint_u32()?)))?,
        quarantined: list(cursor, |c| {
            Ok(QuarantineRecord {
                file: c.varint()?,
                bytes: c.varint()?,
                since_ms: c.signed()?,
                what: String::from_utf8_lossy(byte_string(c)?).into_owned(),
                sections: list(c, read_section)?,
                blocks: if version >= VERSION_BLOCKS { list(c, read_block)? } else { Vec::new() },
            })
        })?,
        accepted: list(cursor, read_number)?,
        log_mark: match cursor.byte()? {
            0 => None,
            1 => Some(Bytes::copy_from_slice(byte_string(cursor)?)),
            _ => return Err(Malformed("a log mark")),
        },
    })
}

fn read_number(cursor: &mut Cursor<'_>) -> Result<u64, Malformed> {
    cursor.varint()
}

fn read_block(cursor: &mut Cursor<'_>) -> Result<BlockRecord, Malformed> {
    Ok(BlockRecord { section: cursor.varint_u32()?, offset: cursor.varint()? })
}

fn read_section(cursor: &mut Cursor<'_>) -> Result<SectionRecord, Malformed> {
    let section = SectionRecord {
        span: cursor.varint_u32()?,
        file: cursor.varint()?,
        index: cursor.varint_u32()?,
        sequences: (cursor.varint()?, cursor.varint()?),
        compacted_before: match cursor.varint()? {
            0 => None,
            more => Some(u32::try_from(more - 1).map_err(|_| Malformed("a time of a section"))?),
        },
    };
    if section.sequences.0 > section.sequences.1 {
        return Err(Malformed("sequences of a section"));
    }
    Ok(section)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn sections() -> impl Strategy<Value = Vec<SectionRecord>> {
        let section =
            (any::<u32>(), any::<u64>(), any::<u32>(), any::<[u64; 2]>(), any::<Option<u32>>());
        let section = section.prop_map(|(span, file, index, [a, b], compacted_before)| {
            let sequences = (a.min(b), a.max(b));
            SectionRecord { span, file, index, sequences, compacted_before }
        });
        prop::collection::vec(section, 0..4)
    }

    fn edits() -> impl Strategy<Value = ManifestEdit> {
        let files = prop::collection::vec(any::<(u64, u64, u32)>(), 0..4);
        let removed = prop::collection::vec(any::<(u64, u32)>(), 0..4);
        let blocks = prop::collection::vec(any::<(u32, u64)>(), 0..3);
        let quarantined = prop::collection::vec(
            (any::<(u64, u64, i64)>(), "[a-z]{0,9}", sections(), blocks),
            0..3,
        );
        let rest =
            (any::<u64>(), prop::collection::vec(any::<u64>(), 0..3), any::<Option<[u8; 5]>>());
        (rest, files, sections(), removed, quarantined).prop_map(
            |((next_sequence, accepted, mark), files, sections, removed, quarantined)| {
                let file = |(number, bytes, footer_crc)| FileRecord { number, bytes, footer_crc };
                let damaged = |((file, bytes, since_ms), what, sections, blocks): (
                    _,
                    _,
                    _,
                    Vec<(u32, u64)>,
                )| QuarantineRecord {
                    file,
                    bytes,
                    since_ms,
                    what,
                    sections,
                    blocks: blocks
                        .into_iter()
                        .map(|(section, offset)| BlockRecord { section, offset })
                        .collect(),
                };
                ManifestEdit {
                    next_sequence,
                    files: files.into_iter().map(file).collect(),
                    sections,
                    removed,
                    quarantined: quarantined.into_iter().map(damaged).collect(),
                    accepted,
                    log_mark: mark.map(|mark| Bytes::copy_from_slice(&mark)),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn reading_inverts_writing(edit in edits(), number: u64, is_state: bool) {
            let layout = is_state.then(|| PartLayout::from_stored(3, 86_400).unwrap());
            let mut bytes = Vec::new();
            put(number, layout, &edit, &mut bytes);
            let payload = intact(&bytes).unwrap();
            prop_assert_eq!(payload.len(), bytes.len() - HEAD);
            prop_assert_eq!(decode(payload, VERSION_BLOCKS).unwrap(), ManifestRecord { number, layout, edit });
            prop_assert_eq!(bytes.split_last().and_then(|(_, rest)| intact(rest)), None);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            for version in 1..=VERSION_BLOCKS {
                let _ = decode(&bytes, version);
                let _ = decode(&[&[EDIT][..], &bytes].concat(), version);
            }
            let _ = intact(&bytes);
        }
    }

    #[test]
    fn zeros_are_no_record() {
        assert_eq!(intact(&[0; 64]), None);
    }
}
