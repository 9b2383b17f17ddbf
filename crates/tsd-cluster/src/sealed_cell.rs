//! Cells of state rows: fields of fixed lengths, texts, and their checksum.

use bytes::Bytes;

/// Returns the cell of these fields.
pub(crate) fn seal(mut fields: Vec<u8>) -> Bytes {
    let checksum = crc32c::crc32c(&fields);
    fields.extend_from_slice(&checksum.to_be_bytes());
    fields.into()
}

/// Returns the fields of a cell; `None` if its checksum does not match.
pub(crate) fn unseal(cell: &[u8]) -> Option<&[u8]> {
    let (fields, checksum) = cell.split_last_chunk::<4>()?;
    (crc32c::crc32c(fields).to_be_bytes() == *checksum).then_some(fields)
}

/// Removes the next field and returns it.
pub(crate) fn field<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (field, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*field)
}

/// Appends a text with its length.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Removes a text with its length, and returns it.
pub(crate) fn text(rest: &mut &[u8]) -> Option<String> {
    let length = usize::from(u16::from_be_bytes(field(rest)?));
    Some(std::str::from_utf8(rest.split_off(..length)?).ok()?.to_owned())
}
