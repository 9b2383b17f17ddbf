//! The list of the files of a snapshot: JSON whose last member is a checksum of all bytes before it.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Component, Path},
};

use serde_json::{Value, json};
use tsd_model::TableSchema;
use tsd_storage::FileChecksum;

use super::{
    error::SnapshotError,
    format::{LIST_FORMAT, SNAPSHOT_LIST},
};

/// Begins the member with the checksum.
const SEAL: &str = ",\"checksum\":\"crc32c:";

/// Contents of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotList {
    /// Time when the files were pinned, epoch milliseconds.
    pub created_ms: i64,
    /// Version of the program that took the snapshot.
    pub program: String,
    /// Widths of the keys.
    pub schema: TableSchema,
    /// Damaged files of the source store, which the snapshot lacks.
    pub damaged: Vec<String>,
    /// Files of the snapshot.
    pub files: Vec<ListedFile>,
}

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Path below the directory of the snapshot, with `/`.
    pub path: String,
    /// Size, bytes.
    pub bytes: u64,
    /// Checksum.
    pub checksum: FileChecksum,
}

impl SnapshotList {
    /// Format of the list and of the files that it names.
    pub const FORMAT: u64 = LIST_FORMAT;

    /// Size of all files, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Renders the list as JSON.
    #[must_use]
    pub fn render(&self) -> String {
        let schema = self.schema;
        let head = json!({
            "format": Self::FORMAT,
            "createdMs": self.created_ms,
            "program": self.program,
            "schema": {
                "metricWidth": schema.metric_width(),
                "tagkWidth": schema.tagk_width(),
                "tagvWidth": schema.tagv_width(),
                "saltWidth": schema.salt_width(),
                "saltBuckets": schema.salt_buckets(),
            },
            "damaged": self.damaged,
        });
        let mut text = head.to_string();
        text.pop();
        text.push_str(",\"files\":[");
        for (index, file) in self.files.iter().enumerate() {
            text.push_str(if index > 0 { ",\n" } else { "\n" });
            let checksum = file.checksum.to_string();
            let file = json!({ "path": file.path, "bytes": file.bytes, "checksum": checksum });
            text.push_str(&file.to_string());
        }
        text.push_str("\n]");
        let crc = crc32c::crc32c(text.as_bytes());
        text.push_str(SEAL);
        let _ = writeln!(text, "{crc:08x}\"}}");
        text
    }

    /// Reads the list of the snapshot in a directory.
    ///
    /// # Errors
    ///
    /// The problem of the snapshot, or an error of the disk.
    pub fn read(directory: &Path) -> Result<Self, SnapshotError> {
        let path = directory.join(SNAPSHOT_LIST);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(SnapshotError::NoSnapshot { path: directory.to_owned() });
            }
            Err(error) => return Err(SnapshotError::io("reading", path)(error)),
        };
        Self::parse(&bytes).map_err(|error| match error {
            ListError::Damaged(what) => SnapshotError::DamagedList { path, what },
            ListError::OtherFormat(found) => SnapshotError::OtherFormat { path, found },
        })
    }

    fn parse(bytes: &[u8]) -> Result<Self, ListError> {
        let text = std::str::from_utf8(bytes).map_err(|_| ListError::Damaged("it is no text"))?;
        let at = text.rfind(SEAL).ok_or(ListError::Damaged("it has no checksum at its end"))?;
        let (sealed, seal) = text.split_at(at);
        let crc = crc32c::crc32c(sealed.as_bytes());
        if seal != format!("{SEAL}{crc:08x}\"}}\n") {
            return Err(ListError::Damaged("its checksum is wrong"));
        }
        let list: Value =
            serde_json::from_str(text).map_err(|_| ListError::Damaged("it is no JSON"))?;
        match list.get("format").and_then(Value::as_u64) {
            Some(Self::FORMAT) => {}
            Some(found) => return Err(ListError::OtherFormat(found)),
            None => return Err(ListError::Damaged("it has no format")),
        }
        Self::of_json(&list).ok_or(ListError::Damaged("a member is missing, or of another kind"))
    }

    fn of_json(list: &Value) -> Option<Self> {
        let schema = list.get("schema")?;
        let number = |name| usize::try_from(schema.get(name)?.as_u64()?).ok();
        let schema = TableSchema::try_new(
            number("metricWidth")?,
            number("tagkWidth")?,
            number("tagvWidth")?,
            number("saltWidth")?,
            u32::try_from(number("saltBuckets")?).ok()?,
        );
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let file = |file: &Value| {
            let path = text(file.get("path")?)?;
            let checksum = file.get("checksum")?.as_str()?.parse().ok()?;
            let bytes = file.get("bytes")?.as_u64()?;
            is_below(&path).then_some(ListedFile { path, bytes, checksum })
        };
        Some(Self {
            created_ms: list.get("createdMs")?.as_i64()?,
            program: text(list.get("program")?)?,
            schema: schema.ok()?,
            damaged: list.get("damaged")?.as_array()?.iter().map(text).collect::<Option<_>>()?,
            files: list.get("files")?.as_array()?.iter().map(file).collect::<Option<_>>()?,
        })
    }
}

enum ListError {
    Damaged(&'static str),
    OtherFormat(u64),
}

/// True if a relative path stays inside its directory.
fn is_below(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|c| matches!(c, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn list() -> SnapshotList {
        let file = |path: &str, checksum| ListedFile { path: path.into(), bytes: 7, checksum };
        SnapshotList {
            created_ms: 1_600_000_000_123,
            program: "0.1 \"x\"".into(),
            schema: TableSchema::opentsdb_default(),
            damaged: vec!["t.tsdb-7".into()],
            files: vec![
                file("store/a", FileChecksum::Crc32c(7)),
                file("store/b", FileChecksum::Footer(u32::MAX)),
                file("store/c", FileChecksum::Xxh3(u128::MAX - 1)),
            ],
        }
    }

    fn write(directory: &Path, text: impl AsRef<[u8]>) {
        fs::write(directory.join(SNAPSHOT_LIST), text).unwrap();
    }

    #[test]
    fn reading_inverts_rendering_and_every_flipped_bit_and_cut_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let text = list().render();
        write(dir.path(), &text);
        assert_eq!(SnapshotList::read(dir.path()).unwrap(), list());
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            *bytes.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
            write(dir.path(), bytes);
            let error = SnapshotList::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains("snapshot.json is damaged"), "{bit}: {error}");
        }
        for len in 0..text.len() {
            write(dir.path(), text.get(..len).unwrap());
            assert!(SnapshotList::read(dir.path()).is_err(), "{len}");
        }
    }

    #[test]
    fn another_format_and_paths_that_lead_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = SnapshotList::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("is no snapshot"), "{error}");
        let sealed = |text: &str| {
            let (text, _) = text.split_at(text.rfind(SEAL).unwrap());
            format!("{text}{SEAL}{:08x}\"}}\n", crc32c::crc32c(text.as_bytes()))
        };
        write(dir.path(), sealed(&list().render().replacen("\"format\":1", "\"format\":2", 1)));
        let error = SnapshotList::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has format 2; this version reads only 1"), "{error}");
        for path in ["../a", "/a", "", "a/../../b"] {
            write(dir.path(), sealed(&list().render().replace("store/a", path)));
            assert!(SnapshotList::read(dir.path()).is_err(), "{path}");
        }
    }
}
