//! Bounds-checked reads from the front of a slice.

/// Removes and returns the next `N` bytes.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

/// Removes and returns the next `length` bytes.
pub(crate) fn take_slice<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}

/// Removes and returns the next four bytes as a length.
pub(crate) fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    take(bytes).map(|length| u32::from_be_bytes(length) as usize)
}
