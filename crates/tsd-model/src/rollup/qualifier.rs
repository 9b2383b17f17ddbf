//! Qualifiers of rollup cells.

use smallvec::SmallVec;

use crate::flags::Flags;

/// Aggregator of a rollup value: an id, or a name in cells of old writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollupAggregator<'a> {
    /// Id from the configuration, 0 to 127.
    Id(u8),
    /// Lower-case name; read, never written.
    Name(&'a [u8]),
}

/// Qualifier of one rollup value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollupQualifier<'a> {
    /// The aggregator.
    pub aggregator: RollupAggregator<'a>,
    /// Slot in the row, 0 to 4095.
    pub slot: u16,
    /// Type and length of the value.
    pub flags: Flags,
}

impl<'a> RollupQualifier<'a> {
    /// Largest slot number in twelve bits.
    pub const MAX_SLOT: u16 = 0xFFF;

    /// Encodes the qualifier: three bytes with an id; name, colon and two bytes with a name. A slot
    /// beyond twelve bits is truncated.
    #[must_use]
    pub fn encode(&self) -> SmallVec<[u8; 8]> {
        let [high, low] = (self.slot << 4 | u16::from(self.flags.bits())).to_be_bytes();
        match self.aggregator {
            RollupAggregator::Id(id) => SmallVec::from_slice(&[id, high, low]),
            RollupAggregator::Name(name) => {
                let mut qualifier = SmallVec::from_slice(name);
                qualifier.extend([b':', high, low]);
                qualifier
            }
        }
    }

    /// Decodes both forms. The top bit of an id is reserved and ignored.
    #[must_use]
    pub fn decode(qualifier: &'a [u8]) -> Option<Self> {
        let (front, place) = qualifier.split_last_chunk::<2>()?;
        let aggregator = match front {
            [id] => RollupAggregator::Id(id & 0x7F),
            [name @ .., b':'] if !name.is_empty() => RollupAggregator::Name(name),
            _ => return None,
        };
        let place = u16::from_be_bytes(*place);
        Some(Self { aggregator, slot: place >> 4, flags: Flags::from_bits(place as u8) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_top_bit_of_an_id_is_ignored() {
        let decoded = RollupQualifier::decode(&[0x80, 0, 0x10]).map(|q| q.aggregator);
        assert_eq!(decoded, Some(RollupAggregator::Id(0)));
    }

    #[test]
    fn other_forms_are_none() {
        for qualifier in [&b""[..], b"a", b"ab", b"sum0ab"] {
            assert_eq!(RollupQualifier::decode(qualifier), None);
        }
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(
            id in 0..128_u8, slot in 0..=RollupQualifier::MAX_SLOT, flags in 0..16_u8,
            name in "[a-z]{1,9}",
        ) {
            let flags = Flags::from_bits(flags);
            for aggregator in [RollupAggregator::Id(id), RollupAggregator::Name(name.as_bytes())] {
                let qualifier = RollupQualifier { aggregator, slot, flags };
                let bytes = qualifier.encode();
                prop_assert_eq!(RollupQualifier::decode(&bytes), Some(qualifier));
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let read = RollupQualifier::decode(&bytes);
            prop_assert!(read.is_none_or(|q| q.encode().len() == bytes.len()));
        }

        #[test]
        fn byte_order_is_slot_order(id in 0..128_u8, a in 0..4_096_u16, b in 0..4_096_u16) {
            prop_assume!(a != b);
            let bytes = |slot, flags| {
                let flags = Flags::from_bits(flags);
                RollupQualifier { aggregator: RollupAggregator::Id(id), slot, flags }.encode()
            };
            prop_assert_eq!(bytes(a, 15).cmp(&bytes(b, 0)), a.cmp(&b));
        }
    }
}
