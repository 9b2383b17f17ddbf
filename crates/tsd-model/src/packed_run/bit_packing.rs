//! Bit packing of unsigned numbers of one width, lowest bit first.
//!
//! Eight numbers of width `w` take exactly `w` bytes, so each group of eight is byte-aligned. Its
//! shifts depend only on the width, so each width has its own unrolled loop.

/// Width used for numbers of up to `bits` bits. A number of 58 to 63 bits could span nine bytes, more
/// than one 64-bit read.
pub(super) const fn usable_width(bits: u32) -> u32 {
    if bits > 57 { 64 } else { bits }
}

/// True if [`unpack`] supports the width.
pub(super) const fn is_usable(width: u32) -> bool {
    width <= 57 || width == 64
}

/// Bytes of `count` numbers.
pub(super) const fn packed_len(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Appends numbers, each below `2^width`.
pub(super) fn pack(values: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut window, mut filled) = (0_u128, 0_u32);
    for v in values {
        window |= u128::from(v) << filled;
        filled += width;
        if filled >= 64 {
            out.extend_from_slice(&(window as u64).to_le_bytes());
            window >>= 64;
            filled -= 64;
        }
    }
    out.extend(window.to_le_bytes().iter().take(filled.div_ceil(8) as usize));
}

/// Fills `out` from `packed`, which must be [`packed_len`] bytes; missing bytes count as zero.
#[inline]
pub(super) fn unpack(packed: &[u8], width: u32, out: &mut [u64]) {
    macro_rules! dispatch {
        ($($w:literal)*) => {
            match width {
                $($w => unpack_width::<$w>(packed, out),)*
                _ => out.fill(0),
            }
        };
    }
    dispatch!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 64);
}

fn unpack_width<const W: usize>(packed: &[u8], out: &mut [u64]) {
    let (groups, _) = packed.as_chunks::<W>();
    let (outs, rest) = out.as_chunks_mut::<8>();
    for (out, group) in outs.iter_mut().zip(groups) {
        *out = unpack_group::<W>(group);
    }
    if !rest.is_empty() {
        let tail = packed.get(outs.len() * W..).unwrap_or_default();
        let mut group = [0_u8; W];
        for (to, from) in group.iter_mut().zip(tail) {
            *to = *from;
        }
        for (to, from) in rest.iter_mut().zip(unpack_group::<W>(&group)) {
            *to = from;
        }
    }
}

#[inline]
fn unpack_group<const W: usize>(group: &[u8; W]) -> [u64; 8] {
    let mask = u64::MAX >> (64 - W);
    std::array::from_fn(|i| {
        let bit = i * W;
        // The last numbers read the last eight bytes, so that no read exceeds the group.
        let at = (bit / 8).min(W.saturating_sub(8));
        let mut window = [0_u8; 8];
        for (to, from) in window.iter_mut().zip(group.iter().skip(at)) {
            *to = *from;
        }
        (u64::from_le_bytes(window) >> (bit - at * 8)) & mask
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn unpack_inverts_pack(
            bits in 0_u32..=64,
            values in prop::collection::vec(any::<u64>(), 0..100),
        ) {
            let width = usable_width(bits);
            prop_assert!(is_usable(width));
            let values: Vec<u64> = values
                .into_iter()
                .map(|v| if bits == 0 { 0 } else { v >> (64 - bits) })
                .collect();
            let mut packed = Vec::new();
            pack(values.iter().copied(), width, &mut packed);
            prop_assert_eq!(packed.len(), packed_len(values.len(), width));
            let mut out = vec![u64::MAX; values.len()];
            unpack(&packed, width, &mut out);
            prop_assert_eq!(out, values);
        }
    }
}
