//! Changes the file of users in one step, so that a daemon reads the former content or the new one.
//!
//! A lock of the file excludes other commands. An editor does not take it.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io::{ErrorKind, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};

/// Mode of a new file: only its owner may read it.
const NEW_FILE_MODE: u32 = 0o600;

/// A file of users that no other command changes meanwhile.
#[derive(Debug)]
pub(super) struct UsersFile {
    path: PathBuf,
    /// Holds the lock.
    file: File,
    pub(super) text: String,
}

impl UsersFile {
    /// Opens a file to change it; creates an empty one if `create` is true.
    pub(super) fn open(path: &Path, create: bool) -> anyhow::Result<Self> {
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(create).create(create).mode(NEW_FILE_MODE);
            let mut file = options.open(path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // Behind a symbolic link, the target is replaced.
            let target = fs::canonicalize(path)?;
            let is_current = fs::metadata(&target)?.ino() == file.metadata()?.ino();
            // Another command has replaced the file before this one got the lock.
            if !is_current {
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            return Ok(Self { path: target, file, text });
        }
    }

    /// Replaces the content; mode and owner stay.
    pub(super) fn replace(self, text: &str) -> anyhow::Result<()> {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".new");
        let new = self.path.with_file_name(name);
        let written = self.write(&new, text);
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written.with_context(|| format!("cannot write {}", new.display()))
    }

    fn write(&self, new: &Path, text: &str) -> anyhow::Result<()> {
        // An interrupted command may have left one.
        if let Err(error) = fs::remove_file(new)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error.into());
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(NEW_FILE_MODE).open(new)?;
        let (before, now) = (self.file.metadata()?, file.metadata()?);
        if (before.uid(), before.gid()) != (now.uid(), now.gid()) {
            let owned = fchown(&file, Some(before.uid()), Some(before.gid()));
            owned.context("cannot give it the owner of the file of users")?;
        }
        file.set_permissions(Permissions::from_mode(before.mode() & 0o7777))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, &self.path)?;
        if let Some(directory) = self.path.parent() {
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_behind_its_link_and_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        fs::write(&target, "a\n").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o640)).unwrap();
        symlink(&target, &link).unwrap();
        // The rest of an interrupted command.
        fs::write(directory.path().join(".target.new"), "x").unwrap();
        let file = UsersFile::open(&link, false).unwrap();
        assert_eq!(file.text, "a\n");
        file.replace("b\n").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "b\n");
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        let new = directory.path().join("new");
        assert!(UsersFile::open(&new, false).is_err());
        UsersFile::open(&new, true).unwrap().replace("c\n").unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, NEW_FILE_MODE);
    }

    #[test]
    fn two_commands_change_a_file_one_after_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        fs::write(&path, "").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let file = UsersFile::open(&path, false).unwrap();
                        let text = format!("{}x\n", file.text);
                        file.replace(&text).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "x\n".repeat(40));
    }
}
