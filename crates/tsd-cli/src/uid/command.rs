//! Parser of the arguments of `tsdb uid`.

use tsd_engine::UidKind;
use tsd_tools::UidFsckOptions;

/// Printed for an invalid command line.
pub(super) const USAGE: &str = "\
Usage: tsdb uid [OPTIONS] <sub-command>
  grep [KIND] REGEXP            names that match
  assign KIND NAME...           UIDs of names; new names get new UIDs
  rename KIND OLD NEW           another name for a UID
  delete KIND NAME              removes a name; its points stay, without a name
  fsck [fix] [delete_unknown]   finds damaged mappings, and repairs them
  [KIND] NAME                   the UID of a name
  [KIND] ID                     the name of a UID
  metasync                      missing meta objects of all names and series
  metapurge                     deletes all meta objects and counters
  treesync                      places all series that have meta objects in the enabled trees
  treepurge TREE [true]         empties a tree; with true, deletes it
KIND is metrics, tagk or tagv. `tsdb help uid` says more.";

/// Flags that change what a sub-command does.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub(super) struct UidFlags {
    /// Width of a UID that is given as a number; `None` for the widths of the store.
    pub(super) id_width: Option<usize>,
    pub(super) ignore_case: bool,
    pub(super) json: bool,
    /// True to print more than errors.
    pub(super) verbose: bool,
    /// True if signals stop long sub-commands.
    pub(super) stops_on_signals: bool,
}

/// A sub-command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UidCommand {
    Grep {
        kind: Option<UidKind>,
        pattern: String,
    },
    Assign {
        kind: UidKind,
        names: Vec<String>,
    },
    Rename {
        kind: UidKind,
        old: String,
        new: String,
    },
    Delete {
        kind: UidKind,
        name: String,
    },
    /// Writes the missing meta objects of names and series with points.
    MetaSync,
    /// Deletes all meta objects.
    MetaPurge,
    /// Checks the UID table.
    Fsck(UidFsckOptions),
    /// Places all series with meta objects in trees.
    TreeSync,
    /// Deletes the content of a tree.
    TreePurge {
        /// The number of the tree, as written.
        tree: String,
        /// True to delete its definition too.
        definition: bool,
    },
    /// A name, or a UID as a number.
    LookUp {
        kind: Option<UidKind>,
        word: String,
    },
}

/// Words that are not a sub-command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UsageError {
    #[error("Wrong number of arguments")]
    Count,
    #[error("unknown kind '{0}': expected metrics, tagk or tagv")]
    Kind(String),
    #[error("unknown option '{0}' of fsck: expected fix or delete_unknown")]
    FsckOption(String),
    #[error("delete_unknown has an effect only with fix")]
    NothingFixed,
}

impl UidCommand {
    /// Parses the words of a command line.
    pub(super) fn parse(words: &[String]) -> Result<Self, UsageError> {
        let Some((first, rest)) = words.split_first() else { return Err(UsageError::Count) };
        match (first.as_str(), rest) {
            ("grep", [pattern]) => Ok(Self::Grep { kind: None, pattern: pattern.clone() }),
            ("grep", [of, pattern]) => {
                Ok(Self::Grep { kind: Some(kind(of)?), pattern: pattern.clone() })
            }
            ("assign", [of, names @ ..]) if !names.is_empty() => {
                Ok(Self::Assign { kind: kind(of)?, names: names.to_vec() })
            }
            ("rename", [of, old, new]) => {
                Ok(Self::Rename { kind: kind(of)?, old: old.clone(), new: new.clone() })
            }
            ("delete", [of, name]) => Ok(Self::Delete { kind: kind(of)?, name: name.clone() }),
            ("fsck", options) => fsck(options).map(Self::Fsck),
            ("metasync", []) => Ok(Self::MetaSync),
            ("metapurge", []) => Ok(Self::MetaPurge),
            // As in OpenTSDB, further words are ignored.
            ("treesync", _) => Ok(Self::TreeSync),
            ("treepurge", [tree, rest @ ..]) => {
                let definition = rest.first().is_some_and(|word| word.eq_ignore_ascii_case("true"));
                Ok(Self::TreePurge { tree: tree.clone(), definition })
            }
            (
                "grep" | "assign" | "rename" | "delete" | "metasync" | "metapurge" | "treepurge",
                _,
            ) => Err(UsageError::Count),
            (word, []) => Ok(Self::LookUp { kind: None, word: word.to_owned() }),
            (of, [word]) => Ok(Self::LookUp { kind: Some(kind(of)?), word: word.clone() }),
            _ => Err(UsageError::Count),
        }
    }

    /// The kind of the names that the command changes, if any.
    pub(super) const fn changes(&self) -> Option<UidKind> {
        match self {
            Self::Assign { kind, .. } | Self::Rename { kind, .. } | Self::Delete { kind, .. } => {
                Some(*kind)
            }
            _ => None,
        }
    }
}

/// `[fix] [delete_unknown]`, in any order.
fn fsck(words: &[String]) -> Result<UidFsckOptions, UsageError> {
    let mut options = UidFsckOptions::default();
    for word in words {
        match word.as_str() {
            "fix" => options.fix = true,
            "delete_unknown" => options.delete_unknown = true,
            _ => return Err(UsageError::FsckOption(word.clone())),
        }
    }
    if options.delete_unknown && !options.fix {
        return Err(UsageError::NothingFixed);
    }
    Ok(options)
}

fn kind(word: &str) -> Result<UidKind, UsageError> {
    UidKind::from_name(word).ok_or_else(|| UsageError::Kind(word.to_owned()))
}

/// A number that exceeds the width of UIDs. The text is OpenTSDB's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id} is too large to fit on {width} bytes.  Maybe you forgot to adjust --idwidth?")]
pub(super) struct IdTooLargeError {
    id: i64,
    width: usize,
}

/// A UID of `width` bytes.
pub(super) fn id_bytes(id: i64, width: usize) -> Result<Vec<u8>, IdTooLargeError> {
    let bytes = id.to_be_bytes();
    let (head, uid) = bytes.split_at(bytes.len().saturating_sub(width));
    if head.iter().any(|byte| *byte != 0) {
        return Err(IdTooLargeError { id, width });
    }
    Ok(uid.to_vec())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parse(line: &str) -> Result<UidCommand, UsageError> {
        UidCommand::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_words_of_runbooks_are_sub_commands() {
        let (metrics, tagk) = (UidKind::Metric, UidKind::Tagk);
        for (line, command) in [
            ("grep sys.*", UidCommand::Grep { kind: None, pattern: "sys.*".into() }),
            ("grep tagk ^h", UidCommand::Grep { kind: Some(tagk), pattern: "^h".into() }),
            (
                "assign metrics a b",
                UidCommand::Assign { kind: metrics, names: vec!["a".into(), "b".into()] },
            ),
            (
                "rename metrics a b",
                UidCommand::Rename { kind: metrics, old: "a".into(), new: "b".into() },
            ),
            ("delete tagk a", UidCommand::Delete { kind: tagk, name: "a".into() }),
            ("metasync", UidCommand::MetaSync),
            ("metapurge", UidCommand::MetaPurge),
            ("treesync", UidCommand::TreeSync),
            ("treepurge 3", UidCommand::TreePurge { tree: "3".into(), definition: false }),
            ("treepurge 3 TRUE x", UidCommand::TreePurge { tree: "3".into(), definition: true }),
            ("sys.cpu", UidCommand::LookUp { kind: None, word: "sys.cpu".into() }),
            ("fsck", UidCommand::Fsck(UidFsckOptions::default())),
            (
                "fsck delete_unknown fix",
                UidCommand::Fsck(UidFsckOptions { fix: true, delete_unknown: true }),
            ),
            ("metrics 12", UidCommand::LookUp { kind: Some(metrics), word: "12".into() }),
        ] {
            assert_eq!(parse(line).unwrap(), command, "{line}");
        }
    }

    #[test]
    fn other_words_are_refused() {
        for line in [
            "",
            "grep",
            "grep a b c",
            "assign metrics",
            "rename metrics a",
            "delete a",
            "a b c",
            "metasync a",
            "treepurge",
        ] {
            assert_eq!(parse(line).unwrap_err(), UsageError::Count, "{line}");
        }
        for line in ["grep hosts a", "assign host a", "rename x a b", "delete x a", "x a"] {
            assert!(matches!(parse(line), Err(UsageError::Kind(_))), "{line}");
        }
        assert!(matches!(parse("fsck fxi"), Err(UsageError::FsckOption(_))));
        assert_eq!(parse("fsck delete_unknown").unwrap_err(), UsageError::NothingFixed);
    }

    #[test]
    fn an_id_must_fit_on_its_width() {
        assert_eq!(id_bytes(258, 3).unwrap(), [0, 1, 2]);
        assert_eq!(id_bytes(i64::MAX, 8).unwrap(), i64::MAX.to_be_bytes());
        assert_eq!(
            id_bytes(1 << 24, 3).unwrap_err().to_string(),
            "16777216 is too large to fit on 3 bytes.  Maybe you forgot to adjust --idwidth?"
        );
        assert!(id_bytes(-1, 3).is_err());
    }
}
