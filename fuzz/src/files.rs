//! Files in an input, and disks that have these files.

use std::collections::BTreeMap;

use tsd_files::{FaultyDisk, StoreDir};

/// Files by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Longest file of an input, bytes.
const MAX_FILE: usize = u16::MAX as usize;

/// Encodes files as an input: for each name a length (u16, big-endian) and the bytes.
pub(crate) fn pack(names: &[String], files: &Files) -> Vec<u8> {
    let mut input = Vec::new();
    for name in names {
        let bytes = files.get(name).map_or(&[][..], Vec::as_slice);
        assert!(bytes.len() <= MAX_FILE, "{name} is short");
        input.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        input.extend_from_slice(bytes);
    }
    input
}

/// Decodes an input. Files after its end do not exist; the last file may be truncated.
pub(crate) fn unpack(names: &[String], mut input: &[u8]) -> Files {
    let mut files = Files::new();
    for name in names {
        let Some((len, rest)) = input.split_first_chunk::<2>() else { break };
        let (file, rest) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
        files.insert(name.clone(), file.to_vec());
        input = rest;
    }
    files
}

/// A disk with these files.
pub(crate) fn disk_with(files: &Files) -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    for (name, bytes) in files {
        let mut file = disk.create(name).expect("a new file");
        file.write_at(0, bytes).expect("space");
        file.sync_data().expect("a disk");
    }
    disk.sync().expect("a disk");
    disk
}

/// A number of four bytes, little-endian, as a length; `None` beyond the end.
pub(crate) fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize)
}
